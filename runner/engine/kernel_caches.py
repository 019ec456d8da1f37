"""Where the workers of a run keep what they compile: a signed folder for each Python and its compilers, or one that
goes with the run.

A folder that a person chose by ``TORCHINDUCTOR_CACHE_DIR`` or ``TRITON_CACHE_DIR`` is used as it is, unless others may
write to it. Where torch cannot compile in a folder, for a blank in its path for example, the one that goes with the run
is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from runner.contract.settings import CACHE_FOLDER, TRITON_FOLDER
from runner.engine import scratch
from runner.engine.cache_folders import cache_folder, make_folder, make_own_folder
from runner.engine.compilers import compilers_digest
from runner.engine.signed_folder import SignedFolder
from runner.record.signing import NoKey, user_key
from runner.text import plural


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
        private = self.private / folder.name
        kernels = self._chosen(CACHE_FOLDER) if os.environ.get(CACHE_FOLDER) else self._signed(folder)
        triton = self._chosen(TRITON_FOLDER) if os.environ.get(TRITON_FOLDER) else ""
        kernels = kernels or str(private)
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
            reason = str(error) if isinstance(error, NoKey) else f"{path}: {error.strerror or error}"
            self._losses.append(reason)
            return ""
        self._folders.append(folder)
        return str(path)
