"""What the bisector is told to look for, and what its answer means. The bisecting itself: ``tests/worker/tasks/test_bisect.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.diagnose.bisect import BUDGET, HANG_SECONDS, SECONDS, Bisected, read, task, whole_stage
from runner.diagnose.diagnosis import Culprit
from runner.diagnose.harness import VariantEngine
from runner.engine.messages import Job, Outcome
from runner.verdict.signature import FailureSignature
from tests.handmade import environment, finding, variants


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[VariantEngine]:
    with VariantEngine(variants(tmp_path, "")[0], environment()) as made:
        yield made


def asked(made: Job | Bisected) -> Job:
    assert isinstance(made, Job)
    return made


@pytest.mark.parametrize(("stage", "backend"), [("dynamo", "eager"), ("aot", "aot_eager")])
def test_a_stage_without_parts_is_the_answer(stage: str, backend: str) -> None:
    found = whole_stage(FailureSignature("value", stage))
    assert found is not None and found.culprit == Culprit(backend) and "cannot switch off" in found.note


def test_of_a_custom_backend_nothing_can_be_switched_off(engine: VariantEngine) -> None:
    found = task(engine, FailureSignature("value", "backend"), {})
    assert isinstance(found, Bisected) and found.culprit is None and "own backends alone" in found.note


def test_inductor_is_bisected_for_the_failure_itself(engine: VariantEngine) -> None:
    job = asked(task(engine, FailureSignature("compile-error", "inductor", "InductorError", "KeyError: N"), {}))
    assert job.task == "bisect" and job.backend["backend"] == "inductor"
    assert job.arguments == {
        "wanted": [["compile-error", "InductorError", "KeyError: N"]],
        "seconds": SECONDS,
        "budget": BUDGET,
    }
    assert job.timeout > BUDGET + SECONDS


def test_a_hang_gets_less_time_for_each_answer(engine: VariantEngine) -> None:
    job = asked(task(engine, FailureSignature("timeout", "inductor", "Timeout"), {}))
    assert job.arguments["seconds"] == HANG_SECONDS


def test_a_lower_stage_is_bisected_for_what_its_own_backend_shows(engine: VariantEngine) -> None:
    shown = [finding("value", None), finding("runtime-error", None, "KeyError", message="'x'"), finding("stride", None)]
    signature = FailureSignature("compile-error", "decomposition", "InductorError", "KeyError: '…'")
    job = asked(task(engine, signature, {"decomposition": shown}))
    assert job.backend["backend"] == "aot_eager_decomp_partition"
    assert job.arguments["wanted"] == [["runtime-error", "KeyError", "'…'"]]  # the one of its kind
    found = task(engine, signature, {"decomposition": shown[:1]})
    assert isinstance(found, Bisected) and found.culprit is None and "does not show under" in found.note


def test_reading_an_answer(engine: VariantEngine) -> None:
    job = asked(task(engine, FailureSignature("value", "inductor"), {}))
    culprit = {"backend": "inductor", "subsystem": "lowerings", "number": 1, "name": "relu", "operator": None}
    found = read(Outcome(job, "result", 1.0, result={"culprit": culprit, "note": ""}))
    assert found == Bisected(Culprit("inductor", "lowerings", 1, "relu"))
    assert read(Outcome(job, "result", 1.0, result={"culprit": None, "note": "why"})) == Bisected(None, "why")


def test_a_bisecting_process_that_dies_is_said(engine: VariantEngine) -> None:
    job = asked(task(engine, FailureSignature("value", "inductor"), {}))
    found = read(Outcome(job, "signal", 1.0, "backend", signal="SIGSEGV"))
    assert found.culprit is None and found.note == "bisecting failed: the process was ended by SIGSEGV"
