"""At which operator a wrong value enters: the values of all steps are looked at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Variant
from runner.contract.job import Job
from tests.handmade import loaded, written
from tests.scripted import run, verdicts, wrong

TEXT = """cases:
  - name: a
    inputs: {x: [4]}
    chain: [%s]
"""
GELU = "{F.gelu: $x}, {torch.sort: $_, out: [s, _]}, {nn.Linear: [4, 2], call: [$s]}, {operator.mul: [$_, 2]}"


def chosen(folder: Path, chain: str = GELU) -> list[Variant]:
    return [*loaded(written(folder, TEXT % chain)).variants]


def at(*paths: str, oracle: str = "value") -> dict[str, Any]:
    return {"findings": [{"oracle": oracle, "message": "it differs", "path": path} for path in paths]}


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (at("output[2]", "output[0]", "output[3]"), "of F.gelu"),
        (at("output[1][0]", "output[2]"), "of torch.sort"),
        (at("output[3]"), "of operator.mul"),
        ({}, "somewhere before operator.mul"),
        (at("output[0]", oracle="stride"), "somewhere before operator.mul"),
        ({"ended": "signal", "signal": "SIGSEGV", "phase": "backend"}, "somewhere before operator.mul"),
    ],
)
def test_the_first_step_that_differs_is_named(tmp_path: Path, steps: dict[str, Any], name: str) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return at("output") if purpose == "main" else steps if purpose == "steps" else {}

    _, engine, events = run(chosen(tmp_path), script)
    (event,) = verdicts(events)
    assert event.signature == f"value {name} at inductor"
    (job,) = (job for job in engine.jobs if job.key.endswith(" steps"))
    assert "return [value_0, [s, value_1], value_2, value_3]" in job.source


@pytest.mark.parametrize("chain", ["F.gelu", "{torch.neg: $x}, {Tensor.add_: [$_, 1]}, {operator.mul: [$_, 2]}"])
def test_one_step_and_steps_that_write_are_not_looked_at(tmp_path: Path, chain: str) -> None:
    _, engine, events = run(chosen(tmp_path, chain), lambda job, purpose: at("output") if purpose == "main" else {})
    assert not any(job.key.endswith(" steps") for job in engine.jobs)
    named = "of F.gelu" if chain == "F.gelu" else "somewhere before operator.mul"
    assert verdicts(events)[0].signature == f"value {named} at inductor"


def test_a_gradient_is_not_named_after_the_operator_that_takes_the_input(tmp_path: Path) -> None:
    script = at("gradient of x", oracle="grad")
    (event,) = verdicts(run(chosen(tmp_path), lambda job, purpose: script if purpose == "main" else {})[2])
    assert event.signature == "grad somewhere behind F.gelu at inductor"


def test_what_does_not_fail_and_what_is_known_is_not_looked_at(tmp_path: Path) -> None:
    _, engine, _ = run(chosen(tmp_path), lambda job, purpose: wrong("stride") if purpose == "main" else {})
    assert not any(job.key.endswith(" steps") for job in engine.jobs)
    text = TEXT % GELU + "    known:\n      - {oracle: [value], reason: known}\n"
    known = [*loaded(written(tmp_path, text)).variants]
    _, engine, events = run(known, lambda job, purpose: wrong() if purpose == "main" else {})
    assert verdicts(events)[0].verdict == "XFAIL"
    assert not any(job.key.endswith(" steps") for job in engine.jobs)
