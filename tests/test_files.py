"""``runner.files``: files are opened only where they are regular."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.files import open_regular


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
