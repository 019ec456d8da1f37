"""What questions about one failure were answered, kept in ``.runner`` so that a later command goes on from there.

An answer is found again under a key of all that decides about it: the job, id, case, the bytes of its file, suite,
torch, this machine, and the code of ``runner``. It counts only with this user's signature. Of a question that anything
else may decide about, such as the code of a foreign backend, only the answers are kept that guide a search: what the
search ends with is asked anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import runner
from runner.contract.job import Job
from runner.diagnose.harness import VariantEngine
from runner.engine.caches import evict, is_cacheable, make_cache_key, read_answer, write_answer
from runner.engine.fingerprint import code_digest, take_fingerprints
from runner.engine.messages import Outcome
from runner.files import read_bytes
from runner.record.signing import NoKey
from runner.record.store import FOLDER
from runner.session.plan import job
from runner.session.scheduler import Scheduler, with_reference
from runner.session.shards import plan_hash

SIZE = 16 << 20
"""Bytes that the answers of one kind may take; beyond, the oldest go."""

GUIDED = "cut"
"""The task whose answers guide a later one."""
_LIMITS = ("seconds", "budget", "answers")
"""Arguments of a task that are no part of its question."""

INTERRUPTED, OUT_OF_TIME = "interrupted", "the time was up"
"""Why not all questions were answered."""


class OutOfTime(Exception):
    """Raised by a tick: no more time is to be spent."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The outcome of each job; None where it was stopped. ``stopped`` says why, empty where it was not.

    An outcome of a task that was stopped is what the task knew by then.
    """

    outcomes: Sequence[Outcome | None]
    stopped: str = ""


class Keys:
    """Makes keys of questions about an engine's variant."""

    def __init__(self, engine: VariantEngine) -> None:
        python = engine.environment.python
        self._fingerprint = take_fingerprints([python])[python]
        self._parts = [
            plan_hash([engine.planned]),
            engine.variant.id,
            engine.variant.case.file,
            engine.environment.build,
            repr(engine.limits),
            hashlib.sha256(read_bytes(engine.variant.case.file)).hexdigest(),
            code_digest(Path(runner.__file__).parent),
        ]

    def of(self, question: Job) -> str:
        """Return the key of a question: a hash of all that is known to decide about its answer."""
        arguments = {name: value for name, value in question.arguments.items() if name not in _LIMITS}
        parts = [make_cache_key(replace(question, arguments=arguments), self._fingerprint), *self._parts]
        return hashlib.sha256(json.dumps(parts).encode(errors="surrogatepass")).hexdigest()

    def is_whole(self, question: Job) -> bool:
        """Return whether nothing else may decide. What the code of a foreign backend loads is known only after it
        ran."""
        asked = replace(question, cacheable=not question.foreign, task="judge")
        return is_cacheable(asked, self._fingerprint)


def whole_path(engine: VariantEngine, kind: str) -> Path | None:
    """Return where the answers of a kind about the whole variant lie; None where no key names all that decides about
    them."""
    question = job(engine.planned, engine.source, seed=engine.seed, imports=engine.imports, paths=engine.paths)
    keys = Keys(engine)
    return path_in(kind, keys.of(question)) if keys.is_whole(question) and question.cacheable else None


def path_in(kind: str, key: str) -> Path:
    """Return the file of an answer of a kind."""
    return Path(FOLDER, kind, key[:2], f"{key}.json")


def write(path: Path, answer: Mapping[str, Any]) -> None:
    """Keep an answer. A folder that cannot be written costs only time later."""
    with contextlib.suppress(OSError, NoKey):
        write_answer(path, datetime.now().strftime("%Y-%m-%d %H:%M"), answer)
        evict(path.parent.parent, SIZE)


def gather(engine: VariantEngine, jobs: Sequence[Job], tick: Callable[[], None]) -> Gathered:
    """Run jobs that judge or bisect, but for those whose answers are kept, and keep each answer as it comes.

    ``tick`` is called several times a second. It may raise OutOfTime.
    """
    if not jobs:
        return Gathered(())
    memory = _Memory(engine)
    outcomes = {asked.key: memory.recall(asked) for asked in jobs}
    scheduler: Scheduler[list[Outcome]] = Scheduler(engine.local_engine)
    for asked in jobs:
        if outcomes[asked.key] is None:
            scheduler.start(asked.key, with_reference([memory.guided(asked)]))
    stopped = ""
    try:
        while len(scheduler):
            scheduler.wait(0.2)
            for name, (outcome,) in scheduler.results():
                outcomes[name] = outcome
                memory.keep(outcome)
            memory.note(engine.local_engine.known())
            tick()
    except (KeyboardInterrupt, OutOfTime) as reason:
        stopped = INTERRUPTED if isinstance(reason, KeyboardInterrupt) else OUT_OF_TIME
        scheduler.cancel()
    partial = {asked.key: memory.so_far(asked, stopped) for asked in jobs} if stopped else {}
    return Gathered([outcomes[asked.key] or partial.get(asked.key) for asked in jobs], stopped)


class _Memory:
    """Answers of earlier questions about a variant, and those of this one."""

    def __init__(self, engine: VariantEngine) -> None:
        self._keys = Keys(engine)
        self._paths: dict[str, Path | None] = {}
        self._known: dict[str, Mapping[str, Any]] = {}

    def recall(self, asked: Job) -> Outcome | None:
        """Return the kept outcome of a job."""
        is_whole = self._keys.is_whole(asked)
        kept_in = path_in("answers", self._keys.of(asked))
        self._paths[asked.key] = kept_in if is_whole or asked.task == GUIDED else None
        kept = self._read(asked) if is_whole and asked.task != GUIDED else {}
        return Outcome(job=asked, ended="result", seconds=0.0, result=kept) if kept else None

    def guided(self, asked: Job) -> Job:
        """Return a job that has the answers of an earlier one, where these guide it."""
        if asked.task != GUIDED:
            return asked
        return replace(asked, arguments={**asked.arguments, "answers": self._read(asked)})

    def keep(self, outcome: Outcome) -> None:
        """Keep an outcome. One that a limit or a doubt ended says nothing about the next time."""
        path, result = self._paths[outcome.job.key], outcome.result
        is_lasting = outcome.ended == "result" and not any(map(result.get, ("trust", "error", "note")))
        if path is not None and is_lasting and outcome.job.task != GUIDED:
            write(path, result)

    def note(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what tasks that run know so far."""
        for key, said in known.items():
            path = self._paths.get(key)
            if path is not None and self._known.get(key) != said:
                write(path, said.get("answers") or {})
                self._known[key] = dict(said)

    def so_far(self, asked: Job, stopped: str) -> Outcome | None:
        """Return what a task that was stopped knew, as its outcome."""
        result = self._known.get(asked.key, {}).get("result")
        if not isinstance(result, Mapping):
            return None
        return Outcome(job=asked, ended="result", seconds=0.0, result={**result, "note": stopped})

    def _read(self, asked: Job) -> Mapping[str, Any]:
        path = self._paths[asked.key]
        entry = read_answer(path) if path is not None else None
        return dict(entry["outcome"]) if entry is not None else {}
