"""The ledger against a run: what has become of every ``known:`` entry.

A run is compared with the entries as they are now: which entry applies to a verdict, and whether its findings are what
the entry expects. So a run made before an edit, or with ``--no-known``, says as much as one made after it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from os.path import basename
from typing import Any

from runner.cases.model import Backend, Case, Known, Variant
from runner.cases.versions import matches, release_of
from runner.contract.finding import Finding
from runner.diagnostics import Span, nearest
from runner.record.events import (
    FORWARD_ALONE,
    Event,
    Notice,
    RunFinished,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    finished_of,
    planned_of,
    variants_of,
)
from runner.verdict.policy import applying, effects, names_backend, ranked, shows_sometimes, speaks_of
from runner.verdict.stages import contains

STATES = ("changed", "fixed", "stale", "matched", "elsewhere", "not-run")
"""What can have become of an entry, what calls for action first."""

RED_STATES = ("changed", "fixed", "stale")


@dataclass(frozen=True, slots=True)
class Judged:
    """A variant of a run under one torch.

    ``answer`` is ``passed``, ``failed`` or ``none`` (skipped, invalid, not finished, in doubt).
    """

    variant: Variant
    torch: str
    answer: str
    findings: tuple[Finding, ...] = ()
    verdict: str = ""
    signature: tuple[str, ...] = ()  # its names
    operator: str = ""
    id: str = ""  # as the run has it

    @property
    def lead(self) -> Finding:
        """The finding that speaks for a failure."""
        return ranked(self.findings)[0]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What an entry that applies to a variant met there: ``matched``, ``passed``, ``otherwise``, ``shadowed`` (by an
    entry before it), ``absent`` (passed, and the failure shows only now and then) or ``none``."""

    effect: str
    judged: Judged


