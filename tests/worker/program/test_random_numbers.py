"""Eager's random numbers: for cases whose calls draw, in every task that compiles, and for no other case."""

from __future__ import annotations

import ast
from pathlib import Path

import planted
import pytest
from worker_jobs import oracles, passes, run, source

FLAG = "torch._inductor.config.fallback_random"
TASKS = Path(__file__).parents[3] / "runner" / "worker" / "tasks"

BACKWARD = """
class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        return grad + torch.rand(3)
"""
SECOND = "CALLS = [make_inputs, lambda: [torch.ones(7)]]"

DRAWING = {
    "in the forward": (source("return x + torch.rand(4, 5)"), {}),
    "in the backward alone": (
        source("return Noisy.apply(x)", "torch.ones(3, requires_grad=True)", definitions=BACKWARD),
        {"grad": {"mode": "backward"}},
    ),
    "in the second call alone": (source("return torch.rand(7) if x.dim() == 1 else x + 1", definitions=SECOND), {}),
    "and then it raises": (
        source("x = x + torch.rand(4, 5)\nreturn x[(x * 0).long() + 99]"),
        {"expect": {"raises": {"type": "IndexError", "match": None}}},
    ),
}
STILL = {
    "nothing": (source("return x + 1"), {}),
    "inputs alone": (source("return x + 1", "torch.rand(3)"), {}),
    "the model's parameters alone": (
        source("return self.w + x", init="self.w = torch.nn.Parameter(torch.randn(5))"),
        {},
    ),
    "by Python": (source("import random\nreturn x + random.random()"), {}),
    "a backward that nobody runs": (
        source("return Noisy.apply(x)", "torch.ones(3, requires_grad=True)", definitions=BACKWARD),
        {"grad": {"mode": "forward"}},
    ),
}


def seen(text: str, **fields: object) -> set[bool]:
    planted.FLAGS_SEEN.clear()
    run(text, "planted:notes_random", **fields)
    return set(planted.FLAGS_SEEN)


@pytest.mark.parametrize("name", DRAWING)
def test_a_case_that_draws_gets_eagers_numbers(name: str) -> None:
    text, fields = DRAWING[name]
    assert seen(text, **fields) == {True}
    assert run(text, **fields)["drew_random"] is True


@pytest.mark.parametrize("name", STILL)
def test_a_case_that_draws_nothing_runs_as_for_a_user(name: str) -> None:
    text, fields = STILL[name]
    assert seen(text, **fields) <= {False}
    assert run(text, **fields)["drew_random"] is False


@pytest.mark.parametrize("own", [True, False])
def test_the_case_s_own_word_wins(own: bool) -> None:
    for text in (source("return x + torch.rand(4, 5)"), source("return x + 1")):
        assert seen(text, config={FLAG: own}) == {own}


def test_a_defect_that_the_flag_hides_is_seen() -> None:
    backend = "planted:wrong_without_eagers_numbers"
    assert oracles(run(source("return x + 1"), backend)) == ["value"]
    assert passes(run(source("return x + torch.rand(4, 5)"), backend))
    assert passes(run(source("return x + 1"), backend, config={FLAG: True}))


def test_a_generator_that_moves_for_nothing_moves_under_eagers_numbers_no_more() -> None:
    text = source("return x + 1, torch.rand(0)")
    assert oracles(run(text, "planted:draws_by_itself")) == ["rng"]
    assert passes(run(text, "planted:draws_by_itself", config={FLAG: True}))


@pytest.mark.parametrize("task", ["picture", "explain", "debug"])
def test_other_tasks_compile_as_the_judged_run_does(task: str, tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path), "function": None, "artifacts": []}
    for text, expected in ((source("return x + torch.rand(4, 5)"), True), (source("return x + 1"), False)):
        assert seen(text, task=task, arguments=arguments) == {expected}


def test_no_task_compiles_a_case_without_asking_eager() -> None:
    asking = {"settings_of_judged_run", "observe_backend", "judge_job"}
    for path in TASKS.glob("*.py"):
        names = {node.attr if isinstance(node, ast.Attribute) else node.id for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Attribute | ast.Name)}  # fmt: skip
        compiles = "backends" in names and "build" in names
        assert not compiles or asking & names or path.name == "benchmark.py", path.name
