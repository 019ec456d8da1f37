from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from runner import text
from runner.diagnostics import shown_file
from tests.report.events_sample import NASTY


def test_clean_removes_escape_sequences_and_shows_the_rest() -> None:
    cleaned = text.clean(NASTY)
    assert cleaned.startswith(
        "red  bare \\x1b NUL \\x00 bell \\x07 half \\udc80 \\ud800 \\ufffe \\uffff \\U0001fffe ]]>"
    )
    assert cleaned.endswith("\nnext\nover")
    assert "ünïcode" in cleaned and "\U0001f600" in cleaned


def test_clean_text_survives_the_way_through_xml() -> None:
    everything = text.clean("".join(map(chr, range(0x11000))))
    element = ElementTree.Element("a", {"b": everything.replace("\n", " ").replace("\t", " ")})
    element.text = everything
    again = ElementTree.fromstring(ElementTree.tostring(element, encoding="utf-8"))
    assert again.text == everything
    assert again.get("b") == element.get("b")


def test_a_character_after_much_plain_text_is_seen() -> None:
    line = "a line of output\n\tand its next\n" * 300
    assert text.clean(line) == text.visible(line) == line
    for letter, expected in (
        ("\x00", "\\x00"),
        ("\x7f", "\\x7f"),
        ("\x85", "\\x85"),
        ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"),
    ):
        assert text.clean(line + letter) == text.visible(line + letter) == line + expected
    assert text.clean(line + "\x1b[31m\r\n") == line + "\n"


def test_clean_is_stable() -> None:
    assert text.clean(text.clean(NASTY)) == text.clean(NASTY)


@pytest.mark.parametrize("size", [0, 1, 10, 99, 100, 101, 5000])
@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
def test_cap_keeps_the_limit_in_bytes(size: int, letter: str) -> None:
    capped = text.cap(letter * size, 100)
    assert len(capped.encode()) <= 100
    assert (capped == letter * size) == (len((letter * size).encode()) <= 100)


def test_cap_keeps_head_and_tail_and_says_what_is_missing() -> None:
    capped = text.cap("HEAD" + "x" * 1_000_000 + "TAIL")
    assert capped.startswith("HEAD") and capped.endswith("TAIL")
    kept_length = len(capped.replace("\n", "")) - len("[... 123456 bytes cut ...]")
    assert f"[... {1_000_008 - kept_length} bytes cut ...]" in capped


def test_cap_to_less_than_its_own_mark() -> None:
    assert text.cap("a" * 100, 10) == "a" * 10


def test_one_line() -> None:
    assert text.one_line("a\n  b\u2028c\x1b[0m\td") == "a b c d"
    assert text.one_line("x" * 1000) == "x" * 297 + "..."


def test_head_and_tail_lines_say_what_they_leave_out() -> None:
    lines = "\n".join(map(str, range(10)))
    assert text.head_lines(lines, 2) == ["0", "1", "[... 8 more lines]"]
    assert text.tail_lines(lines, 2) == ["[... 8 lines before]", "8", "9"]
    assert text.tail_lines("a\n\n", 2) == ["a"]
    assert len(text.tail_lines("x" * 100_000, 2)[0]) == 400


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0.00s"), (0.424, "0.42s"), (12.34, "12.3s"), (99.96, "1m 40s"), (125, "2m 05s"), (3599.9, "1h 00m"),
        (3720, "1h 02m"), (math.nan, "0.00s"), (math.inf, "0.00s"), (-1, "0.00s"),
    ],
)  # fmt: skip
def test_duration(value: float, expected: str) -> None:
    assert text.duration(value) == expected


def test_shown_file_is_relative_below_the_working_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_file(str(tmp_path / "specs" / "a.yaml")) == "specs/a.yaml"
    assert shown_file("./specs/a.yaml") == "specs/a.yaml"
    assert shown_file("/elsewhere/a.yaml") == "/elsewhere/a.yaml"
    assert shown_file("a\x00.yaml") == "a\\x00.yaml"


def test_ordinals() -> None:
    assert [text.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th",
    ]  # fmt: skip


def test_one_of_several() -> None:
    assert text.of_several(2, 2) == "the second of two"
    assert text.of_several(10, 10) == "the tenth of ten"
    assert text.of_several(2, 11) == "the 2nd of 11"
