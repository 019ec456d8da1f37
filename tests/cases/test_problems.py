"""``runner.cases.problems``: each problem once, in order, with its line."""

from __future__ import annotations

import pytest

from runner.cases.limits import Limits
from runner.cases.problems import Problems, limited
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


@pytest.mark.parametrize(
    ("word", "hint", "full_hint"),
    [
        ("\u0441hain", "did you mean 'chain'?", "did you mean 'chain'? character 1 is U+0441 (CYRILLIC SMALL LETTER ES): write ASCII"),
        ("cha\u200bin", "", "character 4 is U+200B (ZERO WIDTH SPACE): write ASCII"),
        ("\uff43hain", "a", "a; character 1 is U+FF43 (FULLWIDTH LATIN SMALL LETTER C): write ASCII"),
        ("\u201cfloat32\u201d", "", "curly quotes are text in YAML: write straight ones"),
        ("\u201ctwo words\u201d", "", "curly quotes are text in YAML: write straight ones"),
        ("Ein größerer Satz", "a", "a"),
        ("chain", "a", "a"),
    ],
)  # fmt: skip
def test_a_character_that_looks_like_another_is_named(word: str, hint: str, full_hint: str) -> None:
    span = Span("a.spec.yaml", 1, 3, len(word))
    error = Diagnostic(span, "wrong", hint, text=f"  {word}: 1")
    assert [d.hint for d in limited([error, Diagnostic(span, "odd", hint, "warning", error.text)], Limits())] == [
        full_hint,
        hint,
    ]
    (named,) = limited([Diagnostic(span, f"U+{ord(word[0]):04X} curly quotes", hint, text=error.text)], Limits())
    assert named.hint == hint  # the message says so
