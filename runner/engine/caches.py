"""What earlier runs leave to later ones: results, keys of compiled graphs, and folders of compiled code.

A cache of results lies in front of an engine. It answers jobs that an earlier run has answered, and stores the answers
of this one. The key of an answer is a hash of everything that can change it: the job, without its names and limits, and
the fingerprint of its interpreter (``fingerprint.py``). A worker says what code its process had loaded: an answer
counts only while all of that is unchanged. An answer that anything else may have decided is never stored. A cache that
cannot be read or written makes a run slower, never different. An answer counts only with this user's signature. The
session runs a job again where a stored answer would make the verdict red. A failure that the ledger knows may be an old
one.

torch loads a graph instead of compiling it where nothing has changed that its key or ours names. What fails with a
loaded graph is compiled again before it counts (``runner/session/variant_run.py``), so that only a pass can rest on
one.

The workers of a run keep what they compile in a signed folder for each Python and its compilers, or in one that goes
with the run. A folder that a person chose by ``TORCHINDUCTOR_CACHE_DIR`` or ``TRITON_CACHE_DIR`` is used as it is,
unless others may write to it. Where torch cannot compile in a folder, for a blank in its path for example, the one that
goes with the run is used.

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
import errno
import fcntl
import functools
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from runner.contract.job import ISOLATION, Job
from runner.contract.settings import CACHE_FOLDER, PASSED, TRITON_FOLDER
from runner.engine import scratch
from runner.engine.cache_folders import cache_folder, make_folder, make_own_folder
from runner.engine.fingerprint import (
    Fingerprint,
    Stamp,
    compilers_digest,
    read_memo,
    stamp_of,
    take_contents,
    write_memo,
)
from runner.engine.messages import ClosableEngine, Outcome
from runner.files import entries_below, foreign_link, link_problem, remove_whole_tree
from runner.record.events import Notice
from runner.record.signing import NoKey, read_signed, user_key, write_signed
from runner.text import plural

VERSION = 3
"""Of the files. Another one is a miss."""

SIZE = 512 << 20
"""Bytes that the files may take; beyond, those that were not used for longest go."""

LONGEST = 64 << 20
"""Bytes of one file; a longer one is a miss."""

STORED = re.compile(r"([0-9a-f]{2})/(?:\1[0-9a-f]{62}\.json|tmp\w{8}\.tmp)")
"""Paths of answers in their folder, and of what a killed writer leaves."""

ANY = re.compile(r".*", re.DOTALL)
"""Paths in a folder that holds nothing but the runner's files."""

NOT_IN_KEY = frozenset(
    {
        "key",
        "id",
        "environment",
        "timeout",
        "memory",
        "isolation",
        "alone",
        "cacheable",
        "foreign",
        "graphs",
        "lists_code",
    }
)
"""Fields of a job that are not part of its question: names, and limits, since what was reached under one is valid
under another. ``isolation`` is added to the question apart."""

_WRITTEN_FROM = re.compile(r'\nWritten from [^\n]*\n"""\n')
"""The line of a source's docstring that says where the case lies, which differs between checkouts."""

_Answer = tuple[str, frozenset[tuple[str, str]], str]


