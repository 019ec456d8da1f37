"""What differs between two sets of results, as text for a terminal, as Markdown, as JSON and as a page.

The sides are two runs, or two versions of torch or two backends of one run. What counts is whether a variant fails, and
how; a verdict that the ledger expects is as good as a pass. Only what passed on the old side, or failed as the ledger
expects, can be broken on the new one.
"""

from __future__ import annotations

import itertools
import operator
import statistics
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner import __version__
from runner.cases.versions import matches
from runner.exit_codes import UsageError
from runner.quote import command_words, markdown_code, markdown_fence, markdown_text
from runner.record.events import RED, VariantFinished, VariantPlanned, end_of, start_of, variants_of
from runner.record.store import Log
from runner.report.failure import Group, groups_of
from runner.report.table import wrap_id
from runner.report.terminal import colour_of
from runner.templates import render_template
from runner.text import duration, in_line, indent, one_line, plural
from runner.verdict.signature import assess, result_signature

Pairing = tuple[str, str]
"""What both sides call a variant: its id, or its label where backends differ; and its torch where a side has
several."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its results, and the plan of variants without one. ``whole`` says that the run came to its end."""

    run: str
    log: str
    torches: tuple[str, ...]
    backends: tuple[str, ...]
    variants: Mapping[Pairing, VariantPlanned | VariantFinished]
    whole: bool = True

    @property
    def results(self) -> dict[Pairing, VariantFinished]:
        """Return the results alone."""
        return {key: event for key, event in self.variants.items() if isinstance(event, VariantFinished)}

    @property
    def unfinished(self) -> int:
        """Return how many variants were planned and have no result."""
        return len(self.variants) - len(self.results)


def sides(
    old: Log, new: Log, torch: Sequence[str] | None = None, backend: Sequence[str] | None = None
) -> tuple[Side, Side]:
    """Return both sides.

    Args:
        old: the run of the old side.
        new: that of the new side; the same object for two sides of one run.
        torch: the version of each side, old and new, at any precision; None takes all.
        backend: the backend of each side; None takes all, and pairs each with itself.

    Raises:
        UsageError: a side has no such version or backend, or nothing tells which version pairs with which.
    """
    versions = [_version(log, torch[place]) if torch else "" for place, log in enumerate((old, new))]
    backends = [_backend(log, backend[place]) if backend else "" for place, log in enumerate((old, new))]
    if old is new and len({*versions}) == len({*backends}) == 1:
        raise UsageError(
            f"both sides are one: name a second run, or two versions or backends of this one: {_content(old)}; "
            "such as --torch OLD NEW or --backend OLD NEW"
        )
    variants = [
        [event for event in variants_of(log.events) if version in ("", event.torch) and name in ("", event.backend)]
        for log, version, name in zip((old, new), versions, backends, strict=True)
    ]
    torches = [{event.torch for event in events} for events in variants]
    several = max(map(len, torches)) > 1
    if several and torches[0] != torches[1]:
        raise UsageError(
            f"nothing says which torch pairs with which: {_content(old)}; {_content(new)}; name them: --torch OLD NEW"
        )
    return _side(old, variants[0], bool(backend), several), _side(new, variants[1], bool(backend), several)


def _side(log: Log, events: Sequence[VariantPlanned | VariantFinished], by_label: bool, several: bool) -> Side:
    start, end = start_of(log.events), end_of(log.events)
    return Side(
        start.run if start else "",
        str(log.path),
        tuple(dict.fromkeys(event.torch for event in events)),
        tuple(dict.fromkeys(event.backend for event in events)),
        {(event.label if by_label else event.id, event.torch if several else ""): event for event in events},
        end is not None and not end.interrupted,
    )


def _version(log: Log, text: str) -> str:
    """Return the one version of a log that ``text`` means: written the same, or the only one at its precision."""
    present = [*dict.fromkeys(event.torch for event in variants_of(log.events))]
    if text in present:
        return text
    try:
        fitting = [version for version in present if matches(f"=={text}", version)]
    except ValueError:
        fitting = []
    if len(fitting) == 1:
        return fitting[0]
    problem = f"{' and '.join(fitting)} both fit" if fitting else "no such version here"
    raise UsageError(f"--torch {text}: {problem}: {_content(log)}")


def _backend(log: Log, name: str) -> str:
    if name in {event.backend for event in variants_of(log.events)}:
        return name
    raise UsageError(f"--backend {name}: no such backend here: {_content(log)}")


