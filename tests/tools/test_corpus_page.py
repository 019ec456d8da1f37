"""tools/corpus_page.py: when a run says of a row what the corpus says, and what the page makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.contract.finding import Finding
from runner.record.events import VariantFinished, to_json
from tests.report.events_sample import finished, started
from tests.script_modules import script_module

page = script_module("corpus_page")


def row(
    kind: str = "silent", diverges: bool = True, cls: str = "numeric", number: str = "1", **fields: object
) -> object:
    data = {"expect_diverge": {"2.13.0": diverges}, "stage": "inductor", **fields}
    return page.Row(number, "https://github.com/a/b/issues/1", kind, cls, data)


def result(verdict: str, *findings: tuple[str, str], **fields: object) -> VariantFinished:
    every = tuple(Finding(oracle, "it differs", "output", stage=stage) for oracle, stage in findings)
    return finished(verdict, "a", file="a.spec.yaml", findings=every, **fields)


@pytest.mark.parametrize(
    ("entry", "outcome", "oracle", "ok", "remark"),
    [
        (row(), result("FAIL", ("value", "inductor")), True, True, ""),
        (row(), result("FAIL", ("value", "decomposition")), True, True, ""),
        (row(), result("FAIL", ("value", "dynamo")), True, False, ""),
        (row(), result("FAIL", ("stride", "inductor")), False, False, ""),
        (row(), result("PASS"), False, False, ""),
        (row(), result("FLAKY", ("value", "inductor")), False, False, "FLAKY"),
        (row(), None, False, False, "not run"),
        (row(cls="grad"), result("FAIL", ("value", "inductor")), False, False, ""),
        (row(cls="grad", number="136662"), result("FAIL", ("value", "inductor")), True, True, ""),
        (row(number="150083"), result("FAIL", ("value", "dynamo")), True, True, "note"),
        (row(number="156788"), result("PASS", labels=("unspecified",)), False, True, ""),
        (row(number="156788"), result("PASS"), False, False, ""),
        (row(diverges=False), result("PASS"), False, True, ""),
        (row(diverges=False), result("FAIL", ("value", "inductor")), False, False, ""),
        (row("control", False), result("PASS"), False, True, ""),
        (row("control", False), result("FAIL", ("missing-error", "dynamo")), False, False, ""),
        (row("control", False, diff_kinds=["raise"]), result("FAIL", ("missing-error", "dynamo")), False, True, ""),
        (row("control", False, diff_kinds=["raise"]), result("FAIL", ("value", "dynamo")), False, False, ""),
    ],
)
def test_when_a_run_says_what_a_row_says(
    entry: object, outcome: VariantFinished | None, oracle: bool, ok: bool, remark: str
) -> None:
    judged = page.judge(entry, entry.expected("2.13.1+cpu"), outcome)  # type: ignore[attr-defined]
    assert (judged.oracle_right, judged.ok, judged.remark) == (oracle, ok, remark)


def test_rows_are_counted_by_torch_and_the_last_run_of_a_case_counts(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    events = [started(), result("PASS"), result("FAIL", ("value", "inductor")), finished("PASS", "b")]
    log.write_text("".join(json.dumps(to_json(event)) + "\n" for event in events))
    columns = page.compare([row(), row("control", False)], {"a.spec.yaml::a": ("1", False)}, page.read_logs([log]))
    assert [judged.ok for judged in columns["2.13.0"]] == [True, False]
    text = page.page(columns)
    assert "| bugs that diverge: found | 1 of 1 |" in text and "| rows without a verdict | 1 |" in text
    assert "silent | numeric | yes | FAIL | value | inductor | inductor | yes |" in text


def test_a_log_that_cannot_be_read_is_an_error_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with pytest.raises(page.CorpusError, match="No such file"):
        page.read_logs([log])
    log.write_text("{}\n")
    with pytest.raises(page.CorpusError, match="line 1"):
        page.read_logs([log])
