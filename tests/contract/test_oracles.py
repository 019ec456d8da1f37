"""The table of oracles: against the published schemas, the judge's functions, and the words that modules use."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cases.yaml.schema import load_schema
from runner.contract import oracles
from runner.contract.finding import Finding
from runner.contract.oracles import (
    CAPTURE,
    CRASH,
    EXCEPTION,
    NUMERIC,
    ORACLES,
    ROWS,
    SEVERITIES,
    WRONG,
    gate_of,
    is_plugin,
    rank_of,
    row_of,
)
from runner.record.event_schema import Unfit, event_checks
from runner.record.events import to_json
from runner.verdict.policy import decide, ranked
from runner.worker.judge import judge as judging
from tests.handmade import variants
from tests.report.events_sample import failure

DEFINITIONS: dict[str, Any] = load_schema("definitions")["definitions"]
RUNNER = Path(oracles.__file__).parents[1]
ENDS = {"signal", "timeout"}
"""Oracles of a process that died: no function of the judge can report them."""
OTHER = {oracles.TWIN}
"""The judge's functions speak of another program there, and its findings take this name."""
FOREIGN = "some_package.checksum"


def named(holds: Callable[[oracles.Oracle], object]) -> set[str]:
    return {row.name for row in ORACLES if holds(row)}


# --- the table against what repeats it --------------------------------------------------------


def test_a_name_has_one_row() -> None:
    assert len(ROWS) == len(ORACLES)


def test_the_schema_of_cases_has_the_table_s_names_and_sentences() -> None:
    part = DEFINITIONS["oracle"]
    assert dict(zip(part["enum"], part["enumDescriptions"], strict=True)) == {r.name: r.meaning for r in ORACLES}
    assert DEFINITIONS["case.ignore"]["properties"].keys() == ROWS.keys()


def test_the_schema_of_logs_has_the_table_s_names() -> None:
    part = load_schema("events")["definitions"]["oracle"]
    assert len(part["enum"]) == len(ROWS) and {*part["enum"]} == ROWS.keys()


def test_each_row_is_looked_for_and_nothing_else_is() -> None:
    reported = {name for names in judging.CHECKS.values() for name in names}
    assert reported == ROWS.keys() - ENDS - OTHER


def test_functions_run_in_the_order_of_the_file() -> None:
    lines = [look.__code__.co_firstlineno for look in judging.CHECKS]  # type: ignore[attr-defined]
    assert lines and lines == sorted(lines)


