"""``runner.files``: only regular files are opened, and errors name the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runner.files import naming, open_regular, replace_file


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
