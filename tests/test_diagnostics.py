"""Places in files, as text and back."""

from __future__ import annotations

import pytest

from runner.diagnostics import Span, caret, nearest


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a.yaml:3:5", (Span("a.yaml", 3, 5), "")),
        ("/b c/a.spec.yaml:3:5: XPASS: it passes now", (Span("/b c/a.spec.yaml", 3, 5), "XPASS: it passes now")),
        ("a.yaml:1:1: two\nlines", (Span("a.yaml", 1, 1), "two\nlines")),
        ("a.yaml:1", None),
        ("a.yaml:x:1", None),
        ("in a.txt:1:1: no YAML", None),
        (f"a.yaml:{'9' * 5000}:1", None),
        ("", None),
    ],
)
def test_the_place_at_the_start_of_a_text(text: str, place: tuple[Span, str] | None) -> None:
    assert Span.of(text) == place


def test_full_width_letters_are_those_that_they_look_like() -> None:
    assert nearest("\uff43\uff48\uff41\uff49\uff4e", ["name", "chain"]) == "did you mean 'chain'?"


@pytest.mark.parametrize("text", ["short", "x" * 200])
def test_a_column_beyond_the_line_makes_no_wide_line(text: str) -> None:
    source, marks = caret(Span("a.yaml", 3, 1_000_000_000), text)
    assert source.startswith("   3 | ") and marks.endswith("^") and len(marks) < 120