class CachedEngine(contextlib.AbstractContextManager["CachedEngine"]):
    """Runs jobs on ``engine``, except those whose answer is in ``folder``.

    All other attributes of the engine can be read through the cache.

    A run never answers itself: what it stores is for later ones, so that asking again (a retry, a fresh process to
    confirm a failure) really asks. Two answers of one run that disagree leave nothing in the cache.

    ``stored`` counts answers. ``problem`` is one line: why an answer could not be stored; else empty.
    """

    def __init__(
        self,
        engine: ClosableEngine,
        folder: str | os.PathLike[str],
        fingerprints: Mapping[str, Fingerprint],
        run: str,
        size: int = SIZE,
    ) -> None:
        """Nothing is read or written before the first job.

        Args:
            engine: what runs the jobs that nothing is known of.
            folder: where answers are kept; made when there is one.
            fingerprints: by name of a job's environment. Jobs of any other are passed on.
            run: this run's name, for the outcomes of later ones.
            size: bytes that the folder may hold.
        """
        self.engine, self.folder, self.fingerprints, self.run, self.size = engine, Path(folder), fingerprints, run, size
        self.stored = 0
        self.problem = ""
        self._hits: list[Outcome] = []
        # Key of a job that the engine has -> its question, or "" if it is not to be kept.
        self._cache_keys: dict[str, str] = {}
        self._answers: dict[str, _Answer | None] = {}  # question -> this run's answer; None when there were two

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)  # such as hello

    def __exit__(self, *exception: object) -> None:
        self.close()

    def submit(self, job: Job) -> None:
        """Answer a job at the next ``wait`` from the cache, or let it run. Raises what the engine raises."""
        fingerprint = self.fingerprints.get(job.environment)
        cache_key = (
            make_cache_key(job, fingerprint) if fingerprint is not None and is_cacheable(job, fingerprint) else ""
        )
        outcome = self._find(cache_key, job) if cache_key and cache_key not in self._answers else None
        if outcome is not None:
            self._hits.append(outcome)
            return
        self._cache_keys[job.key] = cache_key
        self.engine.submit(job)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Return the outcomes from the cache at once, with those of the engine; wait for the engine only without
        any."""
        outcomes, self._hits = self._hits, []
        if outcomes and not self._cache_keys:
            return outcomes
        for outcome in self.engine.wait(0.0 if outcomes else timeout):
            self._take(outcome)
            outcomes.append(outcome)
        return outcomes

    def pending(self) -> int:
        """Return how many submitted jobs ``wait`` has not returned yet."""
        return len(self._hits) + len(self._cache_keys)

    def running(self) -> list[tuple[Job, float, str]]:
        """Return the jobs that run now, each with its seconds so far and its phase."""
        return self.engine.running()

    def notices(self) -> list[Notice]:
        """Return what a person should know: why nothing was taken or kept, and what the engine says."""
        dirty = sorted({fingerprint.dirty for fingerprint in self.fingerprints.values() if fingerprint.dirty})
        texts = [*(f"nothing is taken or kept: {text}" for text in dirty), *filter(None, [self.problem])]
        return [*self.engine.notices(), *(Notice(f"--cached: {text}") for text in texts)]

    def cancel_all(self) -> list[Job]:
        """Kill what runs, drop what waits. Returns the jobs that will now have no outcome."""
        dropped = self.engine.cancel_all()
        for job in dropped:
            self._cache_keys.pop(job.key, None)
        return dropped

    def close(self) -> None:
        """Close the engine, and take the oldest answers out if there are too many. Can be called twice."""
        self.engine.close()
        for fingerprint in self.fingerprints.values():
            fingerprint.places.save()
        if self.stored:
            with contextlib.suppress(OSError):
                evict(self.folder, self.size)

    def _find(self, cache_key: str, job: Job) -> Outcome | None:
        """A stored answer. One from a process that shared less is as good."""
        for isolation in ISOLATION_FROM.get(job.isolation, (job.isolation,)):
            path = self._path(cache_key, isolation)
            entry = read_answer(path)
            if entry is None or entry["run"] == self.run:
                continue
            if entry["outcome"].pop("code") == self._code_digest(job, entry["outcome"]["result"]):
                with contextlib.suppress(OSError):
                    os.utime(path)  # so that it is not the oldest; a read-only folder is fine
                return Outcome(job, "result", cached=entry["run"], **entry["outcome"])
        return None

    def _code_digest(self, job: Job, result: Mapping[str, Any]) -> str:
        """Return the digest of what lies now where the process behind a result had loaded code from; empty where nobody
        can tell."""
        return self.fingerprints[job.environment].places.digest(result.get("code", ()))

    def _take(self, outcome: Outcome) -> None:
        """Keep an outcome, if it may be kept."""
        job = outcome.job
        cache_key = self._cache_keys.pop(job.key, "")
        if not cache_key:
            return
        answer = _answer(outcome)
        if self._answers.setdefault(cache_key, answer) != answer:
            self._answers[cache_key] = None
            for isolation in ISOLATION:
                with contextlib.suppress(OSError):
                    self._path(cache_key, isolation).unlink(missing_ok=True)
        elif is_lasting(outcome) and (code := self._code_digest(job, outcome.result)):
            values = {name: getattr(outcome, name) for name in ("seconds", "phase", "result", "output")}
            try:
                write_answer(self._path(cache_key, job.isolation), self.run, {**values, "code": code})
                self.stored += 1
            except (OSError, NoKey) as error:
                self.problem = f"results cannot be kept in {self.folder} ({getattr(error, 'strerror', None) or error})"

    def _path(self, cache_key: str, isolation: str) -> Path:
        digest = hashlib.sha256(f"{cache_key} {isolation}".encode()).hexdigest()
        return self.folder / digest[:2] / f"{digest}.json"


ISOLATION_FROM = {"living": ("living", "fork", "fresh"), "fork": ("fork", "fresh"), "fresh": ("fresh",)}
"""A job's isolation to those whose answers will do."""


