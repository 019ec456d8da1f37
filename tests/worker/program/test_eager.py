"""What is eager of a model that compiles a part of itself, and of one that draws random numbers."""

from __future__ import annotations

import ast
from pathlib import Path

import planted
import pytest
from worker_jobs import oracles, passes, run, source

WRONG = "relu_accuracy_error_TESTING_ONLY"
COMPILED = f"@torch.compile(backend='{WRONG}')\ndef relu(x):\n    return torch.relu(x)\n"
MADE = f"self.relu = torch.compile(Relu(), backend='{WRONG}')"
RELU = "class Relu(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
CONDITION = "torch.cond(x.sum() > 0, lambda a: a @ self.w, lambda a: a.cos() @ self.w, (x,))"


@pytest.mark.parametrize(
    "text",
    [
        source("return relu(x) + 1", definitions=COMPILED),
        source("return self.relu(x) + 1", init=MADE, definitions=RELU),
        source(
            "return torch.relu(x) + 1", definitions=f"Model.forward = torch.compile(Model.forward, backend='{WRONG}')"
        ),
    ],
    ids=["function", "module", "forward"],
)
def test_eager_is_eager_though_the_model_compiles_a_part_of_itself(text: str) -> None:
    record = run(text, WRONG)
    assert oracles(record) == ["value"], record
    assert any("compiles a part of itself" in note for note in record["notes"])
    assert passes(run(text, "eager"))


def test_what_a_model_computes_as_it_is_made_is_eager_too() -> None:
    text = source("return x * self.b", init="self.register_buffer('b', relu(torch.randn(5)))", definitions=COMPILED)
    assert passes(run(text, "eager"))


def test_operators_that_dynamo_traces_by_themselves_are_no_compilation() -> None:
    init = "self.w = torch.nn.Parameter(torch.randn(5, 5))"
    record = run(source(f"return {CONDITION}", init=init), "eager")
    assert passes(record) and record["notes"] == []


def test_eager_that_cannot_do_without_compiled_code_is_no_reference() -> None:
    """Without Dynamo the closures of ``torch.cond`` have no gradient."""
    init = "self.w = torch.nn.Parameter(torch.randn(5, 5))"
    record = run(source(f"return relu({CONDITION})", init=init, definitions=COMPILED.replace(WRONG, "eager")), "eager")
    assert record["trust"] == {
        "verdict": "VACUOUS", "reason": "eager is no reference: it ran compiled code (relu)", "error": None
    }  # fmt: skip


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
