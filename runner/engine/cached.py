"""What earlier runs leave to later ones: a cache of results in front of an engine, and the keys of compiled graphs.

The cache answers jobs that an earlier run has answered, and stores the answers of this one. The key of an answer is a
hash of everything that can change it: the job, without its names and limits, and the fingerprint of its interpreter
(``fingerprint.py``). A worker says what code its process had loaded: an answer counts only while all of that is
unchanged. An answer that anything else may have decided is never stored. A cache that cannot be read or written makes
a run slower, never different. An answer counts only with this user's signature. The session runs a job
again where a stored answer would make the verdict red. A failure that the ledger knows may be an old one.

torch loads a graph instead of compiling it where nothing has changed that its key or ours names. What fails with a
loaded graph is compiled again before it counts (``runner/session/variant_run.py``), so that only a pass can rest on
one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.contract.job import ISOLATION, Job
from runner.engine.fingerprint import Fingerprint
from runner.engine.messages import ClosableEngine, Outcome
from runner.files import entries_below, foreign_link, link_problem
from runner.record.signing import NoKey, read_signed, write_signed

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

    ``reused`` and ``stored`` count answers. ``problem`` is one line: why an answer could not be stored; else empty.
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
        self.reused = self.stored = 0
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
            self.reused += 1
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

    def notices(self) -> list[str]:
        """Return what a person should know: why nothing was taken or kept, and what the engine says."""
        dirty = sorted({fingerprint.dirty for fingerprint in self.fingerprints.values() if fingerprint.dirty})
        notices = [*self.engine.notices(), *(f"--cached: nothing is taken or kept: {text}" for text in dirty)]
        return [*notices, f"--cached: {self.problem}"] if self.problem else notices

    def remarks(self) -> list[str]:
        """Return what makes the run slower and is no error."""
        return self.engine.remarks()

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
            entry = read(path)
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
                write(self._path(cache_key, job.isolation), self.run, {**values, "code": code})
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
    fields = {name: value for name, value in dataclasses.asdict(job).items() if name not in NOT_IN_KEY}
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


def write(path: Path, run: str, outcome: Mapping[str, Any]) -> None:
    """Store an answer, whole or not at all. Raises OSError, and NoKey where nothing can be signed."""
    if problem := link_problem(path.parent):
        raise OSError(errno.ELOOP, problem, str(path))
    write_signed(path, json.dumps([run, outcome], sort_keys=True, default=repr), "result", VERSION, path.name)


def read(path: Path) -> dict[str, Any] | None:
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
    ``--cached`` would not keep loads none either. Nor does one that measures the compiler: its time, or what of it is
    reached.

    The key is that of a result, but for the seed. The program and its settings are part of it: torch's own key of a
    backward lacks which of its inputs Inductor may overwrite (``donated_buffer``), so that in 2.13 a program could load
    what another compiled.
    """
    if fingerprint is None or not is_cacheable(job, fingerprint):
        return ""
    is_usual = job.backend.get("backend") == "inductor" and job.backend.get("mode") in (None, "default")
    is_measured = job.compile_timeout is not None or bool(job.coverage)
    names = [*job.config, *(job.backend.get("options") or ())]
    is_meant = any(word in name for name in names for word in _REFUSED)
    if not is_usual or is_measured or is_meant or job.device != "cpu" or job.isolation != "fork" or job.variables:
        return ""
    return make_cache_key(replace(job, seed=0), fingerprint)
