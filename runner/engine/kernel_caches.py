"""Where the workers of a run keep what they compile: a signed folder for each Python and its compilers, or one that
goes with the run.

A folder that a person chose by ``TORCHINDUCTOR_CACHE_DIR`` or ``TRITON_CACHE_DIR`` is used as it is, unless others may
write to it. Where torch cannot compile in a folder, for a blank in its path for example, the one that goes with the run
is used.

From a signed folder only what this user has signed is ever loaded. torch and Triton load whatever lies in their cache:
pickles of graphs, shared objects, generated Python, device code, headers. So everything in the folder counts as code. A
manifest beside it names the sha256 of each file, with the user's signature.

* The first run that enters holds the lock alone, removes what the manifest does not confirm, and then shares the lock.
* A run that enters while others share the lock finds a folder that has been swept.
* The last run that leaves has the lock alone again, and writes the manifest.
* Files of a run that was killed are in no manifest, and go at the next start. The folder's path stays, for compilers
  write it into headers and generated code.

Files that have not changed since the manifest was written are told by their stamps (``fingerprint.py``). So a usual
sweep reads none; one after a restored cache reads all that the manifest names.

This keeps out a cache that was restored from a job without the key, and files of other users. It keeps out no code that
runs as the user while a run lasts: what it leaves in the folder is signed with the rest, and it can read the key.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from runner.contract.settings import CACHE_FOLDER, PASSED, TRITON_FOLDER
from runner.engine import scratch
from runner.engine.cache_folders import cache_folder, make_folder, make_own_folder
from runner.engine.cached import ANY, evict
from runner.engine.fingerprint import Stamp, compilers_digest, read_memo, stamp_of, take_contents, write_memo
from runner.files import remove_whole_tree
from runner.record.signing import NoKey, user_key
from runner.text import plural

PURPOSE = "compiled code"
GRAPHS = ("fxgraph", "aotautograd")
"""Where torch keeps graphs: Inductor's, and those of AOTAutograd that refer to them."""
SIZE = 1 << 30
"""Bytes that each of the folders of graphs may take. A variant of three operators takes a quarter of a megabyte."""
PATIENCE = 60.0
"""Seconds to wait for a run that sweeps the folder or writes the manifest."""

_LONGEST = 1000
"""Characters of a path in the folder. The system takes no path of more than 4096, and compilers write none of 200."""
_BUILDING = "_CxxBuild"
"""How torch names a folder beside what g++ writes; it removes the folder once g++ has ended well."""


