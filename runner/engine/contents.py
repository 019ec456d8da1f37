"""The contents of files as sha256, each read once, and with them what lies at places of code now.

A signed memo says what a file held whose stamp is still the same. A stamp is a file's size, both times, inode and
device. Any program can set the time of the last writing (``mtime``); an image or a package may have the same one for
all files. No program can set the time of the last change (``ctime``).

A file may change twice within one grain of the clock and keep its stamp. So a file that changed within two seconds
before it was read has no stamp in the memo, and is read again the next time. A memo without this user's signature
counts as empty.

A place is a file, or a folder with all that lies below it. It is looked at once, by the first that asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from runner.engine.cache_folders import make_own_folder
from runner.engine.processors import usable_processors
from runner.files import open_regular
from runner.record.signing import NoKey, read_signed, write_signed

VERSION = 1
"""Of a memo. Another one counts as empty."""

_GRAIN = 2 * 10**9
"""Nanoseconds; the coarsest file systems count in two seconds."""
_LONGEST = 256 << 20
"""Bytes of a memo. A file takes about 200."""
_BLOCK = 1 << 20

Stamp = tuple[int, ...]


class Entry(NamedTuple):
    """What a file held. ``stamp`` is its size alone where the file was too new to be told by its times."""

    digest: str
    stamp: Stamp


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what cannot stay the same when the file's content changes."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def take_contents(files: Mapping[str, tuple[str, Stamp]], memo: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what files hold, by name. What cannot be read, or changes meanwhile, is left out.

    Args:
        files: by name, each file's path and stamp.
        memo: what is known of earlier times, under the same names.
    """
    contents = {name: memo[name] for name, (_, stamp) in files.items() if name in memo and memo[name].stamp == stamp}
    unknown = [name for name in files if name not in contents]
    with ThreadPoolExecutor(usable_processors()) as pool:
        entries = pool.map(lambda name: _read(*files[name]), unknown)
        contents |= {name: entry for name, entry in zip(unknown, entries, strict=True) if entry is not None}
    return contents


def _read(path: str, stamp: Stamp) -> Entry | None:
    began, digest = time.time_ns(), hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
            if stamp_of(os.fstat(file.fileno())) != stamp:
                return None  # another file than was looked at, or one that somebody writes
    except OSError:
        return None
    return Entry(digest.hexdigest(), stamp if stamp[2] < began - _GRAIN else stamp[:1])


def read_memo(path: Path, purpose: str) -> dict[str, Entry]:
    """Return a memo that this user has written for this purpose at this place; an empty one otherwise."""
    try:
        entries = json.loads(read_signed(path, _LONGEST, purpose, VERSION, str(path)))
        return {name: Entry(digest, tuple(stamp)) for name, (digest, *stamp) in entries.items()}
    except (OSError, ValueError, NoKey):
        return {}


def write_memo(path: Path, purpose: str, memo: Mapping[str, Entry]) -> None:
    """Write a memo, whole or not at all.

    A link there is replaced. Raises OSError, and NoKey where nothing can be signed.
    """
    text = json.dumps({name: [entry.digest, *entry.stamp] for name, entry in sorted(memo.items())})
    write_signed(path, text, purpose, VERSION, str(path))


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
