"""What the bisector is told to look for, and what its answer means. The bisecting itself: ``tests/worker/tasks/test_bisect.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.contract.job import Job
from runner.diagnose.diagnosis import (
    BUDGET,
    HANG_SECONDS,
    SECONDS,
    Bisected,
    Culprit,
    bisection_job,
    read_bisection,
    whole_stage,
)
from runner.diagnose.harness import VariantEngine
from runner.engine.messages import Outcome
from runner.verdict.signature import FailureSignature
from tests.handmade import environment, finding, loaded, variants, written


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
    found = bisection_job(engine, FailureSignature("value", "backend"), {})
    assert isinstance(found, Bisected) and found.culprit is None and "own backends alone" in found.note


def test_inductor_is_bisected_for_the_failure_itself(engine: VariantEngine) -> None:
    job = asked(
        bisection_job(engine, FailureSignature("compile-error", "inductor", "InductorError", "KeyError: N"), {})
    )
    assert job.task == "bisect" and job.backend["backend"] == "inductor"
    assert job.arguments == {
        "wanted": [["compile-error", "InductorError", "KeyError: N"]],
        "seconds": SECONDS,
        "budget": BUDGET,
    }
    assert job.timeout > BUDGET + SECONDS


def test_a_hang_gets_less_time_for_each_answer(engine: VariantEngine) -> None:
    job = asked(bisection_job(engine, FailureSignature("timeout", "inductor", "Timeout"), {}))
    assert job.arguments["seconds"] == HANG_SECONDS


def test_a_lower_stage_is_bisected_for_what_its_own_backend_shows(engine: VariantEngine) -> None:
    shown = [finding("value", None), finding("runtime-error", None, "KeyError", message="'x'"), finding("stride", None)]
    signature = FailureSignature("compile-error", "decomposition", "InductorError", "KeyError: '…'")
    job = asked(bisection_job(engine, signature, {"decomposition": shown}))
    assert job.backend["backend"] == "aot_eager_decomp_partition"
    assert job.arguments["wanted"] == [["runtime-error", "KeyError", "'…'"]]  # the one of its kind
    found = bisection_job(engine, signature, {"decomposition": shown[:1]})
    assert isinstance(found, Bisected) and found.culprit is None and "does not show under" in found.note


def test_reading_an_answer(engine: VariantEngine) -> None:
    job = asked(bisection_job(engine, FailureSignature("value", "inductor"), {}))
    culprit = {"backend": "inductor", "subsystem": "lowerings", "number": 1, "name": "relu", "operator": None}
    case, source = engine.variant.case, engine.source
    found = read_bisection(Outcome(job, "result", 1.0, result={"culprit": culprit, "note": ""}), case, source)
    assert found == Bisected(Culprit("inductor", "lowerings", 1, "relu"))
    found = read_bisection(Outcome(job, "result", 1.0, result={"culprit": None, "note": "why"}), case, source)
    assert found == Bisected(None, "why")


CASE = """\
cases:
  - name: a
    inputs: {x: [4, 8]}
    chain:
      - torch.sin
      - F.relu
      - {if: "${x.shape[0] == 7}", do: [torch.cos], else: [torch.relu, torch.tanh]}
"""


@pytest.mark.parametrize(
    ("call", "step"),
    [("F.relu", "relu, the first of two"), ("torch.relu", "relu, the second of two"), ("torch.tanh", "tanh")],
)
def test_the_step_of_a_line(tmp_path: Path, call: str, step: str) -> None:
    variant = loaded(written(tmp_path, CASE)).variants[0]
    with VariantEngine(variant, environment()) as engine:
        line = next(n for n, text in enumerate(engine.source.text.split("\n"), 1) if call in text)
        culprit = {
            "backend": "inductor",
            "subsystem": "lowerings",
            "number": 1,
            "name": "x",
            "operator": None,
            "line": line,
        }
        job = asked(bisection_job(engine, FailureSignature("value", "inductor"), {}))
        found = read_bisection(
            Outcome(job, "result", 1.0, result={"culprit": culprit}), variant.case, engine.source
        ).culprit
    assert found is not None and found.step == step
    lines = Path(variant.case.file).read_text().split("\n")
    assert call in lines[int(str(found.place).rpartition(":")[2]) - 1]


def test_a_bisecting_process_that_dies_is_said(engine: VariantEngine) -> None:
    job = asked(bisection_job(engine, FailureSignature("value", "inductor"), {}))
    found = read_bisection(Outcome(job, "signal", 1.0, "backend", signal="SIGSEGV"), engine.variant.case, engine.source)
    assert found.culprit is None and found.note == "bisecting failed: the process was ended by SIGSEGV"