def literals(tree: ast.AST) -> Iterator[str]:
    """The words that code compares an attribute ``oracle`` with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "oracle":
            for side in node.comparators:
                yield from (part.value for part in ast.walk(side) if isinstance(part, ast.Constant))


def test_every_oracle_that_code_compares_with_has_a_row() -> None:
    words = {word for path in RUNNER.rglob("*.py") for word in literals(ast.parse(path.read_text()))}
    names = {word for word in words if isinstance(word, str) and word}  # an empty text stands for no oracle
    assert names and names <= ROWS.keys()


def test_the_schema_of_logs_has_the_severities_in_their_order() -> None:
    assert load_schema("events")["definitions"]["severity"]["enum"] == [*SEVERITIES, None]


def test_the_page_has_each_oracle_under_its_severity() -> None:
    page = (RUNNER.parent / "docs" / "judging.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (`.*`|none by itself) \|$", page.partition("## What a finding is worth")[2], re.MULTILINE
    )
    listed = [(severity, sorted(re.findall(r"`([^`]+)`", names))) for severity, names in rows[: len(SEVERITIES)]]
    assert listed == [(severity, sorted(r.name for r in ORACLES if r.severity == severity)) for severity in SEVERITIES]


# --- what columns mean ------------------------------------------------------------------------


def test_budgets_are_keys_of_expect() -> None:
    assert oracles.BUDGETS.keys() <= DEFINITIONS["case.expect"]["properties"].keys()
    assert set(oracles.BUDGETS.values()) == {"graphs", "graph-break", "recompile", "kernels", "vectorized", "delegated"}
    assert named(lambda row: row.floor) == {"vectorized", "delegated"}


def test_a_limit_is_named_as_its_key() -> None:
    assert named(lambda row: row.limit) == {"timeout", "memory"}


def test_columns_about_numbers_imply_each_other() -> None:
    assert named(lambda row: row.measured) < named(lambda row: row.float64) < NUMERIC
    assert named(lambda row: row.casts) < named(lambda row: row.measured)
    assert named(lambda row: row.minified) < named(lambda row: row.float64)
    assert named(lambda row: row.drawn) == NUMERIC - OTHER
    assert len({row.drawn for row in ORACLES if row.drawn}) == len(NUMERIC - OTHER)


def test_a_crash_or_an_exception_is_what_gives_no_answer() -> None:
    assert named(lambda row: row.severity in (CRASH, EXCEPTION)) == oracles.CRASHES
    assert named(lambda row: row.severity == CAPTURE) == set(oracles.BUDGETS.values())
    assert rank_of("") == rank_of("unknown") == len(SEVERITIES) > rank_of(CAPTURE) > rank_of(WRONG) == 0


def test_no_crash_compares_numbers() -> None:
    assert not oracles.CRASHES & NUMERIC
    assert {"compile-error", "runtime-error"} == oracles.EXCEPTIONS < oracles.CRASHES


# --- another package's ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.b", "my_package.kernels.cache-hits", "p1.x2"])
def test_a_plugin_names_its_package(name: str) -> None:
    assert is_plugin(name)


@pytest.mark.parametrize("name", ["value", "", "a.", ".a", "A.b", "a b.c", "a.b\n", "a..b", "a.\x1b", "a.b;c", "a/b.c"])
def test_other_words_name_no_plugin(name: str) -> None:
    assert not is_plugin(name)


def test_no_row_has_a_plugin_s_name() -> None:
    assert not any(map(is_plugin, ROWS))


def test_a_plugin_s_finding_speaks_last_and_is_a_failure(tmp_path: Path) -> None:
    (variant,) = variants(tmp_path, "")
    foreign, own = Finding(FOREIGN, "sums differ"), Finding("rng", "")
    assert ranked([foreign, own]) == [own, foreign]
    assert decide(variant, "2.13.0", [foreign], None).word == "FAIL"
    assert gate_of(FOREIGN) == len(ORACLES) and row_of(FOREIGN).group == FOREIGN


def test_the_ledger_takes_a_plugin_s_name(tmp_path: Path) -> None:
    (variant,) = variants(tmp_path, f"known: [{{oracle: [{FOREIGN}], reason: r}}]\nignore: {{a.b: r}}")
    assert decide(variant, "2.13.0", [Finding(FOREIGN, "")], None).word == "XFAIL"
    assert variant.case.ignore == {"a.b": "r"}


def test_a_log_takes_a_plugin_s_name_and_no_other_word() -> None:
    event = json.loads(json.dumps(to_json(failure(oracles=(FOREIGN,), findings=(Finding(FOREIGN, ""),)))))
    check = event_checks()["variant-finished"]
    check(event)
    for word in ("valeu", "a.b\n", "A.b", "a." + "b" * 200):
        with pytest.raises(Unfit):
            check({**event, "oracles": [word]})
        with pytest.raises(Unfit):
            check({**event, "findings": [{"oracle": word, "message": ""}]})


# --- functions --------------------------------------------------------------------------------


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> dict[Any, frozenset[str]]:
    registered: dict[Any, frozenset[str]] = {}
    monkeypatch.setattr(judging, "CHECKS", registered)
    return registered


def evidence(*ignored: str) -> Any:
    return SimpleNamespace(job=SimpleNamespace(ignore=ignored))


def test_a_word_without_a_row_is_refused(checks: dict[Any, frozenset[str]]) -> None:
    with pytest.raises(ValueError, match="'valeu' is no oracle"):
        judging.check("valeu")
    assert not checks


@pytest.mark.usefixtures("checks")
def test_a_function_speaks_only_of_its_own_oracles() -> None:
    @judging.check(FOREIGN)
    def look(_: Any) -> Iterator[judging.Finding]:
        yield judging.Finding("value", "")

    with pytest.raises(ValueError, match="look is registered for no oracle 'value'"):
        judging.judge(evidence())


@pytest.mark.usefixtures("checks")
def test_a_case_ignores_a_plugin_s_findings() -> None:
    @judging.check(FOREIGN)
    def look(_: Any) -> Iterator[judging.Finding]:
        yield judging.Finding(FOREIGN, "")

    assert [finding.oracle for finding in judging.judge(evidence())] == [FOREIGN]
    assert judging.judge(evidence(FOREIGN)) == []


def test_the_table_needs_the_standard_library_alone() -> None:
    code = "import sys, runner.contract.oracles; print('torch' in sys.modules, 'jsonschema' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]
