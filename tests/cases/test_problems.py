"""``runner.cases.problems``: each problem once, in order, with its line."""

from __future__ import annotations

from runner.cases.problems import Problems
from runner.diagnostics import Diagnostic, Span

HERE, THERE = Span("a.spec.yaml", 1, 3), Span("a.spec.yaml", 2, 1)


def test_each_is_kept_once_in_the_order_found() -> None:
    problems = Problems(["first", "second"])
    problems.error(THERE, "wrong")
    problems.warning(HERE, "odd", "look at it")
    problems.error(THERE, "wrong")
    assert problems.diagnostics == [
        Diagnostic(THERE, "wrong", text="second"),
        Diagnostic(HERE, "odd", "look at it", "warning", "first"),
    ]


def test_errors_are_counted_whoever_found_them() -> None:
    problems = Problems(["first"])
    problems.warning(HERE, "odd")
    assert problems.errors == 0
    problems.take([Diagnostic(HERE, "bad"), Diagnostic(HERE, "bad"), Diagnostic(HERE, "odd", severity="warning")])
    assert problems.errors == 2 and len(problems.diagnostics) == 3  # one that is reported twice spoils two cases
    problems.error(THERE, "beyond the last line")
    assert problems.errors == 3 and problems.diagnostics[-1].text == ""
