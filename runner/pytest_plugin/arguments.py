"""Which arguments of pytest hold cases. The standard library alone: this is imported wherever pytest starts."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch

ENDINGS = (".spec.yaml", ".suite.yaml")
FILE = re.compile(r"(?P<file>.*?\.(?:spec|suite)\.yaml)(?P<nodes>::.*)?", re.DOTALL)
"""An argument that names a file of cases, or cases of it."""


def holds_cases(path: str, left_out: Sequence[str]) -> bool:
    """Return whether a path names a file of cases, or a folder with one at a place where pytest looks.

    ``left_out`` are the patterns of folders where it does not look.
    """
    if not os.path.isdir(path):
        return FILE.fullmatch(path) is not None
    waiting = [path]  # not os.walk, which up to Python 3.11 calls itself for each level
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False) and entry.name.endswith(ENDINGS):
                    return True
                if entry.is_dir(follow_symlinks=False) and not any(fnmatch(entry.name, each) for each in left_out):
                    waiting.append(entry.path)
    return False
