"""``triage.yaml``: people write it, and a hunt only reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.diagnostics import InputError
from runner.hunt.groups import TRIAGE, Triage, read_triage, write_empty_triage


def test_a_hunt_begins_with_an_empty_triage_and_leaves_a_written_one_alone(tmp_path: Path) -> None:
    assert read_triage(tmp_path) == {}
    write_empty_triage(tmp_path)
    assert read_triage(tmp_path) == {}
    (tmp_path / TRIAGE).write_text("aaaaaaaa: {triage: bug}\n")
    write_empty_triage(tmp_path)
    assert read_triage(tmp_path) == {"aaaaaaaa": Triage("bug")}


def test_what_people_say_is_read(tmp_path: Path) -> None:
    (tmp_path / TRIAGE).write_text(
        '"12345678": {triage: by-design, reason: the docs say so}\n"1e234567": {triage: duplicate, link: https://example.org/1}\n'
    )
    said = read_triage(tmp_path)
    assert said == {
        "12345678": Triage("by-design", "the docs say so"),
        "1e234567": Triage("duplicate", link="https://example.org/1"),
    }
    assert [str(each) for each in said.values()] == ["by-design the docs say so", "duplicate https://example.org/1"]


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "# aaaaaaaa: {triage: bug}\r\n", "---\n  # none\n...\n", "{}\n"])
def test_a_file_without_entries_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / TRIAGE).write_text(text)
    assert read_triage(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aaaaaaaa: bug", "expected a mapping"),
        ("aaaaaaaa: {triage: bugs}", "triage is 'bugs', which is not one of its words"),
        ("aaaaaaaa: {triage: 3}", "expected text"),
        ("aaaaaaaa: {triage: duplicate}", "duplicate needs a reason or a link"),
        ("aaaaaaaa: {triage: bug, why: x}", "no key 'why' of a group"),
        ("../x: {triage: bug}", "is no id of a signature"),
        ("12345678: {triage: bug}", "the key 12345678 is not text"),
        ("[]", "expected a mapping"),
        ("~", "expected a mapping"),
        ("{", "is missing here"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / TRIAGE).write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_triage(tmp_path)
    assert "triage.yaml:1:" in str(error.value)
