"""The screen of ``runner why``: what it says of the operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.diagnose.diagnosis import of_verdict
from runner.record.events import VariantFinished
from runner.report.why import Explanation, operator_of
from tests.handmade import finding, loaded, played, written


@pytest.mark.parametrize(
    ("steps", "text"), [(2, "torch.sin, torch.cos"), (7, "not found among the 7 operators of the case")]
)
def test_many_operators_are_no_answer(tmp_path: Path, steps: int, text: str) -> None:
    names = ["torch.sin", "torch.cos", "torch.tan", "torch.exp", "torch.neg", "torch.abs", "torch.tanh"][:steps]
    (variant,) = loaded(
        written(tmp_path, f"cases: [{{name: a, inputs: {{x: [3]}}, chain: {names}}}]".replace("'", ""))
    ).variants
    events = played([variant], ["2.13.0"], lambda variant, torch: finding("compile-error"))
    (event,) = (event for event in events if isinstance(event, VariantFinished))
    assert operator_of(Explanation(event, variant, of_verdict(event, variant))) == text
