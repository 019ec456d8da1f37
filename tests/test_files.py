"""``runner.files``: only regular files are opened, and errors name the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runner.files import (
    append_regular,
    cut_regular,
    entries_below,
    is_open_file,
    is_pipe,
    naming,
    open_output,
    open_regular,
    read_text,
    remove_irregular,
    remove_tree,
    remove_whole_tree,
    replace_file,
    replace_private,
    replace_text,
    write_anew,
    write_text,
)
from tests.handmade import Dig


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"x"
    os.mkfifo(tmp_path / "pipe")
    descriptors = len(os.listdir("/proc/self/fd"))
    for name in ("pipe", ".", "/dev/zero"):
        with pytest.raises(OSError, match="it is no regular file"):
            open_regular(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="No space left") as caught, naming("file"), open("/dev/full", "w") as file:
        file.write("x")
        file.flush()
    assert caught.value.filename == "file"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        replace_file(tmp_path / "file", [b"x"])
    assert caught.value.filename == str(tmp_path / "file")


def test_a_private_file_is_whole_and_its_owner_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = tmp_path / "file", tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)
    replace_private(path, "first")
    assert target.read_text() == "precious" and not path.is_symlink() and path.stat().st_mode & 0o077 == 0

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_private(path, "second")
    assert path.read_text() == "first" and {*os.listdir(tmp_path)} == {"file", "target"}


def test_a_log_is_no_link_and_no_pipe(tmp_path: Path) -> None:
    log, link, pipe = (tmp_path / name for name in ("log", "link", "pipe"))
    for text in (b"first", b" second"):
        with append_regular(log) as file:
            file.write(text)
    link.symlink_to(log)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path):
        for action in (append_regular, lambda path: cut_regular(path, 0), lambda path: open_regular(path, links=False)):
            with pytest.raises(OSError, match=r"."):
                action(path)
    cut_regular(log, 12)
    assert read_text(log) == "first second"
    cut_regular(log, 11)
    assert read_text(log) == ""


def test_a_text_is_read_as_others_read_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\nb\xff\rc")
    assert read_text(tmp_path / "file", "replace") == "a\nb\ufffd\nc"
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "file")


def test_a_tree_goes_however_deep_it_is(tmp_path: Path, dig: Dig) -> None:
    top, precious = tmp_path / "top", tmp_path / "precious"
    precious.write_text("kept")
    (top / "a" / "locked" / "b").mkdir(parents=True)
    (top / "a" / "link").symlink_to(precious)
    (top / "a" / "folder").symlink_to(tmp_path)
    os.mkfifo(top / "a" / "locked" / "pipe")
    (top / "a" / "locked").chmod(0)
    dig(top)
    remove_tree(top)
    assert os.listdir(tmp_path) == ["precious"]
    top.symlink_to(tmp_path)
    remove_tree(top)
    assert os.listdir(tmp_path) == ["precious"] and precious.read_text() == "kept"
    remove_tree(top)


def test_entries_are_found_however_deep_they_are(tmp_path: Path, dig: Dig) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    dig(tmp_path)
    entries = [*entries_below(tmp_path)]
    assert len(entries) > 500 and {entry.name for entry in entries} == {"link", "d"}
    assert [*entries_below(tmp_path / "none")] == []
    remove_whole_tree(tmp_path / "d")
    assert os.listdir(tmp_path) == ["link"]


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(os, "rmdir", lambda path: (_ for _ in ()).throw(PermissionError))
    with pytest.raises(OSError, match="not empty"):
        remove_whole_tree(tmp_path / "folder")


def test_only_files_stay_of_what_a_process_has_left(tmp_path: Path, dig: Dig) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "file").touch()
    (top / "link").symlink_to("a")
    os.mkfifo(top / "a" / "b" / "pipe")
    dig(top)
    remove_irregular(top)
    assert {path.name for path in top.rglob("*")} == {"a", "b", "file", "d"}
    (tmp_path / "link").symlink_to(top)
    with pytest.raises(NotADirectoryError):
        remove_irregular(tmp_path / "link")


def test_nothing_is_written_to_a_pipe_that_nobody_has_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a pipe"):
        open_output(pipe)
    write_text("/dev/null", "x")
    reader, writer = os.pipe()
    write_text(f"/dev/fd/{writer}", "\ud800x")
    assert os.read(reader, 100) == b"\\ud800x"
    os.close(reader)
    os.close(writer)
    assert is_pipe(pipe) and not is_pipe("/dev/null") and not is_pipe(tmp_path / "none") and not is_pipe("a\0b")


def test_an_open_file_is_added_to_and_never_replaced(tmp_path: Path) -> None:
    """Without that a report for /dev/stdout replaced the machine's link of this name, where root had a file behind it."""
    with open(tmp_path / "file", "w+") as file:
        path = f"/dev/fd/{file.fileno()}"
        file.write("printed ")
        file.flush()
        for write in (replace_text, lambda path, text: replace_file(path, [text.encode()])):
            with pytest.raises(OSError, match="not a regular file"):
                write(path, "x")
        write_text(path, "report")
        file.write(" printed")
        assert is_open_file(path) and os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "printed report printed"


def test_a_file_takes_the_place_of_a_pipe_or_a_link_and_of_no_device(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    for write in (replace_text, write_text, write_anew):
        for make in (os.mkfifo, lambda path: os.symlink(precious, path)):
            make(tmp_path / "file")
            write(tmp_path / "file", "\ud800x")
            assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_bytes() == b"\\ud800x"
            (tmp_path / "file").unlink()
    assert precious.read_text() == "kept"
    with pytest.raises(OSError, match="not a regular file"):
        replace_text("/dev/null", "x")
    replace_text(tmp_path / "new" / "file", "x")
    assert (tmp_path / "new" / "file").read_text() == "x"


def test_a_link_in_the_place_of_the_file_beside_it_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "token")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / f".report.{os.getpid()}.token.tmp").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="exists"):
        replace_text(tmp_path / "report", "x")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "report").exists()
