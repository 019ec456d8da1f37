"""SARIF of ``runner validate``: the rules of the published schema, places, and hostile text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.cli.main import main
from runner.diagnostics import Diagnostic, Span
from runner.report import sarif
from tests.report.events_sample import NASTY

SCHEMA = os.environ.get("SARIF_SCHEMA")


def run_of(diagnostics: list[Diagnostic]) -> dict[str, Any]:
    """The one run of a log, held against the schema where SARIF_SCHEMA names it."""
    data: dict[str, Any] = json.loads(sarif.render(diagnostics))
    if SCHEMA:
        jsonschema.validate(data, json.loads(Path(SCHEMA).read_text(encoding="utf-8")))
    assert data["version"] == "2.1.0" and data.keys() == {"$schema", "version", "runs"}
    (run,) = data["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"] and result["level"] in ("error", "warning")
        (location,) = result["locations"]
        region = location["physicalLocation"]["region"]
        assert all(type(value) is int and value >= 1 for value in region.values())
    return dict(run)


def test_a_result_has_a_rule_a_level_and_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warning = Diagnostic(Span("b.spec.yaml", 1, 1), "odd", severity="warning")
    error = Diagnostic(
        Span(str(tmp_path / "specs" / "a b.spec.yaml"), 3, 7, 4), "unknown key 'x'.", "did you mean 'y'?"
    )
    first, second = run_of([warning, error])["results"]
    assert (first["ruleId"], first["level"], first["message"]["text"]) == ("invalid-case", "error", "unknown key 'x'. did you mean 'y'?")  # fmt: skip
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "specs/a%20b.spec.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 3, "startColumn": 7, "endLine": 3, "endColumn": 11},
    }
    assert (second["ruleId"], second["level"]) == ("doubtful-case", "warning")


def test_files_are_relative_to_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    uris = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in run_of([Diagnostic(Span(file, 1, 1), "x") for file in ("a.yaml", "../b.yaml", "/c.yaml", "x:y.yaml")])["results"]
    ]  # fmt: skip
    assert uris == ["below/a.yaml", "b.yaml", "file:///c.yaml", "below/x%3Ay.yaml"]


def test_hostile_text_is_no_link_and_no_control(tmp_path: Path) -> None:
    text = f"[click](https://evil.example) {NASTY}"
    (result,) = run_of([Diagnostic(Span(f"{tmp_path}/\udc80{NASTY}".replace("\x00", ""), 0, 0, 0), text, text)])[
        "results"
    ]
    assert "](" not in result["message"]["text"] and result["message"]["text"].isprintable()
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].isascii()


def test_results_are_bounded_and_errors_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "RESULTS", 3)
    diagnostics = [
        Diagnostic(Span("a.yaml", n, 1), str(n), severity="error" if n > 3 else "warning") for n in range(1, 6)
    ]
    run = run_of(diagnostics)
    assert [result["message"]["text"] for result in run["results"]] == ["4", "5", "1"]
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"].startswith("2 more results are left out")


def test_validate_writes_it_and_marks_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.spec.yaml").write_text("cases:\n  - name: a\n    inputs: {x: [4]}\n    chian: [torch.neg]\n")
    assert main(["validate", "a.spec.yaml", "--sarif", "out.sarif", "--github"]) == 4
    data = json.loads(Path("out.sarif").read_text())
    lines = {r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in data["runs"][0]["results"]}
    assert 4 in lines
    assert "::error file=a.spec.yaml,line=4,endLine=4,col=5," in capsys.readouterr().out
    assert main(["validate", "a.spec.yaml", "--sarif", "-"]) == 4
    assert json.loads(capsys.readouterr().out) == data
    Path("a.spec.yaml").write_text("cases:\n  - name: a\n    inputs: {x: [4]}\n    chain: [torch.neg]\n")
    assert main(["validate", "a.spec.yaml", "--sarif", "out.sarif"]) == 0
    assert json.loads(Path("out.sarif").read_text())["runs"][0]["results"] == []
