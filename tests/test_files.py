"""``runner.files``: only regular files are opened, and errors name the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runner.files import naming, open_regular, replace_file, replace_private, replace_text, write_text


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


def test_a_pipe_is_written_to_only_where_it_was_named(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        replace_text(pipe, "x")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "\ud800x")
    assert os.read(reader, 100) == b"\\ud800x"
    os.close(reader)
    replace_text(tmp_path / "new" / "file", "\ud800x")
    assert (tmp_path / "new" / "file").read_bytes() == b"\\ud800x"


def test_a_link_in_the_place_of_the_file_beside_it_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "token")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / f".report.{os.getpid()}.token.tmp").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="exists"):
        replace_text(tmp_path / "report", "x")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "report").exists()