def make_cache_key(job: Job, fingerprint: Fingerprint) -> str:
    """Return a hash of all that decides about a job's outcome but its isolation."""
    fields = {name: value for name, value in asdict(job).items() if name not in NOT_IN_KEY}
    if job.source.startswith('"""'):
        fields["source"] = _WRITTEN_FROM.sub('\nWritten from\n"""\n', job.source, count=1)
    text = json.dumps([VERSION, fingerprint.digest, fields], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def is_cacheable(job: Job, fingerprint: Fingerprint) -> bool:
    """Return whether a job may be answered from the cache, and kept in it: the key names all that decides about it."""
    is_named = job.cacheable and not (job.imports or job.paths or ":" in str(job.backend.get("backend", "")))
    is_known = job.device.partition(":")[0] in fingerprint.devices
    return is_named and is_known and job.task == "judge" and not fingerprint.dirty


def is_lasting(outcome: Outcome) -> bool:
    """Return whether an outcome says something about the next time.

    It is a result without a doubt, of one run on this machine. What ran before in a living process may be to blame for
    its findings.
    """
    record = outcome.record
    is_own = not (outcome.lost or outcome.host or outcome.cached)
    is_blameless = not (record.findings and outcome.job.isolation == "living")
    return outcome.ended == "result" and record.trust is None and is_own and is_blameless


def _answer(outcome: Outcome) -> _Answer:
    """Return an outcome without its numbers: how it ended, the kinds of its findings, and the verdict that replaces
    them, if any."""
    record = outcome.record
    kinds = frozenset((finding.oracle, str((finding.error or {}).get("type"))) for finding in record.findings)
    return outcome.ended, kinds, str(record.trust and record.trust.verdict)


def write_answer(path: Path, run: str, outcome: Mapping[str, Any]) -> None:
    """Store an answer, whole or not at all. Raises OSError, and NoKey where nothing can be signed."""
    if problem := link_problem(path.parent):
        raise OSError(errno.ELOOP, problem, str(path))
    write_signed(path, json.dumps([run, outcome], sort_keys=True, default=repr), "result", VERSION, path.name)


def read_answer(path: Path) -> dict[str, Any] | None:
    """Return a stored answer as ``run`` and ``outcome``; None unless its signature shows that this user stored it
    here."""
    try:
        run, outcome = json.loads(read_signed(path, LONGEST, "result", VERSION, path.name))
        return {"run": run, "outcome": outcome}
    except (OSError, ValueError, NoKey):
        return None


def evict(folder: Path, size: int, names: re.Pattern[str] = STORED) -> None:
    """Remove the files below a folder that were not used for longest until a tenth of ``size`` bytes is free. Raises
    OSError.

    Only regular files count whose path in the folder is one of ``names``: any other file is somebody else's. Nothing
    goes behind a link, which may have come with a checkout.
    """
    if foreign_link(folder):
        return
    files = []
    for entry in entries_below(folder):
        with contextlib.suppress(OSError):  # another runner was quicker
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and names.fullmatch(os.path.relpath(entry.path, folder)):
                files.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(length for _, length, _ in files)
    if total <= size:
        return
    for _, length, path in sorted(files):
        if total <= size * 9 // 10:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total -= length


_REFUSED = ("cache", "autotune")
"""Words in names of settings: a case that sets a cache means it, and what is chosen by time may be chosen otherwise."""


def graphs_digest(job: Job, fingerprint: Fingerprint | None) -> str:
    """Return the key of the graphs that a job may load, beside what torch's own key holds; empty if it is to compile
    all.

    Loaded are graphs of Inductor in its usual mode, on the CPU, in a process of the job's own. A job whose result
    ``--cached`` would not keep loads none either. Nor does one that measures the compiler: its time, what of it is
    reached, or a mutant of it.

    The key is that of a result, but for the seed. The program and its settings are part of it: torch's own key of a
    backward lacks which of its inputs Inductor may overwrite (``donated_buffer``), so that in 2.13 a program could load
    what another compiled.
    """
    if fingerprint is None or not is_cacheable(job, fingerprint):
        return ""
    is_usual = job.backend.get("backend") == "inductor" and job.backend.get("mode") in (None, "default")
    is_measured = job.compile_timeout is not None or bool(job.coverage) or bool(job.mutant)
    names = [*job.config, *(job.backend.get("options") or ())]
    is_meant = any(word in name for name in names for word in _REFUSED)
    if not is_usual or is_measured or is_meant or job.device != "cpu" or job.isolation != "fork" or job.variables:
        return ""
    return make_cache_key(replace(job, seed=0), fingerprint)


PURPOSE = "compiled code"
GRAPHS = ("fxgraph", "aotautograd")
"""Where torch keeps graphs: Inductor's, and those of AOTAutograd that refer to them."""
GRAPHS_SIZE = 1 << 30
"""Bytes that each of the folders of graphs may take. A variant of three operators takes a quarter of a megabyte."""
PATIENCE = 60.0
"""Seconds to wait for a run that sweeps the folder or writes the manifest."""

_LONGEST_PATH = 1000
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
            evict(self.path / name, GRAPHS_SIZE, ANY)
        evict(self.path / PASSED, GRAPHS_SIZE >> 10, ANY)
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
                if len(name) > _LONGEST_PATH:
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


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
        self._identities: dict[str, tuple[int, int]] = {}  # device and inode of each folder when it was checked
        self._notices: list[Notice] = []
        self._removed = 0

    def prepare(self, python: str) -> Future[dict[str, str]]:
        """Begin to check the folders of a Python, in a thread: that reads files and may take seconds.

        The result are the variables that tell torch and Triton their folders, once these may be used.
        """
        folder = cache_folder(python)
        if folder not in self._variables:
            self._variables[folder] = self._pool.submit(self._check, folder)
        return self._variables[folder]

    def notices(self) -> list[Notice]:
        """Return which folders are not used, and what makes this run slower and is no error.

        Others may write to a folder, or torch cannot compile there: the text says what mends that.
        """
        removal = Notice(
            f"{plural(self._removed, 'file')} of compiled code went, for this user has not signed them, and are "
            "made anew where needed: a run that was killed leaves such files, and so does a cache from elsewhere",
            "info",
        )
        return [*dict.fromkeys(self._notices), *([removal] if self._removed else [])]

    def is_whole(self) -> bool:
        """Return whether each folder is still the one that was checked: a warm process remembers files in it."""
        return all(_identity(path) == identity for path, identity in self._identities.items())

    def _refuse(self, reason: str) -> None:
        self._notices.append(Notice(f"{reason}; this run uses a new folder"))

    def _lose(self, reason: str) -> None:
        self._notices.append(Notice(f"what is compiled is kept for this run alone: {reason}", "info"))

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
        present = {path: _identity(path) for path in (kernels, triton) if path}
        self._identities |= {path: identity for path, identity in present.items() if identity is not None}
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
            self._refuse(f"{name}: {weakness}")
        return "" if weakness else folder

    def _signed(self, path: Path) -> str:
        """Return the runner's own folder, swept; empty if it cannot be used."""
        if problem := scratch.compile_problem(str(path)):
            self._lose(problem)
            return ""
        try:
            user_key()
            if weakness := make_own_folder(path):
                self._refuse(weakness)
                return ""
            folder = SignedFolder(path)
            self._removed += folder.enter()
        except (OSError, NoKey) as error:
            self._lose(str(error) if isinstance(error, NoKey) else f"{path}: {error.strerror or error}")
            return ""
        self._folders.append(folder)
        return str(path)
