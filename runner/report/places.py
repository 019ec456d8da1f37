"""Files as the system that shows a report names them: relative to the root of the repository."""

from __future__ import annotations

import os
from pathlib import PurePath


def repository_path(file: str) -> str:
    """Return a file relative to ``$GITHUB_WORKSPACE``, or else to the current folder, with forward slashes; empty if it lies elsewhere."""
    try:
        root = os.path.realpath(os.environ.get("GITHUB_WORKSPACE") or ".")
        relative = os.path.relpath(os.path.realpath(file), root)
    except (OSError, ValueError):  # a NUL, another drive
        return ""
    return "" if relative == ".." or relative.startswith(f"..{os.sep}") else PurePath(relative).as_posix()
