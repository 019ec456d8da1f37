"""The bisector with the judge as its question. The bugs are wrong decompositions: the quickest part that it can bisect."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import worker_jobs
from worker_jobs import HERE, run, source

from runner.contract.job import Job
from runner.worker.tasks import copies
from runner.worker.tasks.bisect import run_bisect
from runner.worker.tasks.copies import Answer, ask

DECOMPOSING = "aot_eager_decomp_partition"
SILU = torch.ops.aten.silu.default
SILU_BACKWARD = torch.ops.aten.silu_backward.default

# Hardswish before it, so that the guilty decomposition is not the first.
FORWARD = source("x = torch.nn.functional.hardswish(x)\nreturn torch.nn.functional.silu(x)")
TRAINED = source("return torch.nn.functional.silu(x)", inputs="torch.randn(4, 5, requires_grad=True)")
IN_PLACE = source("torch.nn.functional.silu(x, inplace=True)\nreturn x.sum()")


def job(
    text: str, backend: str = DECOMPOSING, signature: tuple[str, str, str] = ("value", "", ""), **fields: Any
) -> Job:
    arguments = {"wanted": [list(signature)], "seconds": 60, "budget": 200}
    values = {"source": text, "backend": {"backend": backend}, "threads": 1, "task": "bisect", "arguments": arguments}
    return worker_jobs.job(name="case", paths=[HERE], **{**values, **fields})


def bisected(text: str, signature: tuple[str, str, str], **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """The record, and what was said meanwhile."""
    phases: list[str] = []
    record = run_bisect(job(text, signature=signature, **fields), lambda message: phases.append(message["phase"]))
    assert record["error"] is None
    return record, phases


Plant = Callable[[Any, Callable[..., Any]], None]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Compile once before anything is forked: what is imported then is not imported by each copy."""
    run(TRAINED, DECOMPOSING, grad={"mode": "backward"}, threads=1)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """Replaces the decomposition of an operator."""
    from torch._inductor import decomposition

    def put(operator: Any, function: Callable[..., Any]) -> None:
        monkeypatch.setitem(decomposition.decompositions, operator, function)

    cached = getattr(decomposition.fast_random_decomps, "cache_clear", lambda: None)
    cached()
    yield put
    cached()


def wrong(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x) + 1


def padded(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.sigmoid(x)).t().contiguous().t()


