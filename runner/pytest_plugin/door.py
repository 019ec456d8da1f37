"""The door of all text that the plugin hands to pytest: what pytest prints controls no terminal and no system of
jobs."""

from __future__ import annotations

import pytest

from runner.console import without_commands
from runner.text import in_line, visible


def shown(text: str) -> str:
    """Return ``text`` as pytest may print it."""
    return without_commands(visible(text))


def shown_line(text: str) -> str:
    """Return ``text`` on one line, as pytest may print it: ids, names and paths of files."""
    return without_commands(in_line(text))


def shown_reason(text: str) -> str:
    """Return the reason of a skip or an expected failure: ``pytest -vv`` breaks it into lines, words included."""
    return without_commands(visible(text), wrapped=True)


def pass_report(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make each text of a report one that pytest may print. A traceback becomes its text."""
    place = report.longrepr
    if isinstance(place, tuple):
        report.longrepr = (shown_line(place[0]), place[1], shown_reason(place[2]))
    elif place is not None:
        report.longrepr = shown(str(place))
    report.sections = [(shown_line(title), shown(text)) for title, text in report.sections]
    if isinstance(report, pytest.TestReport):
        report.user_properties = [(name, shown_line(str(value))) for name, value in report.user_properties]
    if (reason := getattr(report, "wasxfail", None)) is not None:
        report.wasxfail = shown_reason(reason)  # type: ignore[union-attr]  # what pytest itself sets
