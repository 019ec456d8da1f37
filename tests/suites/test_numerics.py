"""The tier ``numerics``: what ``tools/draft_numerics.py`` writes, over the operators of torch's database."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from runner.session.collect import load
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]
SUITE = REPOSITORY / "suites" / "numerics.suite.yaml"
GENERATED = ("unary", "binary")


def test_every_operator_meets_every_pattern() -> None:
    loaded = load([str(SUITE)])
    assert loaded.diagnostics == () and [suite.manual for suite in loaded.suites] == [True]
    cases = {variant.case.name: variant.case for variant in loaded.variants if "reports" not in variant.case.file}
    assert len(cases) >= 160
    for case in cases.values():
        assert {item.init for item in case.inputs} == {"patterns"}, case.name
        assert (case.tolerance.values, case.grad[0].mode) == ("ulp", "off"), case.name
        assert set(case.dtypes) <= {"float16", "bfloat16"} or case.dtypes == ("float32",), case.name


def test_each_entry_of_the_ledger_has_a_reason() -> None:
    for variant in load([str(SUITE)]).variants:
        assert all(entry.issue or entry.reason for entry in variant.case.known), variant.case.name


@pytest.mark.slow
@pytest.mark.skipif(
    not version("torch").startswith("2.13.0"), reason="the database of torch 2.13.0 has these operators"
)
def test_the_files_are_what_the_tool_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = script_module("draft_numerics")
    monkeypatch.setattr("sys.argv", ["draft_numerics.py", "--check"])
    assert draft.main() == 0
    assert [path.name.partition(".")[0] for path in draft.TARGETS.values()] == [*GENERATED]


def test_a_ledger_and_remarks_stay_when_cases_are_written_again(tmp_path: Path) -> None:
    draft = script_module("draft_numerics")
    file = tmp_path / "unary.spec.yaml"
    known = "    known:\n      - {torch: x}\n"
    file.write_text(f"cases:\n  - name: a\n    chain: [a]\n{known}\n  - name: b\n    chain: [b]\n", encoding="utf-8")
    assert draft.ledgers(file) == {"a": known, "b": ""}
    assert draft.ledgers(tmp_path / "none.yaml") == {}
