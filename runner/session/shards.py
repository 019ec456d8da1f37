"""A plan in parts, one a machine; a hash of the whole plan, by which parts that belong together know each other; and
one run out of the runs of all parts.

What does not belong together, or is not whole, is refused with what to do.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import heapq
import itertools
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from runner import __version__, exit_codes
from runner.cases.model import Case, Kernel, Literal, PythonModule, Variant
from runner.cases.python_files import own_imports
from runner.diagnostics import Span
from runner.files import read_text
from runner.record.events import (
    RED,
    Event,
    Key,
    Notice,
    RunFinished,
    RunResumed,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    finished_of,
    planned_of,
    start_of,
)
from runner.record.journal import lines, parse_line
from runner.session.plan import Planned
from runner.session.settings import Shard, parse_shard

_PYTHON = (PythonModule, Kernel)
"""What names a Python file: its text counts, and not where it lies."""
_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis)})


def chosen(planned: Sequence[Planned], shard: Shard, seconds: Mapping[str, float] | None = None) -> list[Planned]:
    """What belongs to a shard, in the plan's order; every environment of a variant goes to the same one.

    By a hash of the variant's id, so that a variant stays in its shard whatever else is planned. With ``seconds`` by
    variant id, so that all shards take about as long; every shard must then be given the same ones. Ids that are not
    among them count as the median.
    """
    ids = list(dict.fromkeys(item.variant.id for item in planned))
    spent = {name: s for name in ids if (s := (seconds or {}).get(name, -1.0)) >= 0 and math.isfinite(s)}
    mine = _balanced(ids, spent, shard) if spent else {name for name in ids if is_of(name, shard)}
    return [item for item in planned if item.variant.id in mine]


def is_of(name: str, shard: Shard) -> bool:
    """Whether a variant's id belongs to a shard of those that are cut without times."""
    return int(_sha(name), 16) % shard.count == shard.index - 1


def _balanced(ids: Sequence[str], seconds: Mapping[str, float], shard: Shard) -> set[str]:
    """The ids of a shard when each goes, the longest first, to the shard that has least to do so far."""
    middle = statistics.median(seconds.values())
    loads = [(0.0, index) for index in range(1, shard.count + 1)]
    mine = set()
    for name in sorted(ids, key=lambda name: (-seconds.get(name, middle), name)):
        load, index = loads[0]
        heapq.heapreplace(loads, (load + seconds.get(name, middle), index))
        if index == shard.index:
            mine.add(name)
    return mine


