"""What differs between two sides, as text for a terminal, as Markdown, as JSON and as a page."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner import __version__
from runner.quote import command_words, markdown_code, markdown_fence, markdown_text
from runner.record.events import VariantFinished
from runner.report.failure import Group, groups_of
from runner.report.table import wrap_id
from runner.report.terminal import colour_of
from runner.templates import render_template
from runner.text import in_line, indent, one_line, plural
from runner.verdict.difference import SECTIONS, SHIFT, Change, Difference, Side

SCHEMA = 1
"""The version of ``schema/diff.schema.json``."""

NONE = "-"  # no verdict on this side

_FAILURES = ("broken", "changed")
"""Sections whose variants are shown with their signatures and a command."""

_COLOURS = {"broken": "red", "changed": "yellow", "fixed": "green"}
_ROWS = 500  # of a section in Markdown and on a page: GitHub cuts a step's summary at 1 MiB

_BACKENDS = 10  # whose times are told: a log may hold any number

Paint = Callable[[str, str], str]
"""(text, colour) to the text in that colour."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides and their difference: what each of these reports shows."""

    old: Side
    new: Side
    difference: Difference

    def title(self, side: Side) -> str:
        """Return ``torch 2.6.0, inductor (run 20261122-124126)``, with the backend only where the sides differ in
        it."""
        backends = f", {', '.join(side.backends)}" if self.old.backends != self.new.backends else ""
        return one_line(f"torch {', '.join(side.torches) or NONE}{backends} (run {side.run}, {side.log})", 1000)

    def groups(self, section: str) -> list[tuple[Group, list[Change]]]:
        """Return the changes of a section by the signature of the new side, the worst severity first."""
        changes = {change.new.key: change for change in self.difference.section(section) if change.new}
        groups = groups_of(change.new for change in changes.values() if change.new)
        return [(group, [changes[member.key] for member in group.members]) for group in groups]


def command_of(event: VariantFinished | None) -> str:
    """Return the command that shows a result again; empty where its log names none."""
    return event.repro if event is not None and command_words(event.repro) else ""


def verdicts(change: Change) -> tuple[str, str]:
    """Return the verdicts of both sides."""
    events = (change.old, change.new)
    return tuple(in_line(event.verdict) if event else NONE for event in events)  # type: ignore[return-value]


def summary(comparison: Comparison) -> str:
    """Return ``1 broken, 2 fixed, 80 the same``."""
    counts = [f"{count} {name}" for name, count in comparison.difference.counts.items() if count]
    return ", ".join([*counts, f"{comparison.difference.same} the same"])


def notes(comparison: Comparison) -> list[str]:
    """Return what a reader must know of the figures, a sentence each."""
    lines = []
    for word, side in (("old", comparison.old), ("new", comparison.new)):
        if side.unfinished or not side.whole:
            lines.append(f"the {word} run did not end: {plural(side.unfinished, 'variant')} without a verdict")
    for times in sorted(comparison.difference.times, key=lambda times: -times.pairs)[:_BACKENDS]:
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
    for name in SECTIONS:
        changes = comparison.difference.section(name)
        if not changes:
            continue
        lines = [
            paint(f"{name}: {plural(len(changes), 'variant')}", _COLOURS.get(name, "bold")) + f" ({SECTIONS[name]})"
        ]
        if name in _FAILURES:
            lines += _blocks(comparison, name, width, paint, limit)
        else:
            for change in changes[:limit]:
                lines += _row(change, width, paint)
            lines += _surplus(len(changes), limit)
        parts.append("\n".join(lines))
    remarks = [line for note in notes(comparison) for line in textwrap.wrap(note, width, break_long_words=False)]
    parts.append("\n".join([*remarks, summary(comparison)]))
    return "\n\n".join(parts)


def _blocks(comparison: Comparison, name: str, width: int, paint: Paint, limit: int | None) -> list[str]:
    """Return the groups of a section: the signature, then each variant with its command."""
    lines: list[str] = []
    room, total = limit, 0
    for group, changes in comparison.groups(name):
        total += len(changes)
        if room == 0:
            continue
        severity = f"{group.severity}  " if group.severity else ""
        lines.append("  " + severity + one_line(group.title, max(24, width - 2 - len(severity))))
        for change in changes[:room]:
            lines += indent(_row(change, width - 2, paint), 2)
            if change.old is not None and change.old.signature:
                was = f"was {change.old.signature_id} {change.old.signature}"
                lines.append("      " + one_line(was, max(24, width - 6)))
            if command := command_of(change.new):
                lines.append(f"      {command}")
        room = None if room is None else max(0, room - len(changes))
    return lines + _surplus(total, limit)


def _surplus(count: int, limit: int | None) -> list[str]:
    return [] if limit is None or count <= limit else [f"  and {count - limit:,} more, which --json FILE holds"]


