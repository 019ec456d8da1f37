"""What is asked of the engine for a variant, and what becomes of each answer."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.benchmark.measure import Measurer
from runner.cases.model import Backend, Variant
from runner.cases.torch_names import PRECISION
from runner.contract.job import Job
from runner.engine.messages import Outcome
from runner.session.plan import Planned
from runner.session.settings import RunSettings
from tests.handmade import environment, variants

SPREAD = {"median": 2.0, "low": 1.0, "high": 3.0, "best": 0.5, "count": 9}
CACHES = {"graph_hits": 0, "graph_misses": 1, "autograd_hits": 0, "autograd_misses": 0}
COUNTS = {"graphs": 1, "graph_breaks": 0, "recompiles": 0, "notes": ["a note"]}
RECORDS: dict[str, dict[str, Any]] = {
    "copy": {"device": "A processor", "threads": 3, "bytes": 100, "seconds": SPREAD},
    "cold": {"compile": {"seconds": 9.0, "caches": CACHES}, "generated": 2, "bytes": 50, "bytes_source": "inductor", **COUNTS},
    "warm": {
        "compile": {"seconds": 1.0, "caches": CACHES},
        "eager": {"seconds": {**SPREAD, "median": 4.0}, "memory": 7, "launches": None},
        "compiled": {"seconds": SPREAD, "memory": 5, "launches": None},
        **COUNTS,
    },
}  # fmt: skip
FLAG = "torch._inductor.config.fallback_random"


class Answering:
    """An engine that answers each part with its record, or with what ``changes`` say, and remembers what it was asked."""

    def __init__(self, changes: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.changes, self.jobs, self.pending = changes or {}, [], []
        self.folders: list[bool] = []

    def submit(self, job: Job) -> None:
        assert not self.pending, "one at a time"
        self.jobs.append(job)
        self.pending.append(job)
        if "folder" in job.arguments:
            self.folders.append(Path(job.arguments["folder"]).parent.is_dir())

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        job = self.pending.pop()
        part = job.arguments["part"]
        return [Outcome(**{"job": job, "ended": "result", "seconds": 1.0, "result": RECORDS[part], **self.changes.get(part, {})})]  # fmt: skip


def measurer(engine: Answering, repeat: int = 10, **settings: Any) -> Measurer:
    return Measurer(engine, RunSettings(**settings), repeat, {"2.13.0": 3}, Path(tempfile.gettempdir()), lambda: None)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Planned]:
    def made(keys: str = "", **changes: Any) -> Planned:
        variant: Variant = variants(tmp_path, keys)[0]
        return Planned(dataclasses.replace(variant, **changes), environment())

    return made


def test_a_variant_is_a_copy_a_cold_and_a_warm_process(make: Callable[..., Planned]) -> None:
    engine = Answering()
    row = measurer(engine, repeat=30, seed=5).row(make())
    assert [job.arguments["part"] for job in engine.jobs] == ["copy", "cold", "warm"]
    assert {(job.task, job.isolation, job.cacheable, job.seed, job.arguments["repeat"]) for job in engine.jobs} == {
        ("bench", "fork", False, 5, 30)
    }
    assert len({job.key for job in engine.jobs}) == 3
    assert (row.status, row.speedup, row.generated, row.threads) == ("timed", 2.0, 2, 3)
    assert row.cold and row.warm and (row.cold.seconds, row.warm.seconds) == (9.0, 1.0)
    assert row.of_copy == pytest.approx((50 / 2) / (100 / 2)) and row.notes == ("a note",)


def test_cold_and_warm_share_a_folder_that_is_gone_afterwards(make: Callable[..., Planned]) -> None:
    engine = Answering()
    measure = measurer(engine)
    measure.row(make())
    measure.row(make())
    folders = [job.arguments["folder"] for job in engine.jobs if "folder" in job.arguments]
    assert folders[0] == folders[1] != folders[2] == folders[3] and engine.folders == [True] * 4
    assert not any(Path(folder).parent.exists() for folder in folders)


def test_the_copy_is_measured_once_a_device_and_thread_count(make: Callable[..., Planned]) -> None:
    engine = Answering()
    measure = measurer(engine)
    for planned in (make(), make(), make("threads: 1")):
        measure.row(planned)
    assert [job.threads for job in engine.jobs if job.arguments["part"] == "copy"] == [3, 1]
    assert len(measure.copies) == 2


def test_without_a_copy_a_variant_is_timed_all_the_same(make: Callable[..., Planned]) -> None:
    row = measurer(Answering({"copy": {"ended": "memory", "result": {}}})).row(make())
    assert row.status == "timed" and row.of_copy is None


def test_flags_are_as_users_have_them_unless_the_case_says_otherwise(make: Callable[..., Planned]) -> None:
    for keys, value in (("", None), (f"config: {{{FLAG}: true}}", True)):
        engine = Answering()
        measurer(engine).row(make(keys))
        assert {job.config.get(FLAG) for job in engine.jobs} == {value}
        assert not any(name in job.config for job in engine.jobs for name in PRECISION)


RAISED = {"raised": {"during": "eager", "summary": "ValueError: no"}}


@pytest.mark.parametrize(
    ("part", "change", "status", "reason"),
    [
        ("cold", {"result": RAISED}, "eager-error", "eager raised ValueError: no"),
        ("cold", {"result": {"raised": {"during": "compile", "summary": "E: x"}}}, "compile-error", "the backend raised E: x"),
        ("warm", {"result": {"raised": {"during": "timing", "summary": "E: x"}}}, "runtime-error", "while it was timed"),
        ("cold", {"result": {"error": {"type": "Unavailable", "message": "no package y here"}}}, "skip", "no package y"),
        ("cold", {"result": {"error": {"type": "InvalidCase", "message": "no such flag"}}}, "invalid", "no such flag"),
        ("warm", {"ended": "timeout", "phase": "backend", "result": {}}, "timeout", "while it was compiled (warm)"),
        ("cold", {"ended": "memory", "phase": "eager", "result": {}, "detail": "too much"}, "memory", "too much, in eager (cold)"),
        ("cold", {"ended": "signal", "signal": "SIGSEGV", "phase": "timing", "result": {}}, "crash", "SIGSEGV"),
        ("cold", {"ended": "no-result", "exit_status": 3, "result": {}}, "crash", "exit status 3"),
        ("warm", {"ended": "broken", "detail": "no torch", "result": {}}, "broken", "no torch"),
    ],
)  # fmt: skip
def test_what_keeps_it_from_being_timed_is_the_reason(
    make: Callable[..., Planned], part: str, change: Mapping[str, Any], status: str, reason: str
) -> None:
    engine = Answering({part: change})
    row = measurer(engine).row(make())
    assert row.status == status and reason in row.reason and row.speedup is None
    assert [job.arguments["part"] for job in engine.jobs][-1] == part, "nothing is asked after it"
    assert (row.cold is not None) is (part == "warm")


@pytest.mark.parametrize(
    ("keys", "changes", "reason"),
    [
        ('requires: {torch: "<2"}', {}, "needs torch <2"),
        ("", {"device": "cuda"}, "built for the CPU alone"),
        ("", {"device": "meta"}, "nothing here times device meta"),
        ("", {"backend": Backend("triton", "triton")}, "launches no Triton kernel"),
    ],
)
def test_what_cannot_run_here_is_not_asked_for(
    make: Callable[..., Planned], keys: str, changes: dict[str, Any], reason: str
) -> None:
    engine = Answering()
    row = measurer(engine).row(make(keys, **changes))
    assert row.status == "skip" and reason in row.reason and not engine.jobs