def plan_hash(planned: Sequence[Planned], *more: str) -> str:
    """Sixteen hex digits for what is planned, before it is cut into shards.

    Of each variant its id, its torch build, its backend and all that its case says, a Python file that it brings
    included, with what that imports from its own folder; not where in a file something stands, what comments say, or
    where the checkout lies. ``more`` is whatever else must agree, such as options that change verdicts.
    """
    known: dict[int, str] = {}  # many variants share a case; the plan keeps these objects alive meanwhile

    def content(value: Any) -> str:
        if id(value) not in known:
            known[id(value)] = _sha(repr(_plain(value)))
        return known[id(value)]

    lines = [
        repr((item.variant.id, item.environment.build, content(item.variant.case), content(item.variant.backend)))
        for item in planned
    ]
    lines.sort()
    digest = hashlib.sha256()
    for number, line in enumerate(itertools.chain(lines, map(repr, more))):  # not joined: the lines may have gigabytes
        digest.update(f"{chr(10) if number else ''}{line}".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


def ledger_texts(variants: Iterable[Variant]) -> list[str]:
    """Return what ledgers in files of their own say: beside the cases, whose content does not change with them."""
    ledgers = {id(variant.ledger): variant.ledger for variant in variants if variant.ledger}
    return sorted({repr(_plain(ledger)) for ledger in ledgers.values()})


def _plain(value: Any) -> Any:
    """A value of the model as tuples and scalars whose repr is the same on every machine, without places and paths.

    Raises:
        TypeError: it holds something that has no such repr.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return tuple(map(_plain, value))
    if kind is Span:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return "mapping", tuple((_plain(key), _plain(item)) for key, item in value.items())
    if not is_dataclass(kind):
        raise TypeError(f"a plan holds {value!r}, which no hash is known for")
    parts: list[Any] = [kind.__name__]
    for name, default in _fields(kind):
        item = getattr(value, name)
        if item != default:  # most are not set, and this is run for each case
            parts += (name, _plain(item))
    if isinstance(value, _PYTHON):
        parts.append(_text(value.file))
        imported = own_imports(Path(value.file))
        parts += [(name, _sha(text)) for name, text in sorted(imported.items())]
    return tuple(parts)


@functools.cache
def _fields(kind: type) -> list[tuple[str, Any]]:
    """The fields that say something, which an absolute path does not, each with its default."""
    return [
        (field.name, field.default_factory() if field.default_factory is not MISSING else field.default)
        for field in fields(kind)
        if not (field.name == "file" and kind in (Case, *_PYTHON)) and not (field.name == "span" and kind is Literal)
    ]


def _text(file: str) -> str:
    try:
        return _sha(read_text(file))
    except (OSError, UnicodeError) as error:  # the run will say what is wrong with it
        return type(error).__name__


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


_Result = TypeVar("_Result", VariantPlanned, VariantFinished)


@dataclass(slots=True)
class _Part:
    """One shard's run."""

    started: RunStarted
    shard: Shard
    planned: dict[Key, VariantPlanned]
    finished: dict[Key, VariantFinished]
    notices: list[Notice]
    ends: list[RunFinished]
    ended: bool  # nothing followed the last end

    @property
    def name(self) -> str:
        """How messages call it."""
        where = f" on {self.started.host}" if self.started.host else ""
        return f"shard {self.shard} (run {self.started.run}{where})"


def merge(runs: Sequence[Sequence[Event]], cwd: str | None = None) -> list[Event]:
    """The events of the whole run, made from those of each of its shards: the plan in its order, then the verdicts.

    Files below the folder where a shard ran are named as if they lay below ``cwd`` (None: where this process is), so
    that reports of shards from several checkouts speak of one file. The run's ``folder`` is left empty.

    Raises:
        UsageError: a run is no shard, or not one of the same plan; one is there twice, is missing, or has not finished.
    """
    if not runs:
        raise exit_codes.UsageError("nothing to merge: name the runs of all shards")
    parts = sorted(map(_part, runs), key=lambda part: part.shard.index)
    _belong_together(parts)
    for part in parts:
        _whole(part)
    _disjoint(parts)
    _own(parts)
    here = os.getcwd() if cwd is None else cwd
    planned = [_moved(event, part, here) for part in parts for event in part.planned.values()]
    planned.sort(key=lambda event: event.number)  # stable: runs that count nothing stay in the order of their shards
    finished = {key: _moved(event, part, here) for part in parts for key, event in part.finished.items()}
    notices = dict.fromkeys(notice for part in parts for notice in part.notices)
    versions = list(dict.fromkeys(part.started.version for part in parts))
    if len(versions) > 1:
        notices[Notice(f"these shards were run by different versions of runner: {', '.join(versions)}")] = None
    seconds = round(sum(end.seconds for part in parts for end in part.ends), 3)
    return [
        _started(parts, len(planned), here),
        *planned,
        *notices,
        *(finished[event.key] for event in planned),
        RunFinished(_code(parts, finished.values()), seconds),
    ]


def check_stamps(path: str | os.PathLike[str]) -> None:
    """See that all lines of a journal are of one run's shard. Raises UsageError, and OSError."""
    names = set()
    for line in lines(path):
        with contextlib.suppress(ValueError, AttributeError):  # torn, or no event
            data = parse_line(line)
            names.add(f"shard {data.get('shard') or 'none'} of plan {data.get('plan') or 'none'}")
    if len(names) > 1:
        raise exit_codes.UsageError(
            f"{path} holds lines of several runs: {', '.join(sorted(names))}; "
            "run these shards again, each into its own log"
        )


def _part(events: Sequence[Event]) -> _Part:
    started = start_of(events)
    if started is None:
        raise exit_codes.UsageError(
            "cannot merge: one of the logs does not say which run it is of; run that shard again"
        )
    try:
        shard = parse_shard(started.shard)
    except ValueError:
        shard = None
    if shard is None or not started.plan:
        raise exit_codes.UsageError(
            f"cannot merge: run {started.run} is no shard; --shard 1/{4} to --shard 4/4 make four of a run"
        )
    marks = [event for event in events if isinstance(event, RunStarted | RunResumed | RunFinished)]
    return _Part(
        started,
        shard,
        planned_of(events),
        finished_of(events),
        [event for event in events if isinstance(event, Notice)],
        [event for event in marks if isinstance(event, RunFinished)],
        isinstance(marks[-1], RunFinished),
    )


def _belong_together(parts: Sequence[_Part]) -> None:
    """See that these are all the shards of one plan, each once."""
    first = parts[0]
    for part in parts[1:]:
        if part.started.plan != first.started.plan:
            raise exit_codes.UsageError(
                f"cannot merge: {part.name} and {first.name} are of different plans ({part.started.plan}, "
                f"{first.started.plan}); "
                "run every shard on the same cases, with the same options and the same torch"
            )
        if part.shard.count != first.shard.count:
            raise exit_codes.UsageError(
                f"cannot merge: {first.name} and {part.name} cut the plan into different numbers of shards"
            )
    for _, same in itertools.groupby(parts, lambda part: part.shard.index):  # they are sorted by it
        if len(names := [part.name for part in same]) > 1:
            raise exit_codes.UsageError(f"cannot merge: {' and '.join(names)} are the same shard; leave one out")
    count = first.shard.count
    if missing := sorted({*range(1, count + 1)} - {part.shard.index for part in parts}):
        raise exit_codes.UsageError(
            f"cannot merge: no run of shard {', '.join(f'{index}/{count}' for index in missing)}; "
            "run it with the same command and --shard"
        )


def _whole(part: _Part) -> None:
    """See that a shard's run has a verdict for all that it planned."""
    again = f"finish it with: runner resume {part.started.folder or part.started.run}"
    if not part.ended:
        raise exit_codes.UsageError(f"cannot merge: {part.name} has not finished; {again}")
    if part.ends[-1].interrupted:
        raise exit_codes.UsageError(f"cannot merge: {part.name} was interrupted; {again}")
    left = [key for key in part.planned if key not in part.finished]
    if left:
        raise exit_codes.UsageError(
            f"cannot merge: {part.name} has no verdict for {len(left)} of its {len(part.planned)} variants, such as "
            f"{left[0][0]}; {again}"
        )
    expected = part.started.planned
    if any(key not in part.planned for key in part.finished) or (expected and expected != len(part.planned)):
        raise exit_codes.UsageError(
            f"cannot merge: the log of {part.name} lacks lines of its plan; run that shard again"
        )


def _disjoint(parts: Sequence[_Part]) -> None:
    """See that every variant is in one shard."""
    owner: dict[Key, _Part] = {}
    places: dict[int, Key] = {}
    for part in parts:
        for key, event in part.planned.items():
            if key in owner:
                raise exit_codes.UsageError(
                    f"cannot merge: {key[0]} (torch {key[1]}) is in {owner[key].name} and in {part.name}; {_CUT_ALIKE}"
                )
            if event.number and places.setdefault(event.number, key) != key:
                raise exit_codes.UsageError(
                    f"cannot merge: {key[0]} and {places[event.number][0]} have the same place in the plan; "
                    f"{_CUT_ALIKE}"
                )
            owner[key] = part
    total = max(part.started.total for part in parts)
    if total and total != len(owner):
        raise exit_codes.UsageError(
            f"cannot merge: {total} variants are planned, and these shards hold {len(owner)}; {_CUT_ALIKE}"
        )


def _own(parts: Sequence[_Part]) -> None:
    """See that every shard holds what belongs to it, where ids alone decide that."""
    for part in parts:
        words = (word.partition("=")[0] for word in part.started.argv if word.startswith("--d"))
        is_timed = any("--durations".startswith(word) for word in words)
        stranger = next((key for key in part.planned if not is_of(key[0], part.shard)), None)
        if stranger is not None and not is_timed:
            raise exit_codes.UsageError(
                f"cannot merge: {stranger[0]} belongs to another shard than {part.name}, whose log has it; run that "
                "shard again"
            )


_CUT_ALIKE = "run every shard with the same options, --durations among them"


def _started(parts: Sequence[_Part], planned: int, cwd: str) -> RunStarted:
    starts = [part.started for part in parts]
    environments: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for start in starts:
        for entry in start.environments:  # the same torch lies in another folder on another machine
            environments.setdefault(tuple(str(entry.get(key)) for key in ("torch", "build", "version")), entry)
    return RunStarted(
        run="+".join(start.run for start in starts),
        version=__version__,
        argv=("runner", "merge", *(start.run for start in starts)),
        started=min(start.started for start in starts),
        host=_listed(start.host for start in starts),
        folder="",
        environments=tuple(environments.values()),
        full=all(start.full for start in starts),
        cwd=cwd,
        plan=starts[0].plan,
        planned=planned,
        total=planned,
        engine=_listed(start.engine for start in starts),
        suites={name: file for start in starts for name, file in start.suites.items()},
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


def _code(parts: Sequence[_Part], finished: Iterable[VariantFinished]) -> int:
    """The exit code of one run that had done all this."""
    codes = {part.ends[-1].exit_code for part in parts}
    if any(event.verdict in RED for event in finished):
        codes.add(exit_codes.FAILED)
    if codes == {exit_codes.NOTHING}:
        return exit_codes.NOTHING
    order = (exit_codes.INTERNAL, exit_codes.USAGE, exit_codes.FAILED)
    return next((code for code in order if code in codes), exit_codes.OK)


def _moved(event: _Result, part: _Part, cwd: str) -> _Result:
    """The event with its files below ``cwd`` instead of below the folder where its shard ran."""
    old = part.started.cwd.rstrip("/")
    if not old or old == cwd.rstrip("/"):
        return event

    def moved(path: Any) -> Any:
        return cwd.rstrip("/") + path[len(old) :] if path and path.startswith(old + "/") else path

    if isinstance(event, VariantPlanned):
        return replace(event, file=moved(event.file))
    findings = tuple(replace(f, place=moved(f.place)) for f in event.findings)
    return replace(event, file=moved(event.file), findings=findings, entry=moved(event.entry), place=moved(event.place))