class SignedFolder:
    """The folder at ``path``, which exists and which nobody else can write to."""

    def __init__(self, path: Path) -> None:
        """Enter nothing yet."""
        self.path = path
        self._manifest = path.with_suffix(".manifest")
        self._lock = -1

    def enter(self) -> int:
        """Let no run sweep the folder until ``leave``, sweep it first if nobody else uses it, and return how many files
        went.

        Raises:
            OSError: something cannot be removed, or the file system has no locks. Nothing in the folder may be loaded.
            NoKey: nothing can be signed.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(self.path.with_suffix(".lock"), flags, 0o600)
        try:
            if _wait(self._lock, fcntl.LOCK_EX, fcntl.LOCK_SH) == fcntl.LOCK_SH:
                return 0
            count = self._sweep()
            _wait(self._lock, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._lock)
            raise
        return count

    def leave(self) -> None:
        """Sign what lies in the folder, unless another run still uses it: then that one will.

        Raises:
            OSError: the manifest cannot be written. The next run removes what is new.
            NoKey: the same.
        """
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sign()
        except BlockingIOError:
            pass
        finally:
            os.close(self._lock)

    def _sweep(self) -> int:
        (files, folders, strange), memo = _look(self.path), read_memo(self._manifest, PURPOSE)
        likely = {name: file for name, file in files.items() if name in memo and memo[name].stamp[0] == file[1][0]}
        contents = take_contents(likely, memo)
        signed = {name: entry for name, entry in contents.items() if entry.digest == memo[name].digest}
        foreign = [*(files.keys() - signed.keys()), *strange]
        self._remove(foreign, files, folders)
        if signed != memo:  # so that what was restored is read once
            write_memo(self._manifest, PURPOSE, signed)
        return len(foreign)

    def _sign(self) -> None:
        """Sign everything but what is unfinished, for its writer was killed."""
        for name in GRAPHS:
            evict(self.path / name, SIZE, ANY)
        evict(self.path / PASSED, SIZE >> 10, ANY)
        (files, folders, strange), memo = _look(self.path), read_memo(self._manifest, PURPOSE)
        stems = [name.removesuffix(_BUILDING) for name in folders if name.endswith(_BUILDING)]
        builds = tuple(stem + end for stem in stems for end in (".", _BUILDING + "/"))
        unfinished = [name for name in files if name.startswith(builds) or name.endswith(".tmp")]
        self._remove(unfinished + strange, files, folders)
        contents = take_contents({name: files[name] for name in files.keys() - {*unfinished}}, memo)
        if contents != memo:
            write_memo(self._manifest, PURPOSE, contents)

    def _remove(self, names: list[str], files: Iterable[str], folders: list[str]) -> None:
        """Remove files, and folders in which nothing is left: torch would take one for a file."""
        for name in names:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                remove_whole_tree(path)
            else:
                os.unlink(path)
        full: set[str] = set()
        for name in {*files} - {*names}:
            while (name := name.rpartition("/")[0]) and name not in full:
                full.add(name)
        for name in reversed(folders):
            if name not in full:
                os.rmdir(self.path / name)


def _look(folder: Path) -> tuple[dict[str, tuple[str, Stamp]], list[str], list[str]]:
    """Return the regular files below a folder, the folders, and what is strange: links, pipes and what has a long path.

    All are named by their path in the folder, and each comes after the folder that it lies in. Links are not followed.
    Raises OSError.
    """
    files: dict[str, tuple[str, Stamp]] = {}
    folders, strange, waiting = list[str](), list[str](), [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                name = prefix + entry.name
                if len(name) > _LONGEST:
                    strange.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                    waiting.append(name + "/")
                elif entry.is_file(follow_symlinks=False):
                    files[name] = entry.path, stamp_of(entry.stat(follow_symlinks=False))
                else:
                    strange.append(name)
    return files, folders, strange


def _wait(lock: int, *kinds: int) -> int:
    """Take the first of some kinds of a lock that is free, and return it. Raises OSError."""
    end = time.monotonic() + PATIENCE
    while True:
        for kind in kinds:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                return kind
            except BlockingIOError:
                pass
        if time.monotonic() > end:
            raise TimeoutError(f"another run has kept it locked for {PATIENCE:.0f} s")
        time.sleep(0.05)


class KernelCaches:
    """The folders of a run.

    Attributes:
        private: a folder for what is compiled where nothing of earlier runs may be used; it goes with the run.
    """

    def __init__(self, private: Path) -> None:
        """Look at nothing yet."""
        self.private = private
        self._pool = ThreadPoolExecutor(thread_name_prefix="kernel-caches")
        self._variables: dict[Path, Future[dict[str, str]]] = {}
        self._folders: list[SignedFolder] = []
        self._refusals: list[str] = []
        self._losses: list[str] = []
        self._removed = 0

    def prepare(self, python: str) -> Future[dict[str, str]]:
        """Begin to check the folders of a Python, in a thread: that reads files and may take seconds."""
        folder = cache_folder(python)
        if folder not in self._variables:
            self._variables[folder] = self._pool.submit(self._check, folder)
        return self._variables[folder]

    def variables(self, python: str) -> dict[str, str]:
        """Return the variables that tell torch and Triton their folders, once these may be used."""
        return self.prepare(python).result()

    def notices(self) -> list[str]:
        """Return which folders are not used, since others may write to them or torch cannot compile there, and what
        mends that."""
        return [f"{text}; this run uses a new folder" for text in dict.fromkeys(self._refusals)]

    def remarks(self) -> list[str]:
        """Return what makes this run slower and is no error."""
        remarks = [f"what is compiled is kept for this run alone: {text}" for text in dict.fromkeys(self._losses)]
        if self._removed:
            remarks.append(
                f"{plural(self._removed, 'file')} of compiled code went, for this user has not signed them, and are "
                "made anew "
                "where needed: a run that was killed leaves such files, and so does a cache from elsewhere"
            )
        return remarks

    def close(self) -> None:
        """Sign what this run has compiled. No process of it may be left."""
        self._pool.shutdown()
        for folder in self._folders:
            with contextlib.suppress(OSError, NoKey):
                folder.leave()
        self._folders.clear()

    def _check(self, folder: Path) -> dict[str, str]:
        folder = folder.with_name(f"{folder.name}-{self._compilers}")
        kernels = self._chosen(CACHE_FOLDER) if os.environ.get(CACHE_FOLDER) else self._signed(folder)
        kernels = kernels or str(self.private / folder.name)
        triton = self._chosen(TRITON_FOLDER) if os.environ.get(TRITON_FOLDER) else ""
        return {CACHE_FOLDER: kernels, TRITON_FOLDER: triton or os.path.join(kernels, "triton")}

    @functools.cached_property
    def _compilers(self) -> str:
        """Torch takes what one compiler has made for another one of the same name."""
        return compilers_digest(os.environ)[:16]

    def _chosen(self, name: str) -> str:
        """Return the folder that a person chose; empty if others may write to it, or torch cannot compile there."""
        folder = os.path.abspath(os.environ[name])
        weakness = ""
        with contextlib.suppress(OSError):  # what is wrong with it shows when something is compiled
            weakness = make_folder(Path(folder))
        if name == CACHE_FOLDER:
            weakness = weakness or scratch.compile_problem(folder)
        if weakness:
            self._refusals.append(f"{name}: {weakness}")
        return "" if weakness else folder

    def _signed(self, path: Path) -> str:
        """Return the runner's own folder, swept; empty if it cannot be used."""
        if problem := scratch.compile_problem(str(path)):
            self._losses.append(problem)
            return ""
        try:
            user_key()
            if weakness := make_own_folder(path):
                self._refusals.append(weakness)
                return ""
            folder = SignedFolder(path)
            self._removed += folder.enter()
        except (OSError, NoKey) as error:
            self._losses.append(str(error) if isinstance(error, NoKey) else f"{path}: {error.strerror or error}")
            return ""
        self._folders.append(folder)
        return str(path)
