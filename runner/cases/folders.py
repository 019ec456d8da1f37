"""Looks through folders for files, and through no more of them than the limits allow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePath

from runner.cases.limits import Limits


class FolderLimit(Exception):
    """More folders or files than the limits allow; ``hint`` says how to change that."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(slots=True)
class Walk:
    """One look through folders; what is looked at counts for the whole command. Links to folders are not followed."""

    limits: Limits = field(default_factory=Limits)
    _visited: int = 0
    _files: int = 0

    def below(self, folder: Path, endings: tuple[str, ...]) -> list[Path]:
        """Return the regular files below a folder, sorted, without hidden ones. Raises FolderLimit."""
        files, stack = [], [folder]
        while stack:
            for entry in self._entries(stack.pop()):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    stack.append(Path(entry.path))
                elif entry.name.endswith(endings) and _is_own(entry.path):
                    files.append(self._counted(Path(entry.path)))
        return sorted(files)

    def matching(self, folder: Path, pattern: str, ending: str) -> list[Path]:
        """Return the regular files that a relative pattern names, seen from ``folder``; none for any other pattern.

        Raises FolderLimit.
        """
        path = PurePath(pattern)
        if path.is_absolute() or "\0" in pattern:
            return []
        files = set()
        stack, visited = [(folder, path.parts)], set[tuple[Path, int]]()
        while stack:
            place, parts = stack.pop()
            if (place, len(parts)) in visited:
                continue
            visited.add((place, len(parts)))
            if parts:
                stack += self._next(place, parts)
            elif place.name.endswith(ending) and _is_own(place):
                files.add(self._counted(place))
        return sorted(files)

    def _next(self, folder: Path, parts: tuple[str, ...]) -> list[tuple[Path, tuple[str, ...]]]:
        """What the first part of a pattern names in ``folder``, each with the parts that are left."""
        first, inner = parts[0], parts[1:]
        if first == "**":
            folders = [entry for entry in self._entries(folder) if entry.is_dir(follow_symlinks=False)]
            return [(folder, inner), *((Path(entry.path), parts) for entry in folders)] if inner else []
        if re.search(r"[*?\[]", first):
            matches = re.compile(translate(first)).match
            return [(Path(entry.path), inner) for entry in self._entries(folder) if matches(entry.name)]
        return [(folder / first, inner)]

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        limit = self.limits.folder_entries
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    self._visited += 1
                    if self._visited > limit:
                        message = f"there are more than {limit} entries in the folders to look through"
                        raise FolderLimit(message, self.limits.hint("folder_entries"))
                    yield entry
        except (OSError, ValueError):
            return

    def _counted(self, path: Path) -> Path:
        self._files += 1
        if self._files > self.limits.files:
            raise FolderLimit(f"there are more than {self.limits.files} files", self.limits.hint("files"))
        return path


def _is_own(path: str | Path) -> bool:
    """Whether a path is a regular file that keeps its ending behind links.

    Messages show lines of a file that cannot be read. A stranger's link must not make them show another file.
    """
    return os.path.isfile(path) and Path(os.path.realpath(path)).suffixes[-2:] == PurePath(path).suffixes[-2:]