_NAMED = 10  # backends or versions of a log that a message names


def _content(log: Log) -> str:
    """Return what a log can be divided by."""
    events = variants_of(log.events)
    values = {word: [*dict.fromkeys(getattr(event, word) for event in events)] for word in ("torch", "backend")}
    parts = [
        f"{word} {', '.join(names[:_NAMED])}" + (", ..." if len(names) > _NAMED else "")
        for word, names in values.items()
    ]
    return in_line(f"{log.path} has {' and '.join(parts)}" if events else f"{log.path} has no variant")


SECTIONS: dict[str, str] = {
    "broken": "passed, or failed as the ledger expects, and is red now",
    "changed": "fails in another way, or is no longer expected to",
    "expected": "passed, and fails now as the ledger expects",
    "fixed": "was red or failed as expected, and passes now",
    "slower": "passes on both sides, and takes far longer",
    "new": "has a verdict on the new side alone",
    "gone": "has a verdict on the old side alone",
}
"""The sections in their order, with what a variant there has in common."""

RATIO = 2.0
"""How many times the seconds of the old side the new one takes at least, to be slower."""
GROWTH = 2.0
"""How many seconds more, too.

Two pairs of runs of one torch on one machine, 142 variants that pass, compared in both directions: no growth reached
both. The largest ratio was 5.9, of 0.7 seconds; the largest growth 2.5 seconds, of a ratio of 1.4.
"""
SHIFT = 1.5
"""A median ratio of a backend from which on the machine, its load or the kernel cache differs; then no single variant
is slower.

The medians of the runs above lay between 0.99 and 1.01; a run beside others on the same machine had 2.3.
"""
PAIRS = 10
"""Fewer pairs have no median worth speaking of."""

_FAILURES = ("broken", "changed")
"""Sections whose variants are shown with their signatures and a command."""

_FAILING = ("FAIL", "ERROR", "XFAIL")
_PASSING = ("PASS", "XPASS")


@dataclass(frozen=True, slots=True)
class Change:
    """A variant that differs.

    ``id`` is what both sides call it; ``reason`` is one phrase, empty where the verdicts say it all.
    """

    section: str
    id: str
    old: VariantFinished | None
    new: VariantFinished | None
    reason: str = ""

    @property
    def verdicts(self) -> list[str]:
        """Return the verdicts of both sides."""
        return [in_line(event.verdict) if event else NONE for event in (self.old, self.new)]

    @property
    def was(self) -> str:
        """Return the signature of the old side; empty if it has none."""
        return f"{self.old.signature_id} {self.old.signature}" if self.old and self.old.signature else ""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds in torch of variants of one backend that pass on both sides: how many pairs, and the median of new by
    old."""

    backend: str
    pairs: int
    ratio: float

    @property
    def shifted(self) -> bool:
        """Return whether all of the backend is so much slower on the new side that a single variant says nothing."""
        return self.pairs >= PAIRS and self.ratio >= SHIFT


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides and all that differs, in the order of the results. ``pairs`` variants are on both sides."""

    old: Side
    new: Side
    changes: tuple[Change, ...]
    pairs: int
    times: tuple[Times, ...]

    @property
    def same(self) -> int:
        """Return how many of the pairs do not differ."""
        return self.pairs - sum(change.section not in ("new", "gone") for change in self.changes)

    def section(self, name: str) -> list[Change]:
        """Return the changes of one section."""
        return [change for change in self.changes if change.section == name]

    @property
    def counts(self) -> dict[str, int]:
        """Return how many variants each section has, in order."""
        return {name: len(self.section(name)) for name in SECTIONS}

    def blocks(self, section: str, limit: int | None = None) -> list[tuple[Group | None, list[Change]]]:
        """Return the first ``limit`` changes of a section. Failures are grouped by the signature of the new side, the
        worst severity first."""
        if section not in _FAILURES:
            return [(None, self.section(section)[:limit])]
        changes = {change.new.key: change for change in self.section(section) if change.new}
        groups = groups_of(change.new for change in changes.values() if change.new)
        rows = itertools.islice(((group, changes[m.key]) for group in groups for m in group.members), limit)
        return [
            (group, [change for _, change in pairs])
            for group, pairs in itertools.groupby(rows, key=operator.itemgetter(0))
        ]

    def title(self, side: Side) -> str:
        """Return ``torch 2.6.0, inductor (run 20261122-124126)``, with the backend only where the sides differ in
        it."""
        backends = f", {', '.join(side.backends)}" if self.old.backends != self.new.backends else ""
        return one_line(f"torch {', '.join(side.torches) or NONE}{backends} (run {side.run}, {side.log})", 1000)


