"""Models that compile a part of themselves: what is eager then, and what a pass is worth."""

from __future__ import annotations

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
