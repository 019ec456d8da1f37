"""What lies at places of code now. A place is a file, or a folder with all that lies below it.

What is known of files is kept for later runs (``contents.py``). A place is looked at once, by the first that asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.engine.cache_folders import make_own_folder
from runner.engine.contents import Entry, Stamp, read_memo, stamp_of, take_contents, write_memo
from runner.record.signing import NoKey

PURPOSE = "contents of packages"
"""Of the memo."""

_TICK = 20 * 10**6
"""Nanoseconds by which a file system's clock may be behind."""


class Places:
    """Digests of places, with a memo beside ``folder``; without one, nothing is known of earlier runs."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read the memo, and look at no place yet."""
        self._folder = folder
        self._known = read_memo(folder.with_suffix(".contents"), PURPOSE) if folder is not None else {}
        self._began = time.time_ns() - _TICK
        self._memo = dict(self._known)
        self._digests: dict[str, str] = {}
        self._unsure: set[str] = set()

    def digests(self, places: Iterable[str]) -> list[str]:
        """Return a digest for each place, of the names and contents of its files."""
        wanted = list(places)
        trees = {place: dict(_files(place)) for place in wanted if place not in self._digests}
        files = {path: (path, stamp) for tree in trees.values() for path, stamp in tree.items()}
        contents = take_contents(files, self._memo)
        self._memo |= contents
        for place, tree in trees.items():
            self._digests[place] = _digest(place, tree, contents)
            if not os.path.exists(place) or any(stamp[2:3] > (self._began,) for stamp in tree.values()):
                self._unsure.add(place)
        return [self._digests[place] for place in wanted]

    def digest(self, places: Iterable[str]) -> str:
        """Return one digest of all places; empty where one is not there, or has changed since this object was made.

        A process may have loaded what lay there before.
        """
        wanted = sorted(places)
        text = "\n".join(self.digests(wanted))
        return "" if self._unsure.intersection(wanted) else hashlib.sha256(text.encode()).hexdigest()

    def save(self) -> None:
        """Keep for later runs what is known of files. Where that cannot be, all is read the next time too."""
        if self._folder is None or self._memo == self._known:
            return
        with contextlib.suppress(OSError, NoKey):
            if not make_own_folder(self._folder):
                write_memo(self._folder.with_suffix(".contents"), PURPOSE, self._memo)
                self._known = dict(self._memo)


def _digest(place: str, tree: Mapping[str, Stamp], contents: Mapping[str, Entry]) -> str:
    """Return the digest of a place's files, without the folder around it. What cannot be read counts by its name."""
    cut = len(place) - len(os.path.basename(place))
    lines = [f"{path[cut:]} {contents[path].digest if path in contents else '?'}" for path in tree]
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _files(place: str) -> Iterator[tuple[str, Stamp]]:
    """Yield the files below a folder, or one file, by path.

    Links are followed: installers link files into an environment.
    """
    waiting, visited = [place], set()
    while waiting:
        folder = waiting.pop()
        try:
            status = os.stat(folder)
            if not stat.S_ISDIR(status.st_mode):
                yield folder, stamp_of(status)
            elif (status.st_dev, status.st_ino) not in visited:
                visited.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as entries:
                    waiting += [entry.path for entry in entries if entry.name != "__pycache__"]
        except OSError:
            yield folder, ()
