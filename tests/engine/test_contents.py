"""What files hold, and what a memo of it is worth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.engine import contents
from runner.engine.contents import Entry, Stamp, read_memo, stamp_of, take_contents, write_memo


def looked_at(*paths: Path) -> dict[str, tuple[str, Stamp]]:
    return {path.name: (str(path), stamp_of(path.stat())) for path in paths}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as old."""
    monkeypatch.setattr(contents, "_GRAIN", -(10**12))
    path = tmp_path / "file"
    path.write_text("one")
    return path


def test_a_file_that_has_not_changed_is_not_read_again(file: Path) -> None:
    memo = {"file": Entry("what was known", stamp_of(file.stat()))}
    assert take_contents(looked_at(file), memo) == memo
    assert take_contents(looked_at(file), {"other": memo["file"]})["file"].digest != "what was known"


def test_a_change_that_keeps_size_and_time_is_read(file: Path) -> None:
    memo, status = take_contents(looked_at(file), {}), file.stat()
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    again = take_contents(looked_at(file), memo)
    assert again["file"].digest != memo["file"].digest and take_contents(looked_at(file), again) == again


def test_a_file_that_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """It may change once more within the grain of the clock."""
    file = tmp_path / "file"
    file.write_text("one")
    entry = take_contents(looked_at(file), {})["file"]
    assert entry.stamp == (3,)
    wrong = {"file": Entry("what was known", entry.stamp)}
    assert take_contents(looked_at(file), wrong) == {"file": entry}


def test_what_cannot_be_read_or_changes_meanwhile_is_left_out(file: Path, tmp_path: Path) -> None:
    files = looked_at(file)
    file.write_text("other")
    os.mkfifo(tmp_path / "pipe")
    assert take_contents({**files, **looked_at(tmp_path / "pipe"), "gone": ("/no/such", ())}, {}) == {}


def test_a_memo_is_this_user_s_own_for_one_purpose_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, memo = tmp_path / "memo", {"a/\udcff": Entry("x", (1, 2, 3, 4, 5)), "b": Entry("y", (1,))}
    write_memo(path, "purpose", memo)
    assert read_memo(path, "purpose") == memo and [*tmp_path.iterdir()] == [path]
    text = path.read_bytes()
    assert read_memo(path, "another") == read_memo(tmp_path / "none", "purpose") == {}
    for spoilt in (
        text.replace(b'"x"', b'"z"'),
        text[:-1],
        text + b" ",
        b"",
        b"\n{}",
        b"[1]",
        text.partition(b"\n")[2],
    ):
        path.write_bytes(spoilt)
        assert read_memo(path, "purpose") == {}
    (tmp_path / "moved").write_bytes(text)
    assert read_memo(tmp_path / "moved", "purpose") == {}
    path.write_bytes(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert read_memo(path, "purpose") == {}, "of another key"


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "memo"
    target.write_text("precious")
    path.symlink_to(target)
    write_memo(path, "purpose", {})
    assert target.read_text() == "precious" and not path.is_symlink()