@dataclass(slots=True)
class Entry:
    """One entry, the cases that have it (several when it stands under ``defaults:``), and what has become of it."""

    known: Known
    cases: list[Case] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    state: str = "not-run"
    detail: str = ""
    due: bool = False
    shared: bool = False  # it stands in a file of its own, and may speak of any case

    @property
    def is_idle(self) -> bool:
        """Return whether it stands in a file of its own and speaks of no case here, as a misspelt one does."""
        return self.shared and not self.cases

    def torches(self, *effects: str) -> list[str]:
        """Return the versions under which it met one of these, oldest first."""
        return sorted(
            {s.judged.torch for s in self.sightings if s.effect in effects},
            key=lambda torch: (release_of(torch), torch),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What a run says. ``complete``: it left nothing out of its paths, and everything came to a verdict."""

    judged: tuple[Judged, ...]
    torches: tuple[str, ...]
    backends: frozenset[str]
    devices: frozenset[str]
    complete: bool

    def narrowed(self, names: Collection[str]) -> Run:
        """Return what it says of these backends, by the name in ids or torch's. It is then no complete run."""
        judged = tuple(j for j in self.judged if {j.variant.backend.name, j.variant.backend.backend} & {*names})
        backends = {name for j in judged for name in (j.variant.backend.name, j.variant.backend.backend)}
        return replace(self, judged=judged, backends=frozenset(backends), complete=False)


def entries_of(variants: Iterable[Variant]) -> list[Entry]:
    """Return the entries of the variants' cases, in the order of files and lines."""
    entries: dict[tuple[str, int, int], Entry] = {}
    for variant in {(id(v.case), id(v.ledger)): v for v in variants}.values():
        case, own = variant.case, len(variant.case.known)
        for number, known in enumerate(variant.known):
            entry = entries.setdefault(_place(known.span), Entry(known, shared=number >= own))
            is_new = not any((c.file, c.name) == (case.file, case.name) for c in entry.cases)
            if is_new and (not entry.shared or speaks_of(known, variant)):
                entry.cases.append(case)
    return [entries[place] for place in sorted(entries)]


def read_run(variants: Sequence[Variant], events: Iterable[Event]) -> Run:
    """Return a run's verdicts on these variants; one that ran under another backend or device is taken from its
    case."""
    events = list(events)
    own = {_key(v.case.file, v.id): v for v in variants}
    cases: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        cases.setdefault((variant.case.file, variant.case.name), []).append(variant)
    finished, planned = finished_of(events), planned_of(events)
    started = [e for e in events if isinstance(e, RunStarted)]
    judged = []
    for event in variants_of(events):
        variant_run = own.get(_key(event.file, event.id)) or _as_run(
            event, cases.get((event.file, event.case.rpartition("::")[2]), ())
        )
        if variant_run is not None:
            judged.append(replace(_judged(variant_run, event.torch, finished.get(event.key)), id=event.id))
    torches = [str(env.get("torch")) for e in started for env in e.environments] or [torch for _, torch in planned]
    return Run(
        tuple(judged),
        tuple(dict.fromkeys(torches)),
        frozenset(e.backend for e in planned.values()) | {j.variant.backend.backend for j in judged},
        frozenset(e.device for e in planned.values()),
        complete=any(e.full for e in started)
        and planned.keys() <= finished.keys()
        and not any(isinstance(e, RunFinished) and e.interrupted for e in events),
    )


def review(variants: Sequence[Variant], run: Run | None = None, today: date | None = None) -> list[Entry]:
    """Return every entry of the variants' cases with its state in the run. Without a run all are ``not-run``."""
    entries = entries_of(variants)
    at = {_place(entry.known.span): entry for entry in entries}
    for judged in run.judged if run else ():
        for known, effect in _met(judged):
            entry = at.get(_place(known.span))
            if entry is not None:
                entry.sightings.append(Sighting(effect, judged))
    for entry in entries:
        entry.due = is_due(entry.known, today)
        if run is not None:
            entry.state, entry.detail = _state(entry, run)
        if entry.is_idle:
            entry.detail = f"no case here is meant by it{_misspelt(entry.known, variants)}"
    return entries


def _misspelt(known: Known, variants: Sequence[Variant]) -> str:
    """Return which of an entry's patterns of cases match none, and what is spelt almost so; empty without one."""
    if not known.case:
        return ""
    names = {name for v in variants for name in (v.case.name, f"{basename(v.where)}::{v.case.name}")}
    hints = (" ".join(filter(None, (f"case: {pattern!r};", nearest(pattern, names)))) for pattern in known.case)
    return f": {', '.join(hint.rstrip(';') for hint in hints)}"


def stale_notices(variants: Sequence[Variant], events: Iterable[Event]) -> list[Notice]:
    """Return a remark for every entry that a whole run found no use for."""
    run = read_run(variants, events)
    if not run.complete:
        return []
    return [
        Notice(f"{entry.known.span}: this known: entry matched nothing: {entry.detail}")
        for entry in review(variants, run)
        if entry.state == "stale"
    ]


def is_due(known: Known, today: date | None = None) -> bool:
    """Return whether the entry was to be looked at again by now."""
    try:
        return known.review is not None and date.fromisoformat(str(known.review)) < (today or date.today())
    except ValueError:
        return False


def _met(judged: Judged) -> Iterator[tuple[Known, str]]:
    """Each entry that applies, and what it met."""
    entries = applying(judged.variant, judged.torch)
    if judged.answer == "failed":
        yield from effects(entries, judged.findings, judged.signature)
        return
    for entry in entries:
        yield entry, "absent" if judged.answer == "passed" and shows_sometimes(entry) else judged.answer


def _state(entry: Entry, run: Run) -> tuple[str, str]:
    known = entry.known
    for effect, state, text, unless in (
        ("otherwise", "changed", "fails in another way", ("matched",)),
        ("passed", "fixed", "passes", ("matched", "otherwise")),
        ("matched", "matched", "", ()),
        ("absent", "matched", "passes this time", ()),
    ):
        # What one says of many cases holds under a torch while it holds for one.
        held = entry.torches(*unless) if entry.shared else ()
        if sightings := [s for s in entry.sightings if s.effect == effect and s.judged.torch not in held]:
            return state, f"{text} {_under(sightings, entry)}" if text else ""
    names = {(case.file, case.name) for case in entry.cases}
    here = [j.variant for j in run.judged if (j.variant.case.file, j.variant.case.name) in names]
    if not here:
        return "not-run", "its case was not in the run"
    if absent := _absent(known, entry.cases, here, run):
        return "elsewhere", absent
    if silent := {s.judged.verdict for s in entry.sightings if s.effect == "none"}:
        state = "elsewhere" if silent == {"SKIP"} else "not-run"
        return state, f"its variants came to {', '.join(sorted(silent))}"
    reason = "another entry always matched before it" if entry.sightings else "its selectors fit no variant"
    return ("stale" if run.complete else "not-run"), reason


def _absent(known: Known, cases: Sequence[Case], here: Sequence[Variant], run: Run) -> str:
    """What this run lacked that the entry asks for, and that another run may have; empty when nothing."""
    if not any(matches(known.torch, torch) for torch in run.torches):
        return f"the run had torch {', '.join(run.torches)}"
    if known.platform and sys.platform not in known.platform:
        return f"the run was on {sys.platform}"
    if not any(names_backend(known, judged.variant.backend) for judged in run.judged):
        return f"the run had no backend {' or '.join(known.backend)}"
    if known.device and not set(known.device) & {
        d for device in run.devices for d in (device, device.partition(":")[0])
    }:
        return f"the run had no device {' or '.join(known.device)}"
    stage = known.stage
    if stage is not None and not any(contains(j.variant.backend.backend, stage) for j in run.judged):
        return f"no backend of the run has stage {stage}"
    threads = (_texts(known.threads), _texts(t for c in cases for t in c.threads), _texts(v.threads for v in here))
    axes = [
        ("dtype", {*known.dtype}, {d for case in cases for d in case.dtypes}, {v.dtype for v in here}),
        ("threads", *threads),
    ]
    for name, value in known.params.items():
        declared = _texts(p for case in cases for p in case.params.get(name, ()))
        axes.append((name, _texts([value]), declared, _texts(v.params.get(name) for v in here)))
    for name, selected, declared, present in axes:
        if selected and not selected & present and selected & declared:
            return f"the run left out {name} {' or '.join(sorted(selected))}"
    return ""


def _texts(values: Iterable[Any]) -> set[str]:
    return {repr(value) for value in values}


def _under(sightings: Sequence[Sighting], entry: Entry) -> str:
    """``under torch 2.13.0 (2 of 3 variants)``."""
    torches = {s.judged.torch for s in sightings}
    of = sum(s.judged.torch in torches and s.effect != "none" for s in entry.sightings)
    versions = ", ".join(entry.torches(sightings[0].effect))
    return f"under torch {versions}" + (f" ({len(sightings)} of {of} variants)" if of > len(sightings) else "")


def _judged(variant: Variant, torch: str, event: VariantFinished | None) -> Judged:
    if event is None:
        return Judged(variant, torch, "none", verdict="NOT-RUN")
    if event.findings and event.verdict != "INVALID":
        names = (event.signature, event.signature_id)
        return Judged(variant, torch, "failed", event.findings, event.verdict, names, event.operator)
    has_passed = event.verdict in ("PASS", "XPASS") and FORWARD_ALONE not in event.labels
    return Judged(variant, torch, "passed" if has_passed else "none", (), event.verdict)


def _as_run(event: VariantPlanned | VariantFinished, candidates: Sequence[Variant]) -> Variant | None:
    """The variant of an event whose backend or device the command line named."""
    for variant in candidates:
        if _axes(variant.label) == _axes(event.label):
            own = event.backend == variant.backend.name
            backend = variant.backend if own else Backend(event.backend, event.backend)
            return replace(variant, id=event.id, backend=backend, device=event.device)
    return None


def _axes(label: str) -> str:
    """A label's case and axes without the last one, the device."""
    return label.rpartition("::")[2].rpartition(",")[0]


def _key(file: str, id_: str) -> tuple[str, str]:
    """What names a variant wherever the command is run."""
    return file, id_.rpartition("::")[2]


def _place(span: Span) -> tuple[str, int, int]:
    return span.file, span.line, span.column
