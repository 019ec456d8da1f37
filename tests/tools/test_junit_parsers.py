"""``tools/junit_parsers.py`` says what a reader gets wrong: readers made by hand in place of other people's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.report.events_sample import failure, finished
from tests.script_modules import script_module

parsers = script_module("junit_parsers")
RESULTS = [finished("PASS", "a", file="verdicts.spec.yaml"), failure(name="b", file="verdicts.spec.yaml"), finished("SKIP", "c", reason="why", file="verdicts.spec.yaml")]  # fmt: skip
EXPECTED = {event.id.partition("::")[2]: event for event in RESULTS}
GITLAB = [
    {"name": name, "status": status, "file": "verdicts.spec.yaml", "classname": "c", "system_output": text, "execution_time": "1.234"}
    for name, status, text in zip(EXPECTED, ("success", "failed", "skipped"), (None, "value: output 1 differs\n...", "why"), strict=True)
]  # fmt: skip
ENRICOMI = {
    "errors": [], "tests": 3, "failures": 1, "suite_errors": 0, "skipped": 1,
    "cases": [[name, result, text, text, "verdicts.spec.yaml", 3, 1.234]
              for name, result, text in zip(EXPECTED, ("success", "failure", "skipped"), (None, "value: output 1 differs", "why"), strict=True)],
}  # fmt: skip


def problems(monkeypatch: pytest.MonkeyPatch, reader: str, answer: Any) -> list[str]:
    monkeypatch.setattr(parsers, "_json", lambda words: answer)
    if reader == "gitlab":
        return [*parsers.check_gitlab(Path("x"), Path("run"), EXPECTED)]
    return [*parsers.check_enricomi(Path("x"), Path("run"), EXPECTED, "python")]


def test_a_reader_that_reads_what_is_there_has_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(monkeypatch, "gitlab", {"error": None, "cases": GITLAB}) == []
    assert problems(monkeypatch, "enricomi", ENRICOMI) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("status", "success"), ("file", None), ("classname", ""), ("system_output", "else"), ("execution_time", "1.3"), ("name", "other")],
)  # fmt: skip
def test_what_gitlab_gets_wrong_is_said(monkeypatch: pytest.MonkeyPatch, key: str, value: Any) -> None:
    cases = [GITLAB[0], {**GITLAB[1], key: value}, GITLAB[2]]
    assert problems(monkeypatch, "gitlab", {"error": None, "cases": cases})


@pytest.mark.parametrize(
    ("place", "value"), [(0, "x"), (1, "error"), (2, "else"), (3, ""), (4, "y.yaml"), (5, 4), (6, 2.0)]
)
def test_what_enricomi_gets_wrong_is_said(monkeypatch: pytest.MonkeyPatch, place: int, value: Any) -> None:
    first, second, third = ENRICOMI["cases"]  # type: ignore[misc]
    changed = [value if index == place else entry for index, entry in enumerate(second)]
    assert problems(monkeypatch, "enricomi", {**ENRICOMI, "cases": [first, changed, third]})
    assert problems(monkeypatch, "enricomi", {**ENRICOMI, "skipped": 0})