def compare(old: Side, new: Side) -> Comparison:
    """Return what differs. A variant that has no result on either side is left out."""
    baselines, candidates = old.results, new.results
    times = _times(baselines, candidates)
    shifted = frozenset(entry.backend for entry in times if entry.shifted)
    changes, pairs = [], 0
    for key in dict.fromkeys((*new.variants, *old.variants)):
        baseline, candidate = baselines.get(key), candidates.get(key)
        pairs += _judged(baseline) is not None and _judged(candidate) is not None
        section, reason = _section(baseline, candidate, shifted)
        if section:
            name = f"{key[0]} torch {key[1]}" if key[1] else key[0]
            # With their signatures as this version writes them.
            changes.append(
                Change(section, name, baseline and assess(baseline), candidate and assess(candidate), reason)
            )
    return Comparison(old, new, tuple(changes), pairs, times)


def fails_alike(old: VariantFinished, new: VariantFinished) -> bool:
    """Return whether two failures have one signature.

    Signatures are made anew from the findings: another version of the runner may have written them otherwise. A log of
    a version that had none lacks a part of what they are made of. Then both are made of what every log holds.
    """
    events = (old, new) if old.signature and new.signature else (_common(old), _common(new))
    return len({result_signature(event) for event in events}) == 1


def _common(event: VariantFinished) -> VariantFinished:
    """Return the result without what early logs lack: the operator, the severities, and where an exception began."""
    findings = tuple(
        replace(
            finding,
            severity=None,
            error={name: value for name, value in finding.error.items() if name != "origin"} if finding.error else None,
        )
        for finding in event.findings
    )
    return replace(event, operator="", findings=findings)


def _judged(event: VariantFinished | None) -> VariantFinished | None:
    """Return the result if it is a verdict on the variant: what was skipped has none."""
    return None if event is None or event.verdict in ("SKIP", "NOT-RUN") else event


def _section(old: VariantFinished | None, new: VariantFinished | None, shifted: Collection[str]) -> tuple[str, str]:
    """Return the section of a variant, empty if it does not differ, and the reason."""
    baseline, candidate = _judged(old), _judged(new)
    if baseline is None:
        return ("new", _absence(old)) if candidate else ("", "")
    if candidate is None:
        return "gone", _absence(new)
    if candidate.verdict in _PASSING:
        if baseline.verdict not in _PASSING:
            return "fixed", ""
        growth = "" if candidate.backend in shifted else _growth(baseline, candidate)
        return ("slower" if growth else ""), growth
    if baseline.verdict in _PASSING:
        return ("expected" if candidate.verdict == "XFAIL" else "broken"), ""
    expected = baseline.verdict == "XFAIL"
    # The verdict of a failure may change between FAIL, ERROR and XFAIL; a result that proves nothing is something else.
    if (baseline.verdict in _FAILING) == (candidate.verdict in _FAILING) and fails_alike(baseline, candidate):
        return ("changed", "no longer expected") if expected and candidate.verdict in RED else ("", "")
    return ("broken" if expected and candidate.verdict in RED else "changed"), "other signature"


def _absence(event: VariantFinished | None) -> str:
    """Return why a side has no verdict."""
    if event is None:
        return "no verdict on this side"
    return f"{event.verdict}: {event.reason}" if event.reason else event.verdict


def _times(old: Mapping[Pairing, VariantFinished], new: Mapping[Pairing, VariantFinished]) -> tuple[Times, ...]:
    """Return the times of each backend, in the order of the results."""
    ratios: dict[str, list[float]] = {}
    for key, event in old.items():
        for baseline, candidate in _seconds(event, new[key]) if key in new else ():
            ratios.setdefault(event.backend, []).append(candidate / baseline)
    return tuple(Times(backend, len(values), statistics.median(values)) for backend, values in ratios.items())


def _seconds(old: VariantFinished, new: VariantFinished) -> list[tuple[float, float]]:
    """Return the seconds that both spent in torch; nothing where they say nothing about compiling.

    What fails runs again, alone and under the stages; what is cached did not run; two backends compile two things.
    """
    events = (old, new)
    if any(event.verdict != "PASS" or event.cached or event.attempts != 1 for event in events):
        return []
    baseline, candidate = (event.spent.get("torch", 0.0) for event in events)
    return [(baseline, candidate)] if old.backend == new.backend and baseline > 0 and candidate > 0 else []


