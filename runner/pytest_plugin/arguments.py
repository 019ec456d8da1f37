"""Which arguments of pytest hold cases. The standard library alone: this is imported wherever pytest starts."""

from __future__ import annotations

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
    for _, folders, files in os.walk(path):
        if any(name.endswith(ENDINGS) for name in files):
            return True
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in left_out)]
    return False
