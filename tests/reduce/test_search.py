"""The search, with a judge that runs nothing: what it ends with, what it refuses, when it stops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeJudge, operators, reader, state, tensor

from runner.cases.model import Case
from runner.cases.serialize import plain
from runner.reduce.reducer import PASSES, Candidate, Search
from runner.reduce.state import State, size_of

# Twenty steps in a row; each value is called as the step's place says.
CHAIN = [
    "torch.sin",
    "torch.cos",
    "torch.relu",
    "torch.tanh",
    "torch.exp",
    "torch.neg",
    "torch.abs",
    "torch.sqrt",
    "torch.erf",
    "torch.ceil",
]
LONG = (
    "inputs: {x: [64, 64]}\nchain:\n"
    + "".join(f"  - {op}\n" for op in CHAIN)
    + "".join(f"  - {op.replace('torch', 'F') if op == 'torch.relu' else op}\n" for op in reversed(CHAIN))
)


class Run:
    """One search from a case; ``last`` is what it ended with."""

    def __init__(
        self, folder: Path, keys: str, fails: Callable[[Case], bool], seconds: float = 60.0, slots: int = 2
    ) -> None:
        self.judge = FakeJudge(fails, slots)
        self.steps: list[Candidate] = []
        value_infos = {f"v{n}": tensor(64, 64) for n in range(1, 30)} | {"x": tensor(64, 64)}
        self.first = state(folder, keys, value_infos)
        self.last = self.first
        self.search = Search(self.judge, reader(folder), PASSES, self.accept, time.monotonic() + seconds)
        self.complete = self.search.run(self.first)

    def accept(self, candidate: Candidate) -> State:
        assert size_of(candidate.attempt.data) < size_of(self.last.data)
        self.steps.append(candidate)
        value_infos = {f"v{n}": tensor(2) for n in range(1, 30)} | {"x": tensor(2)}
        self.last = State(candidate.variant.case, self.first.signature, lambda named: value_infos)
        return self.last


def has(*names: str) -> Callable[[Case], bool]:
    return lambda case: {*names} <= {*operators(case)}


def test_one_step_is_found_among_twenty(tmp_path: Path) -> None:
    run = Run(tmp_path, LONG, has("torch.erf"))
    assert operators(run.last.case) == ["torch.erf"]
    assert run.complete
    assert plain(run.last.case)["inputs"] == {"x": {"shape": [1], "init": "ones"}}
    assert run.search.runs < 40


def test_two_steps_that_only_fail_together(tmp_path: Path) -> None:
    run = Run(tmp_path, LONG, has("torch.relu", "F.relu"))
    assert operators(run.last.case) == ["torch.relu", "F.relu"]


def test_what_is_needed_in_order_stays_in_order(tmp_path: Path) -> None:
    def fails(case: Case) -> bool:
        names = operators(case)
        return "torch.exp" in names and "torch.neg" in names[names.index("torch.exp") :]

    assert operators(Run(tmp_path, LONG, fails).last.case) == ["torch.exp", "torch.neg"]


def test_without_anything_to_take_away_it_ends(tmp_path: Path) -> None:
    run = Run(tmp_path, "inputs: {x: [4]}\nchain: [torch.relu]", lambda case: False)
    assert run.complete and not run.steps
    assert run.last is run.first


def test_the_first_that_holds_is_taken_whatever_comes_back_first(tmp_path: Path) -> None:
    """With any number of slots the same steps are accepted: those tried beside them change nothing."""
    ends = []
    for slots in (1, 2, 7):
        run = Run(tmp_path, LONG, has("torch.erf"), slots=slots)
        ends.append([candidate.text for candidate in run.steps])
    assert ends[0] == ends[1] == ends[2]


def test_nothing_is_tried_twice(tmp_path: Path) -> None:
    run = Run(tmp_path, LONG, has("torch.erf"), slots=1)
    candidates = [str(plain(case)) for case in run.judge.started]
    assert len(candidates) == len(set(candidates)) == run.search.runs


def test_the_deadline_leaves_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def fails(case: Case) -> bool:
        now[0] += 1.0
        return "torch.erf" in operators(case)

    monkeypatch.setattr("runner.reduce.reducer.time.monotonic", lambda: now[0])
    run = Run(tmp_path, LONG, fails, seconds=6.0)
    assert not run.complete
    assert 1 < len(operators(run.last.case)) < 20
    assert "torch.erf" in operators(run.last.case)
    assert run.judge.stopped and not run.judge.waiting


def test_what_an_earlier_search_knew_is_not_tried_again(tmp_path: Path) -> None:
    first = Run(tmp_path, LONG, has("torch.erf"))
    later = Run(tmp_path, LONG, has("torch.erf"), seconds=-math.inf)
    later.search.verdicts = dict(first.search.verdicts)
    later.search.deadline = time.monotonic() + 60
    assert later.search.run(later.first)
    assert later.search.runs == 0
    assert [f.text for f in later.steps] == [f.text for f in first.steps]


def test_candidates_are_valid_cases(tmp_path: Path) -> None:
    """Blocks, functions, state, several outputs: everything that comes up reads and builds (the fake judge sees to names)."""
    keys = """
        inputs: {x: [4, 6], y: {shape: [4, 6], requires_grad: true}, ids: {values: [3, 1, 0], dtype: int64}}
        state: {seen: {shape: [6], init: zeros}}
        grad: backward
        train: true
        chain:
          - torch.chunk: [$x, 2, 1]
            out: [left, right]
          - nn.Linear: [3, 5]
            call: [$left]
            id: first
          - self.first: $right
            out: other
          - with: [torch.no_grad]
            chain:
              - torch.mean: {"*": [$y], dim: 0}
                out: self.seen
          - torch.vmap: [{$fn: {args: [row], chain: [torch.sin, {torch.mul: [$_, 2]}]}}]
          - operator.call: [$_, $other]
          - operator.getitem: [$_, "[$ids, 1:3]"]
            out: rows
          - operator.imul: [$rows, 2]
        return: {rows: $rows, other: [$other, "${x.shape[0]}"]}
        calls: [{}, {inputs: {x: [8, 6]}}]
        """
    run = Run(tmp_path, keys, has("torch.vmap"))
    assert "torch.vmap" in operators(run.last.case)
    assert len(operators(run.last.case)) < 4
    assert not run.last.case.calls and run.last.case.grad[0].mode != "backward"