def _growth(old: VariantFinished, new: VariantFinished) -> str:
    """Return by how much the new side is slower; empty if it is not."""
    for baseline, candidate in _seconds(old, new):
        if candidate >= RATIO * baseline and candidate - baseline >= GROWTH:
            return f"{duration(baseline)} to {duration(candidate)} in torch, {candidate / baseline:.1f} times"
    return ""


SCHEMA = 1
"""The version of ``schema/diff.schema.json``."""

NONE = "-"  # no verdict on this side

_COLOURS = {"broken": "red", "changed": "yellow", "fixed": "green"}
_ROWS = 500  # of a section in Markdown and on a page: GitHub cuts a step's summary at 1 MiB

_BACKENDS = 10  # whose times are told: a log may hold any number

Paint = Callable[[str, str], str]
"""(text, colour) to the text in that colour."""


def command_of(event: VariantFinished | None) -> str:
    """Return the command that shows a result again; empty where its log names none."""
    return event.repro if event is not None and command_words(event.repro) else ""


def notes(comparison: Comparison) -> list[str]:
    """Return what a reader must know of the figures, a sentence each."""
    lines = []
    for word, side in (("old", comparison.old), ("new", comparison.new)):
        if side.unfinished or not side.whole:
            lines.append(f"the {word} run did not end: {plural(side.unfinished, 'variant')} without a verdict")
    for times in sorted(comparison.times, key=lambda times: -times.pairs)[:_BACKENDS]:
        text = (
            f"seconds in torch of {times.backend}, new by old: median {times.ratio:.2f}, "
            f"{plural(times.pairs, 'variant')}"
        )
        if times.shifted:
            text += (
                f"; from {SHIFT} on, machine, load, kernel cache or all of torch differ, and no single variant counts "
                "as slower"
            )
        lines.append(one_line(text))
    return lines


def render(comparison: Comparison, width: int, paint: Paint | None = None, limit: int | None = None) -> str:
    """Return the difference as text for a terminal, what is broken first.

    Args:
        comparison: both sides and their difference.
        width: in columns. Ids go on in the next line, titles of signatures are cut, and commands are neither.
        paint: colours a text.
        limit: how many variants of a section are named; None for all.
    """
    paint = paint or (lambda text, colour: text)
    parts = [f"old: {comparison.title(comparison.old)}\nnew: {comparison.title(comparison.new)}"]
    counts = {name: count for name, count in comparison.counts.items() if count}
    for name, count in counts.items():
        lines = [paint(f"{name}: {plural(count, 'variant')}", _COLOURS.get(name, "bold")) + f" ({SECTIONS[name]})"]
        for group, changes in comparison.blocks(name, limit):
            lines += _block(group, changes, width, paint)
        if limit is not None and count > limit:
            lines.append(f"  and {count - limit:,} more, which --json FILE holds")
        parts.append("\n".join(lines))
    remarks = [line for note in notes(comparison) for line in textwrap.wrap(note, width, break_long_words=False)]
    summary = ", ".join([*(f"{count} {name}" for name, count in counts.items()), f"{comparison.same} the same"])
    return "\n\n".join([*parts, "\n".join([*remarks, summary])])


def _block(group: Group | None, changes: Sequence[Change], width: int, paint: Paint) -> list[str]:
    """Return the variants; of a group below its signature, each with its command."""
    if group is None:
        return [line for change in changes for line in _row(change, width, paint)]
    severity = f"{group.severity}  " if group.severity else ""
    lines = ["  " + severity + one_line(group.title, max(24, width - 2 - len(severity)))]
    for change in changes:
        lines += indent(_row(change, width - 2, paint), 2)
        lines += ["      " + one_line(f"was {change.was}", max(24, width - 6))] if change.was else []
        lines += [f"      {command}" for command in filter(None, [command_of(change.new)])]
    return lines


def _row(change: Change, width: int, paint: Paint) -> list[str]:
    """Return ``PASS > FAIL  id``, the id on as many lines as it needs, and the reason."""
    baseline, candidate = change.verdicts
    head = f"  {baseline:>7} > {candidate:<7}  "
    first, *further = wrap_id(in_line(change.id), max(24, width - len(head)))
    colour = colour_of(candidate) if candidate != NONE else "bold"
    lines = [f"  {baseline:>7} > {paint(candidate, colour)}{' ' * (7 - len(candidate))}  {first}"]
    lines += indent(further, len(head))
    if change.reason and change.section != "broken" and change.reason != "other signature":
        lines.append(" " * len(head) + one_line(change.reason, max(24, width - len(head))))
    return lines


