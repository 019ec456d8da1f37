"""The files that a plan is made of: which these are, when they change, and which variants mean another thing then.

Files are looked at several times a second: a few hundred cost a millisecond, on any file system, in containers too. An
editor may write a file in parts, or remove it and rename another one to its name. So a change counts once nothing has
changed for a moment, and a file that is gone gets a longer one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.builder.stored_tensors import tensor_files
from runner.cases.model import Backend
from runner.cases.python_files import own_imports
from runner.cases.suites import LEDGER, SPEC, SUITE
from runner.cases.tensor_files import ENDING, StoredTensor, digest_of
from runner.cases.torch_names import PLANTED
from runner.cases.walk import inputs_of
from runner.engine.fingerprint import Fingerprint, Stamp, stamp_of
from runner.engine.interpreters import package_folders
from runner.record.events import Key
from runner.session.collect import Loaded
from runner.session.history import key_of
from runner.session.nodes import cut_path
from runner.session.plan import Planned, worker_paths
from runner.session.run import Plan
from runner.session.settings import RunSettings
from runner.session.shards import ledger_texts, plan_hash

PERIOD = 0.1
"""Seconds between two looks."""
_QUIET = 0.05
"""Seconds without a change after which a file is whole."""
_ABSENCE = 0.3
"""Seconds that an editor may take between the removal of a file and its new version."""
_PATIENCE = 2.0
"""Seconds after which a file is read although it does not come to rest."""
_GRAIN = 2 * 10**9
"""Nanoseconds; a folder that has changed since may change again and keep its time."""
_ENDINGS = (SPEC, SUITE, LEDGER, ENDING, ".py")
"""Of files whose appearance in a folder may mean something."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})

_Names = frozenset[str]


@dataclass(slots=True)
class Watcher:
    """Notices changes of files, and of the names in folders. What is looked at grows by ``add``."""

    _files: dict[str, Stamp] = field(default_factory=dict)  # an empty stamp: it is not there
    _folders: dict[str, tuple[int, _Names]] = field(default_factory=dict)  # the time of its last change, and its names
    _changes: set[str] = field(default_factory=set)

    def add(self, files: Iterable[str], folders: Iterable[str]) -> bool:
        """Look at these too, from now on, and return whether any file is new.

        What was read of a new file before this call may be older than what is looked at: it is to be read once more.
        """
        new = [file for file in files if file not in self._files]
        self._files |= {file: _stamp(file) for file in new}
        self._folders |= {folder: _names(folder) for folder in folders if folder not in self._folders}
        return bool(new)

    @property
    def count(self) -> int:
        """Return how many files are looked at and are there."""
        return sum(map(bool, self._files.values()))

    def has_changes(self) -> bool:
        """Look, and return whether anything has changed since ``wait`` returned the last time."""
        for file, known in self._files.items():
            if (stamp := _stamp(file)) != known:
                self._files[file] = stamp
                self._changes.add(file)
        for folder, (moment, names) in self._folders.items():
            if _moment(folder) != moment:
                self._folders[folder] = now = _names(folder)
                self._changes |= {folder} if now[1] != names else set()
        return bool(self._changes)

    def wait(self, sleep: Callable[[float], object] = time.sleep) -> set[str]:
        """Wait until something has changed and has come to rest; return the files and folders that changed."""
        while not self.has_changes():
            sleep(PERIOD)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            before = len(self._changes), {**self._files}
            is_gone = any(file in self._files and not self._files[file] for file in self._changes)
            sleep(_ABSENCE if is_gone else _QUIET)
            self.has_changes()
            if before == (len(self._changes), self._files):
                break
        changes, self._changes = self._changes, set()
        return changes


def _stamp(file: str) -> Stamp:
    try:
        return stamp_of(os.stat(file))
    except (OSError, ValueError):
        return ()


