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


OTHERS = """cases:
  - name: a
    inputs: {x: [4], y: [4]}
    state: {c: {shape: [4], init: zeros}}
    chain: [{torch.sin: $x, out: s}, torch.cos, {torch.add: [$_, $y]}, {torch.mul: [$_, $self.c]}, {torch.add: [$_, $s]}]
"""


def at(*paths: str, oracle: str = "value") -> dict[str, Any]:
    return {"findings": [{"oracle": oracle, "message": "it differs", "path": path} for path in paths]}


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (at("output[2]", "output[0]", "output[3]"), "of F.gelu"),
        (at("output[1][0]", "output[2]"), "of torch.sort"),
        (at("output[3]"), "of operator.mul"),
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


DEATH = {"ended": "signal", "signal": "SIGSEGV", "phase": "backend"}


@pytest.mark.parametrize("steps", [{}, at("output[0]", oracle="stride"), DEATH])
@pytest.mark.parametrize(
    ("wrong_after", "asked", "name"),
    [
        (1, ["first-2", "first-1"], "of F.gelu"),
        (2, ["first-2", "first-1"], "of torch.sort"),
        (3, ["first-2", "first-3"], "of nn.Linear"),
        (4, ["first-2", "first-3"], "of operator.mul"),
        (0, ["first-2"], "somewhere before operator.mul"),
    ],
)
def test_where_no_step_differs_the_chain_is_cut_short(
    tmp_path: Path, steps: dict[str, Any], wrong_after: int, asked: list[str], name: str
) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        if not purpose.startswith("first-"):
            return at("output") if purpose == "main" else steps if purpose == "steps" else {}
        return at("output[0]") if int(purpose[6:]) >= wrong_after > 0 else {} if wrong_after else DEATH

    _, engine, events = run(chosen(tmp_path), script)
    assert verdicts(events)[0].signature == f"value {name} at inductor"
    jobs = {purpose: job.source for job in engine.jobs if (purpose := job.key.rpartition(" ")[2]).startswith("first-")}
    assert [*jobs] == asked
    assert "torch.sort" in jobs["first-2"] and "mul" not in jobs["first-2"]
    assert "return [[s, value_1]]" in jobs["first-2"]


def test_what_later_steps_use_alone_is_returned_by_a_chain_that_is_cut_short(tmp_path: Path) -> None:
    failing = {"main": at("output"), "first-3": at("output[0]")}
    chosen = [*loaded(written(tmp_path, OTHERS)).variants]
    _, engine, events = run(chosen, lambda job, purpose: failing.get(purpose, {}))
    assert verdicts(events)[0].signature == "value of torch.add at inductor"
    sources = {job.key.rpartition(" ")[2]: job.source for job in engine.jobs}
    assert "return [value_1, self.c]" in sources["first-3"]
    assert "h = torch.sin(x)\n        value_0 = torch.cos(h)\n        return [value_0, y, self.c]" in sources["first-2"]


def test_one_step_is_not_looked_at(tmp_path: Path) -> None:
    _, engine, events = run(chosen(tmp_path, "F.gelu"), lambda job, purpose: at("output") if purpose == "main" else {})
    assert engine.asked()[-1][0] not in ("steps", "first-1")
    assert verdicts(events)[0].signature == "value of F.gelu at inductor"


@pytest.mark.parametrize(("wrong_after", "name"), [(1, "torch.neg"), (2, "torch.add"), (3, "operator.mul")])
def test_a_chain_that_writes_is_cut_short(tmp_path: Path, wrong_after: int, name: str) -> None:
    script = {"main": at("output")} | {f"first-{count}": at("output[0]") for count in range(wrong_after, 3)}
    variants = chosen(tmp_path, "{torch.neg: $x}, {Tensor.add_: [$_, 1]}, {operator.mul: [$_, 2]}")
    _, engine, events = run(variants, lambda job, purpose: script.get(purpose, {}))
    assert not any(job.key.endswith(" steps") for job in engine.jobs)
    assert verdicts(events)[0].signature == f"value of {name} at inductor"


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


@pytest.mark.parametrize("is_named", [True, False])
def test_a_caller_that_asks_for_no_operator_starts_no_run_for_it(tmp_path: Path, is_named: bool) -> None:
    script = {"main": at("output"), "steps": at("output[0]")}
    variants = chosen(tmp_path)
    _, engine, events = run(variants, lambda job, purpose: script.get(purpose, {}), names_operator=is_named)
    assert any(job.key.endswith(" steps") for job in engine.jobs) is is_named
    assert verdicts(events)[0].verdict == "FAIL"
