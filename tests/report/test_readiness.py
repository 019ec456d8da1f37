"""How ready a backend is for a model, from the events of its operator calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.record.events import VariantFinished
from runner.report.readiness import Use, notes, operator_rows, page, readiness, red_calls, render, state_of

from .events_sample import finished

ACCURACY = {"path": "output", "eager": {"largest": 0.5}, "compiled": {"largest": 0.75}}
USES = {
    name: Use(name, operator, f"{operator}(float32[2])", uses)
    for name, operator, uses in (
        ("add", "torch.add", {"bert": 6, "gpt": 1}),
        ("gelu", "F.gelu", {"bert": 3}),
        ("sort", "torch.sort", {"gpt": 1}),
    )
}


def result(name: str, verdict: str, backend: str = "acme", **changes: Any) -> VariantFinished:
    event = finished(verdict, name)
    return replace(event, case=f"ops.spec.yaml::{name}", backend=backend, **changes)


EVENTS = [
    result("add", "PASS", accuracy=(ACCURACY,)),
    result(
        "gelu",
        "FAIL",
        accuracy=({**ACCURACY, "compiled": {"largest": 900.0}},),
        oracles=("value",),
        severity="wrong-result",
    ),
    result("sort", "ERROR", oracles=("compile-error",), severity="exception"),
]
REPORT = readiness(EVENTS, USES, {"bert": 1})


def test_calls_count_once_and_by_use() -> None:
    counts = REPORT.counts("bert", "acme")
    assert {key: counts[key] for key in ("distinct", "right", "wrong", "unsupported", "lost", "uses")} == {
        "distinct": 2, "right": 1, "wrong": 1, "unsupported": 0, "lost": 1, "uses": 10
    }  # fmt: skip
    assert counts["by_use"] == pytest.approx(0.6)


def test_a_call_that_no_case_holds_is_not_right() -> None:
    assert REPORT.counts("bert", "acme")["by_use"] < readiness(EVENTS, USES, {}).counts("bert", "acme")["by_use"]


def test_the_most_harmful_failure_stands_first_and_right_operators_last() -> None:
    assert [row.operator for row in operator_rows(REPORT)] == ["F.gelu", "torch.sort", "torch.add"]
    assert [call.use.case for call in red_calls(REPORT)] == ["gelu", "sort"]
    strides = result("gelu", "FAIL", oracles=("stride",), severity="metadata")
    crash = result("sort", "ERROR", oracles=("signal",), severity="crash")
    report = readiness([strides, crash, EVENTS[0]], USES, {})
    assert [row.operator for row in operator_rows(report)] == ["torch.sort", "F.gelu", "torch.add"]
    assert [call.use.case for call in red_calls(report)] == ["sort", "gelu"]
    cells = {row.operator: row.cells[0] for row in operator_rows(report)}
    assert (cells["F.gelu"], cells["torch.sort"]) == ("1 wrong (stride)", "1 unsupported (signal)")


def test_what_torch_computed_is_told_apart() -> None:
    events = [result("add", "PASS", delegated=0, delegable=1), result("gelu", "PASS", delegated=1, delegable=1)]
    report = readiness(events, USES, {})
    assert "2 right (1 computed by torch); 100.0 % by use are right, 33.3 % by its own code" in render(report)
    assert notes(report) == []
    assert notes(readiness(events[:1], USES, {}))[0].startswith("acme gave 1 of 1 right call back to torch")
    itself = readiness(events[1:], USES, {})
    assert "own code" not in render(itself) and "note" not in render(itself)


@pytest.mark.parametrize(("oracle", "count"), [("requires-grad", 1), ("grad", 1), ("value", 0)])
def test_gradients_of_a_backend_without_any_are_hinted_at(oracle: str, count: int) -> None:
    report = readiness([result("gelu", "FAIL", oracles=(oracle,), severity="metadata")], USES, {})
    assert len(notes(report)) == count and render(report).count("unclaimed: {gradients: true}") == count
    assert page(report).count("unclaimed") == count


def test_an_error_far_from_eagers_has_eagers_beside_it() -> None:
    cells = {row.operator: row.cells[0] for row in operator_rows(REPORT)}
    assert cells == {
        "F.gelu": "1 wrong (value), 900 ulp (eager 0.5)",
        "torch.add": "1 right, 0.75 ulp",
        "torch.sort": "1 unsupported (compile-error)",
    }


@pytest.mark.parametrize(
    ("verdict", "changes", "state"),
    [
        ("PASS", {}, "right"), ("XPASS", {}, "right"), ("FAIL", {}, "wrong"), ("ERROR", {}, "unsupported"),
        ("SKIP", {"unclaimed": "operator F.gelu"}, "unsupported"), ("SKIP", {}, "other"), ("FLAKY", {}, "other"),
        ("XFAIL", {"oracles": ("value",)}, "wrong"), ("XFAIL", {"oracles": ("compile-error",)}, "unsupported"),
    ],
)  # fmt: skip
def test_the_state_of_a_verdict(verdict: str, changes: Mapping[str, Any], state: str) -> None:
    assert state_of(replace(result("gelu", verdict), **changes)) == state


def test_the_text_and_the_page_have_a_sentence_for_each_model() -> None:
    sentence = "gpt under acme: of 2 distinct calls 1 right, 1 unsupported; 50.0 % by use are right"
    assert sentence in render(REPORT)
    assert sentence in page(REPORT)


def test_the_page_escapes_what_files_say() -> None:
    uses = {"gelu": replace(USES["gelu"], call="F.gelu(<script>)")}
    text = page(readiness(EVENTS[1:2], uses, {}))
    assert "<script>" not in text and r"\<script\>" in text


def test_the_same_backend_under_two_torches_is_two_columns() -> None:
    older = [replace(event, torch="2.6.0") for event in EVENTS]
    report = readiness([*EVENTS, *older], USES, {})
    assert report.backends() == [f"acme {EVENTS[0].torch}", "acme 2.6.0"]
    assert {report.counts("bert", backend)["distinct"] for backend in report.backends()} == {2}