def _row(change: Change, width: int, paint: Paint) -> list[str]:
    """Return ``PASS > FAIL  id``, the id on as many lines as it needs, and the reason."""
    baseline, candidate = verdicts(change)
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
    difference = comparison.difference
    broken = len(difference.section("broken"))
    lines = [f"## {'Broken: ' + plural(broken, 'variant') if broken else 'Nothing is broken'}", ""]
    lines += [
        f"* {word}: {markdown_text(comparison.title(side))}"
        for word, side in (("old", comparison.old), ("new", comparison.new))
    ]
    lines += [f"* {markdown_text(note)}" for note in notes(comparison)]
    lines += ["", "| section | variants | each of them |", "| --- | ---: | --- |"]
    lines += [f"| {name} | {count} | {SECTIONS[name]} |" for name, count in difference.counts.items()]
    lines += [f"| the same | {difference.same} | passes, or fails alike, on both sides |"]
    for name in SECTIONS:
        changes = difference.section(name)
        if not changes:
            continue
        lines += ["", f"### {name}: {len(changes)}", ""]
        if name in _FAILURES:
            lines += _markdown_groups(comparison, name)
        else:
            lines += [_markdown_row(change) for change in changes[:_ROWS]]
        lines += [f"* and {len(changes) - _ROWS:,} more"] if len(changes) > _ROWS else []
    return "\n".join(lines) + "\n"


def _markdown_groups(comparison: Comparison, name: str) -> list[str]:
    lines: list[str] = []
    room = _ROWS
    for group, changes in comparison.groups(name):
        if not room:
            break
        severity = f"{group.severity}: " if group.severity else ""
        lines += ["", f"{severity}{markdown_code(group.title)}", ""]
        lines += [_markdown_row(change) for change in changes[:room]]
        if commands := [command for change in changes[:room] if (command := command_of(change.new))]:
            text = "\n".join(commands)
            fence = markdown_fence(text)
            lines += ["", f"{fence}console", *(f"$ {command}" for command in commands), fence]
        room = max(0, room - len(changes))
    return lines


def _markdown_row(change: Change) -> str:
    baseline, candidate = verdicts(change)
    text = f"* {baseline} to {candidate} {markdown_code(change.id)}"
    return f"{text}: {markdown_text(one_line(change.reason))}" if change.reason else text


def page(comparison: Comparison) -> str:
    """Return the difference as HTML: one file, readable without JavaScript and without a network."""
    sections = []
    for name, about in SECTIONS.items():
        changes = comparison.difference.section(name)
        groups = comparison.groups(name) if name in _FAILURES else [(None, changes)]
        rows = itertools.islice(((group, change) for group, members in groups for change in members), _ROWS)
        blocks = [
            (group, [_page_row(change) for _, change in pairs])
            for group, pairs in itertools.groupby(rows, key=lambda pair: pair[0])
        ]
        sections.append({"name": name, "about": about, "count": len(changes), "blocks": blocks})
    return render_template(
        "diff.html.j2",
        old=comparison.title(comparison.old),
        new=comparison.title(comparison.new),
        notes=notes(comparison),
        sections=sections,
        same=comparison.difference.same,
        limit=_ROWS,
    )


def _page_row(change: Change) -> dict[str, Any]:
    baseline, candidate = verdicts(change)
    old = change.old
    return {
        "id": in_line(change.id),
        "old": baseline,
        "new": candidate,
        "reason": one_line(change.reason),
        "was": one_line(f"{old.signature_id} {old.signature}", 400) if old and old.signature else "",
        "command": command_of(change.new) if change.section in _FAILURES else "",
    }


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """Return it as ``schema/diff.schema.json`` describes. What is broken or changed is in the order of the terminal."""
    difference = comparison.difference
    changes: list[Change] = []
    for name in SECTIONS:
        grouped = [change for _, members in comparison.groups(name) for change in members]
        changes += grouped if name in _FAILURES else difference.section(name)
    return {
        "schema": SCHEMA,
        "runner": __version__,
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "pairs": difference.pairs,
        "counts": {**difference.counts, "same": difference.same},
        "times": [
            {"backend": times.backend, "pairs": times.pairs, "ratio": times.ratio, "shifted": times.shifted}
            for times in difference.times
        ],
        "changes": [
            {
                "section": change.section,
                "id": change.id,
                "reason": change.reason,
                "old": _result(change.old),
                "new": _result(change.new),
            }
            for change in changes
        ],
    }


def _side(side: Side) -> dict[str, Any]:
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
    return {
        "verdict": event.verdict,
        "torch": event.torch,
        "backend": event.backend,
        "reason": event.reason,
        "severity": event.severity,
        "signature": event.signature,
        "signature_id": event.signature_id,
        "seconds": event.spent.get("torch"),
        "command": command_of(event),
    }