def raising(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such thing as arg7_1")


def wrong_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * 2


def crashing(x: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(0)
    return x


def stuck(x: torch.Tensor) -> torch.Tensor:
    time.sleep(600)
    return x


@pytest.mark.parametrize(
    ("text", "operator", "bug", "signature", "fields"),
    [
        (FORWARD, SILU, wrong, ("value", "", ""), {}),
        (FORWARD, SILU, padded, ("stride", "", ""), {}),
        (FORWARD, SILU, crashing, ("signal", "SIGSEGV", ""), {}),
        (IN_PLACE, SILU, wrong, ("mutation", "", ""), {}),
        (TRAINED, SILU_BACKWARD, wrong_backward, ("grad", "", ""), {"grad": {"mode": "backward"}}),
    ],
    ids=["value", "stride", "segfault", "mutation", "gradient"],
)
def test_any_oracle_can_be_bisected(
    plant: Plant, text: str, operator: Any, bug: Callable[..., Any], signature: tuple[str, str, str], fields: dict[str, Any]
) -> None:  # fmt: skip
    plant(operator, bug)
    record, _ = bisected(text, signature, **fields)
    culprit = record["culprit"]
    assert culprit is not None, record
    assert (culprit["backend"], culprit["subsystem"], culprit["name"]) == (DECOMPOSING, "decomposition", str(operator))
    assert isinstance(culprit["number"], int) and record["note"] == ""
    assert "silu" in text.split("\n")[culprit["line"] - 1]


@pytest.mark.parametrize("lost", [1, 3])
def test_a_copy_that_is_lost_is_made_again(plant: Plant, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    plant(SILU_BACKWARD, wrong_backward)
    calls: list[int] = []

    def ask_and_lose(judged: Any, seconds: float) -> Answer:
        calls.append(1)
        return Answer(phase="backend") if len(calls) == lost else ask(judged, seconds)

    monkeypatch.setattr(copies, "ask", ask_and_lose)
    record, _ = bisected(TRAINED, ("grad", "", ""), grad={"mode": "backward"})
    assert record["culprit"] is not None and record["culprit"]["name"] == str(SILU_BACKWARD), record
    assert len(calls) == record["runs"] + 1


def test_what_raises_is_known_by_its_class_and_its_words(plant: Plant) -> None:
    plant(SILU, raising)
    name = "BackendCompilerFailed"
    record, _ = bisected(FORWARD, ("compile-error", name, "RuntimeError: no such thing as argN_N"))
    assert record["culprit"]["name"] == str(SILU)
    record, _ = bisected(FORWARD, ("compile-error", name, "RuntimeError: no such thing"))
    assert record["culprit"] is None


def test_another_failure_is_not_followed(plant: Plant) -> None:
    plant(SILU, wrong)
    record, _ = bisected(FORWARD, ("stride", "", ""))
    assert record["culprit"] is None and record["runs"] == 1
    assert record["note"] == "under the bisector the failure did not show in 1 run"


def test_without_a_bug_there_is_nothing_to_find() -> None:
    record, phases = bisected(FORWARD, ("value", "", ""))
    assert record["culprit"] is None and "did not show" in record["note"]
    assert phases == ["backend", f"bisecting {DECOMPOSING}, run 1: as it is"]


def test_a_hang_is_an_answer(plant: Plant) -> None:
    plant(SILU, stuck)
    answer = ask(job(FORWARD, task="judge"), 4)
    assert answer.death()["oracle"] == "timeout"


def test_when_time_is_up_what_is_known_counts(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(SILU, wrong)
    texts: list[str] = []
    real = copies.Question.is_right

    def ask_twice(self: Any, text: str) -> bool:
        texts.append(text)
        if text == "decomposition":
            self._end = 0
        return real(self, text)

    monkeypatch.setattr(copies.Question, "is_right", ask_twice)
    record, _ = bisected(FORWARD, ("value", "", ""))
    assert record["culprit"]["subsystem"] == "decomposition" and record["culprit"]["number"] is None
    assert "the time for bisecting was up" in record["note"]
    assert texts[-1] == "decomposition"


def test_a_case_that_cannot_be_judged_ends_it() -> None:
    record, _ = bisected(source("return x.no_such_method()"), ("value", "", ""))
    assert record["culprit"] is None and "could not be judged: eager raised AttributeError" in record["note"]


@pytest.mark.parametrize(
    ("backend", "seconds", "expected"),
    [
        ("segfaults", 60, ("signal", "SIGSEGV")),
        ("aborts", 60, ("signal", "SIGABRT")),
        ("exits_silently", 60, ("runtime-error", "NoResult")),
        ("hangs", 4, ("timeout", "Timeout")),
    ],
)
def test_the_end_of_a_copy_is_a_finding(backend: str, seconds: float, expected: tuple[str, str]) -> None:
    answer = ask(job(FORWARD, f"runner.worker.planted:{backend}", task="judge"), seconds)
    finding = answer.death()
    assert not answer.record and (finding["oracle"], finding["error"]["type"]) == expected


def test_a_copy_that_is_well_says_its_record() -> None:
    answer = ask(job(FORWARD, "runner.worker.planted:clean", task="judge"), 60)
    assert answer.record["findings"] == [] and answer.record["trust"] is None and answer.status == 0


def test_the_death_of_eager_is_not_what_is_looked_for() -> None:
    answer = ask(job(source("import os; os.abort()"), "runner.worker.planted:clean", task="judge"), 60)
    assert answer.death()["oracle"] == "invalid"


def test_neither_caches_nor_processes_are_left(plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    (cache / "bisect").mkdir(parents=True)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plant(SILU, wrong)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    processes = children.read_text()
    bisected(FORWARD, ("value", "", ""))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(cache)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"] and (cache / "bisect").is_dir()
    assert children.read_text() == processes