def _moment(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except (OSError, ValueError):
        return 0


def _names(folder: str) -> tuple[int, _Names]:
    """Return the time of a folder's last change, -1 where it is too new to tell, and the names that matter."""
    moment = _moment(folder)
    try:
        with os.scandir(folder) as entries:
            names = frozenset(entry.name for entry in entries if _matters(entry))
    except (OSError, ValueError):
        names = frozenset()
    return moment if moment < time.time_ns() - _GRAIN else -1, names


def _matters(entry: os.DirEntry[str]) -> bool:
    """Return whether a name may be a file of a case, or a folder of such. Editors' own files are hidden."""
    is_hidden = entry.name.startswith(".") or entry.name == "__pycache__"
    return not is_hidden and (entry.name.endswith(_ENDINGS) or entry.is_dir(follow_symlinks=False))


@dataclass(frozen=True, slots=True)
class Code:
    """The Python outside torch that variants name: backends as ``package:function``, and modules of ``--import``.

    ``files`` are those of each module by its first name, ``imports`` the modules that each variant has.
    """

    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    imports: tuple[str, ...] = ()

    @property
    def edited(self) -> set[str]:
        """Return the files that somebody may edit: those of installed packages are looked at before a run alone."""
        files = {file for files in self.files.values() for file in files}
        return {file for file in files if not _INSTALLED & {*Path(file).parts}}

    def stamps(self, backend: Backend) -> list[tuple[str, Stamp]]:
        """Return what tells whether the code of a variant under this backend is still the same."""
        names = {*self.imports, *_module(backend)}
        return [(file, _stamp(file)) for name in sorted(names) for file in self.files.get(name, ())]


def _module(backend: Backend) -> Iterator[str]:
    if ":" in backend.backend and backend.backend not in PLANTED:
        yield backend.backend.partition(":")[0].partition(".")[0]


def find_code(planned: Plan, settings: RunSettings) -> Code:
    """Return the code that a plan names, with files as the first interpreter finds them.

    Raises:
        OSError: the interpreter does not answer.
    """
    variants = [item.variant for item in planned.planned]
    imports = tuple(dict.fromkeys(name.partition(".")[0] for name in settings.imports))
    names = [*dict.fromkeys([*imports, *(name for variant in variants for name in _module(variant.backend))])]
    if not names:
        return Code()
    places = package_folders(planned.environments[0].python, names, worker_paths(settings, variants))
    return Code({name: tuple(sorted(_code_files(Path(place)))) for name, place in places.items()}, imports)


def _code_files(place: Path) -> Iterator[str]:
    """Yield the files of a package, or a module's with those of its folder that it imports."""
    if not place.is_dir():
        yield str(place)
        yield from _imported(place)
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(folder, name) for name in names)


def _imported(file: Path) -> Iterator[str]:
    return (str(file.parent / name) for name in own_imports(file))


def files_of(loaded: Loaded, paths: Sequence[str], settings: RunSettings) -> set[str]:
    """Return the absolute paths of all files that were read for these paths: of wrong ones too, and of absent ones
    that somebody typed."""
    files = {cut_path(path)[0] for path in paths} | {*settings.ledger}
    files |= {diagnostic.span.file for diagnostic in loaded.diagnostics}
    for suite in loaded.suites:
        files |= {suite.file, *(entry.span.file for entry in suite.ledger)}
        for case in suite.cases:
            python = case.files - {case.file}
            files |= {case.file, *python, *map(str, tensor_files(case))}
            files |= {name for file in python for name in _imported(Path(file))}
    return {os.path.abspath(file) for file in files if not os.path.isdir(file)}


def folders_of(files: Iterable[str], paths: Sequence[str]) -> set[str]:
    """Return the folders of files, and each folder among the paths with those below it that are not hidden."""
    folders = {os.path.dirname(file) for file in files}
    for path in (cut_path(path)[0] for path in paths):
        for folder, below, _ in os.walk(path):
            below[:] = [name for name in below if not name.startswith(".")]
            folders.add(os.path.abspath(folder))
    return folders


def contents_of(planned: Plan, fingerprints: Mapping[str, Fingerprint], code: Code) -> dict[Key, str]:
    """Return a digest of all that the verdict of each variant depends on: its case with the files of that, its
    backend, its entries in ledgers, the code that it names, and the fingerprint of its interpreter."""
    return {key_of(item): _content(item, fingerprints[item.environment.key], code) for item in planned.planned}


def _content(each: Planned, fingerprint: Fingerprint, code: Code) -> str:
    variant = each.variant
    tensors = [_tensor(item.stored) for item in inputs_of(variant.case) if item.stored]
    stamps = code.stamps(variant.backend)
    return plan_hash([each], *ledger_texts([variant]), *tensors, repr(stamps), fingerprint.digest)


def _tensor(stored: StoredTensor) -> str:
    try:
        return digest_of(stored)
    except OSError as error:  # it has gone since the case was read, and the case will say so
        return str(error)
