"""Sets of lines, and their text."""

from __future__ import annotations

import pytest

from runner.contract.lines import FILES, LAST, Lines, is_text, text_of


def test_lines_of_files_become_ranges_and_come_back() -> None:
    text = text_of("_inductor/ir.py", [20, 11, 10, 12, 20])
    assert text == "line _inductor/ir.py:10-12,20"
    lines = Lines([text, "line a.py:3", "lowering aten.relu", "line a.py:4"])
    assert len(lines) == 6
    assert list(lines) == [*(f"_inductor/ir.py:{number}" for number in (10, 11, 12, 20)), "a.py:3", "a.py:4"]
    assert lines.texts() == ["line _inductor/ir.py:10-12,20", "line a.py:3-4"]


def test_lines_are_joined_and_subtracted() -> None:
    lines = Lines(["line a.py:1-4", "line b.py:7"])
    assert (lines - Lines(["line a.py:2,4-9", "line b.py:7"])).texts() == ["line a.py:1,3"]
    lines.update(Lines(["line a.py:6", "line c.py:1"]))
    assert lines.texts() == ["line a.py:1-4,6", "line b.py:7", "line c.py:1"]
    assert not Lines() - lines


def test_a_name_of_lines_is_told_from_others() -> None:
    assert is_text("line a.py:1") and not is_text("lowering aten.relu") and not is_text("linear 1")


@pytest.mark.parametrize(
    "text",
    ["line a.py", "line a.py:", "line a.py:x", "line a.py:1,", "line a.py:-3", "line a.py:123456", "line :1", "line a.py:9-2"],
)  # fmt: skip
def test_what_is_no_text_of_lines_counts_for_nothing(text: str) -> None:
    assert len(Lines([text])) == 0


def test_a_stranger_s_texts_are_bounded() -> None:
    assert len(Lines(["line a.py:1-99999", "line b.py:70000-99999"])) == LAST
    assert len(Lines(f"line {number}.py:1" for number in range(2 * FILES))) == FILES