def render_markdown(comparison: Comparison) -> str:
    """Return the difference as Markdown, for a pull request or a step's summary: counts, then each section."""
    counts = comparison.counts
    lines = [f"## {'Broken: ' + plural(counts['broken'], 'variant') if counts['broken'] else 'Nothing is broken'}", ""]
    lines += [
        f"* {word}: {markdown_text(comparison.title(side))}"
        for word, side in (("old", comparison.old), ("new", comparison.new))
    ]
    lines += [f"* {markdown_text(note)}" for note in notes(comparison)]
    lines += ["", "| section | variants | each of them |", "| --- | ---: | --- |"]
    lines += [f"| {name} | {count} | {SECTIONS[name]} |" for name, count in counts.items()]
    lines += [f"| the same | {comparison.same} | passes, or fails alike, on both sides |"]
    for name, count in counts.items():
        lines += ["", f"### {name}: {count}", ""] if count else []
        for group, changes in comparison.blocks(name, _ROWS):
            lines += _markdown_block(group, changes)
        lines += [f"* and {count - _ROWS:,} more"] if count > _ROWS else []
    return "\n".join(lines) + "\n"


def _markdown_block(group: Group | None, changes: Sequence[Change]) -> list[str]:
    rows = [_markdown_row(change) for change in changes]
    if group is None:
        return rows
    severity = f"{group.severity}: " if group.severity else ""
    lines = ["", f"{severity}{markdown_code(group.title)}", "", *rows]
    if commands := [command for change in changes if (command := command_of(change.new))]:
        fence = markdown_fence("\n".join(commands))
        lines += ["", f"{fence}console", *(f"$ {command}" for command in commands), fence]
    return lines


def _markdown_row(change: Change) -> str:
    baseline, candidate = change.verdicts
    text = f"* {baseline} to {candidate} {markdown_code(change.id)}"
    return f"{text}: {markdown_text(one_line(change.reason))}" if change.reason else text


def page(comparison: Comparison) -> str:
    """Return the difference as HTML: one file, readable without JavaScript and without a network."""
    sections = [
        {
            "name": name,
            "about": SECTIONS[name],
            "count": count,
            "blocks": [(group, [*map(_page_row, changes)]) for group, changes in comparison.blocks(name, _ROWS)],
        }
        for name, count in comparison.counts.items()
    ]
    return render_template(
        "diff.html.j2",
        old=comparison.title(comparison.old),
        new=comparison.title(comparison.new),
        notes=notes(comparison),
        sections=sections,
        same=comparison.same,
        limit=_ROWS,
    )


def _page_row(change: Change) -> dict[str, Any]:
    baseline, candidate = change.verdicts
    return {
        "id": in_line(change.id),
        "old": baseline,
        "new": candidate,
        "reason": one_line(change.reason),
        "was": one_line(change.was, 400),
        "command": command_of(change.new) if change.section in _FAILURES else "",
    }


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """Return it as ``schema/diff.schema.json`` describes. What is broken or changed is in the order of the terminal."""
    return {
        "schema": SCHEMA,
        "runner": __version__,
        "old": _side_dict(comparison.old),
        "new": _side_dict(comparison.new),
        "pairs": comparison.pairs,
        "counts": {**comparison.counts, "same": comparison.same},
        "times": [
            {"backend": times.backend, "pairs": times.pairs, "ratio": times.ratio, "shifted": times.shifted}
            for times in comparison.times
        ],
        "changes": [
            {
                "section": change.section,
                "id": change.id,
                "reason": change.reason,
                "old": _result(change.old),
                "new": _result(change.new),
            }
            for name in SECTIONS
            for _, changes in comparison.blocks(name)
            for change in changes
        ],
    }


def _side_dict(side: Side) -> dict[str, Any]:
    return {
        "run": side.run,
        "log": side.log,
        "torch": [*side.torches],
        "backends": [*side.backends],
        "results": len(side.results),
        "unfinished": side.unfinished,
        "whole": side.whole,
    }


def _result(event: VariantFinished | None) -> dict[str, Any] | None:
    if event is None:
        return None
    names = ("verdict", "torch", "backend", "reason", "severity", "signature", "signature_id")
    return {
        **{name: getattr(event, name) for name in names},
        "seconds": event.spent.get("torch"),
        "command": command_of(event),
    }
