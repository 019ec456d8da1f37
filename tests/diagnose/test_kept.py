"""What is asked about a failure is kept as it is answered, and a later command goes on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Backend, Variant
from runner.contract.job import Job
from runner.diagnose import kept
from runner.diagnose.harness import VariantEngine
from runner.diagnose.kept import INTERRUPTED, OUT_OF_TIME, OutOfTime, gather
from runner.engine.fingerprint import Fingerprint
from runner.engine.messages import Outcome
from tests.handmade import environment, variants

CLEAN = {"findings": [], "compared": 3}
PARTIAL = {"operators": [], "within": [3, 6], "calls": 20, "runs": 4, "alone": None, "confirmed": None, "note": ""}


class ScriptedEngine:
    """Answers judging jobs at once, and a cut never: it only says what it knows."""

    def __init__(self) -> None:
        self.submitted: list[Job] = []
        self._ended: list[Outcome] = []
        self.cancelled = 0

    def submit(self, job: Job) -> None:
        self.submitted.append(job)
        if job.task == "judge":
            self._ended.append(Outcome(job=job, ended="result", seconds=1.0, result=CLEAN))

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        ended, self._ended = self._ended, []
        return ended

    def known(self) -> Mapping[str, Mapping[str, Any]]:
        cuts = [job for job in self.submitted if job.task == "cut"]
        return {job.key: {"answers": {"calls": 20, "[[[0, 10]], false]": True}, "result": PARTIAL} for job in cuts}

    def cancel_all(self) -> list[Job]:
        self.cancelled += 1
        return []

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def one_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(kept, "take_fingerprints", lambda pythons: dict.fromkeys(pythons, Fingerprint("one torch")))


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    return variants(tmp_path, "")[0]


def engine_of(variant: Variant) -> tuple[VariantEngine, ScriptedEngine]:
    engine = VariantEngine(variant, environment())
    scripted = ScriptedEngine()
    engine.local_engine = scripted  # type: ignore[assignment]
    return engine, scripted


def ticks(*raised: BaseException | None) -> Iterator[None]:
    for error in raised:
        if error is not None:
            raise error
        yield None


def foreign(variant: Variant) -> Variant:
    return replace(variant, backend=Backend("mine", "mine:compile_graph"))


def asked(engine: VariantEngine, budget: float = 60.0) -> list[Job]:
    return [engine.job("cut", {"wanted": [["value", "", ""]], "budget": budget}), engine.job(config={"a": 1})]


@pytest.mark.parametrize(("raised", "reason"), [(OutOfTime(), OUT_OF_TIME), (KeyboardInterrupt(), INTERRUPTED)])
def test_what_was_answered_before_the_end_is_returned(variant: Variant, raised: BaseException, reason: str) -> None:
    engine, scripted = engine_of(foreign(variant))
    clock = ticks(None, raised)
    gathered = gather(engine, asked(engine), lambda: next(clock))
    assert gathered.stopped == reason and scripted.cancelled == 1
    cut, judged = gathered.outcomes
    assert cut is not None and cut.result == {**PARTIAL, "note": reason}
    assert judged is not None and judged.result == CLEAN


def test_a_later_search_is_guided_by_what_was_answered(variant: Variant) -> None:
    engine, scripted = engine_of(foreign(variant))
    clock = ticks(None, OutOfTime())
    gather(engine, asked(engine), lambda: next(clock))
    assert scripted.submitted[0].arguments["answers"] == {}
    engine, scripted = engine_of(foreign(variant))
    clock = ticks(None, OutOfTime())
    gather(engine, asked(engine, budget=30.0), lambda: next(clock))
    assert scripted.submitted[0].arguments["answers"] == {"calls": 20, "[[[0, 10]], false]": True}
    engine, scripted = engine_of(replace(foreign(variant), dtype="float64"))
    clock = ticks(None, OutOfTime())
    gather(engine, asked(engine), lambda: next(clock))
    assert scripted.submitted[0].arguments["answers"] == {}, "another variant"


@pytest.mark.parametrize(("backend", "count"), [("inductor", 0), ("mine:compile_graph", 1)])
def test_only_what_the_key_names_whole_is_not_asked_again(variant: Variant, backend: str, count: int) -> None:
    variant = replace(variant, backend=Backend(backend, backend))
    results: list[Sequence[Outcome | None]] = []
    for expected in (1, count):
        engine, scripted = engine_of(variant)
        results.append(gather(engine, [engine.job(config={"a": 1})], lambda: None).outcomes)
        assert len(scripted.submitted) == expected
    assert [outcome.result for (outcome,) in results if outcome is not None] == [CLEAN, CLEAN]
