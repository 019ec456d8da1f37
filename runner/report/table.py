"""The table: one row a case with its axes, one column a backend, or a backend under one torch version."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.contract.oracles import EXPLAINED, UNCOMPARED, UNCOMPARED_NOTE, is_excuse
from runner.record.events import Event, RunStarted, VariantFinished, VariantPlanned
from runner.report.delegation import delegation_of
from runner.text import draw_table, in_line, number, one_line, plural
from runner.verdict.signature import worst_findings

STARRED = "PASS*"
"""How tables write a pass that needed an excuse, or of which a part was not compared."""

_LABELS = 20  # that a line names: a log may hold any number of them


def excuses(event: VariantFinished) -> tuple[str, ...]:
    """Return the labels of a pass whose values lie outside the tolerance; empty for any other verdict."""
    return tuple(label for label in event.labels if event.verdict == "PASS" and is_excuse(label))


def uncompared(event: VariantFinished) -> tuple[str, ...]:
    """Return the parts of a pass that could not be compared, each with the reason; empty for any other verdict."""
    if event.verdict != "PASS" or UNCOMPARED not in event.labels:
        return ()
    return tuple(note.removesuffix(UNCOMPARED_NOTE) for note in event.notes if note.endswith(UNCOMPARED_NOTE))


def excess(event: VariantFinished) -> str:
    """Return how far a pass with an excuse lies outside the tolerance, and what excused it, as its notes say it; empty
    for any other result."""
    names = tuple(label.removeprefix(EXPLAINED) for label in excuses(event))  # how such a note ends
    return "; ".join(note for note in event.notes if note.endswith(names))


def star_lines(events: Iterable[VariantFinished]) -> list[str]:
    """Return the lines below a table that say what excused its passes, and what of them was not compared, each with how
    many; then how far each lies outside the tolerance. Empty where all is plain."""
    finished = list(events)
    parts = (
        ("values lie outside the tolerance and still pass", Counter(label for e in finished for label in excuses(e))),
        ("not compared", Counter(part for e in finished for part in uncompared(e))),
    )
    words = [f"{title}: {_counted(counts)}" for title, counts in parts if counts]
    rows = [f"{event.id}: {text}" for event in finished if (text := excess(event))]
    more = [f"and {len(rows) - _LABELS} more"] if len(rows) > _LABELS else []
    lines = [one_line(f"{STARRED}: {'; '.join(words)}")] if words else []
    return lines + [f"  {one_line(row)}" for row in rows[:_LABELS] + more]


def _counted(counts: Counter[str]) -> str:
    words = [f"{name} ({count})" for name, count in sorted(counts.items())]
    return ", ".join(words[:_LABELS]) + (", ..." if len(words) > _LABELS else "")


def compared_lines(event: VariantFinished) -> list[str]:
    """Return what was compared, who computed it, what excused a pass, and the notes, one line each."""
    counts = Counter(event.compared)
    lines = []
    if counts and counts["exceptions"] and not counts["outputs"]:
        lines.append(f"compared {plural(counts['exceptions'], 'exception')}")
    elif counts:
        outputs = (
            f"{plural(counts['outputs'], 'output')} (strides of {counts['strides']}, aliases of {counts['aliases']})"
        )
        lines.append(
            f"compared {outputs}, {plural(counts['gradients'], 'gradient')}, {plural(counts['elements'], 'element')}"
        )
    lines += [f"delegated {text}"] if (text := delegation_of(event)) else []
    lines += map(_accuracy, event.accuracy)
    lines += [f"label {label}" for label in event.labels]
    lines += [f"note {note}" for note in event.notes]
    return [one_line(line) for line in lines]


def _accuracy(entry: Mapping[str, Any]) -> str:
    """Return the numbers of one output or gradient in a line; an entry may lack all but its path."""
    parts = [f"{entry.get('different', '?')} of {entry.get('elements', '?')} elements have other bits"]
    parts += [
        f"{side} off by {number(entry[side].get('largest', '?'))} units"
        for side in ("eager", "compiled")
        if side in entry
    ]
    parts.append(f"signal to noise {number(entry.get('sqnr', '?'))} dB")
    return f"accuracy of {entry['path']}: {', '.join(parts)}"


NOT_RUN = "NOT-RUN"
NOTHING = "-"  # this combination was never asked for
_QUIET = ("PASS", "SKIP", NOT_RUN, NOTHING)  # what a long table leaves out

_SPARSE = 10_000  # cells of a table that may all be empty

Paint = Callable[[str, str], str]
"""(cell text, verdict) to the cell with colour."""


@dataclass
class Section:
    """One suite's rows. ``cells`` maps (row, column) to (verdict, the cell's text)."""

    suite: str
    rows: dict[str, None] = field(default_factory=dict)  # a dict, for order and quick membership
    cells: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)


@dataclass
class Grid:
    """The content of a table, before it is drawn. Rows and columns are in plan order."""

    columns: list[str]
    sections: list[Section]


def several_environments(events: Iterable[Event]) -> bool:
    """Return whether the table must name torch versions to tell two results apart."""
    versions: set[str] = set()
    for event in events:
        if isinstance(event, RunStarted):
            versions.update(str(e["torch"]) for e in event.environments if e.get("torch"))
        elif isinstance(event, VariantPlanned | VariantFinished):
            versions.add(event.torch)
    return len(versions) > 1


def build_grid(events: Iterable[Event]) -> Grid:
    """Return the grid of a run. A variant that several suites share is in the section of each."""
    events = list(events)
    several = several_environments(events)
    columns: dict[str, None] = {}
    sections: dict[str, Section] = {}
    for event in events:
        if not isinstance(event, VariantPlanned | VariantFinished):
            continue
        column = f"{event.backend} {event.torch}" if several else event.backend
        columns.setdefault(column)
        for suite in event.suites or (event.suite,):
            section = sections.setdefault(suite, Section(suite))
            at = (event.label, column)
            section.rows.setdefault(event.label)
            if isinstance(event, VariantFinished):
                section.cells[at] = (event.verdict, cell_text(event))
            else:
                section.cells.setdefault(at, (NOT_RUN, NOT_RUN))
    return Grid(list(columns), list(sections.values()))


def cell_text(event: VariantFinished) -> str:
    """Return ``FAIL inductor value``: the stage, if it lies below the column's own backend, and the oracle, both of the
    worst finding."""
    verdict: str = STARRED if excuses(event) or uncompared(event) else event.verdict
    stage = oracle = ""
    if event.verdict in ("FAIL", "ERROR", "XFAIL"):
        stage = event.stage if event.stage and event.stage != event.backend else ""
        worst = worst_findings(event.findings)[0].oracle if event.findings else "".join(event.oracles[:1])
        oracle = worst + ("+" if len(event.oracles) > 1 else "")
    return " ".join(part for part in (verdict, stage, oracle, "cached" if event.cached else "") if part)


def render_table(
    events: Iterable[Event], width: int = 120, paint: Paint | None = None, limit: int | None = None, hint: str = ""
) -> str:
    """Return the table as text, empty when nothing was planned.

    ``width`` is how wide it should be: longer ids go on in the next line, because a truncated id cannot be pasted.
    Beyond ``limit`` rows only those are drawn that hold something other than PASS, SKIP and NOT-RUN, the first
    ``limit`` of them; a last line says how many are missing, and ``hint`` where they are. A line below says what PASS*
    means.
    """
    events = list(events)
    grid = build_grid(events)
    rows = sum(len(section.rows) for section in grid.sections)
    shortened = limit is not None and rows > limit
    titled = len(grid.sections) > 1  # the heading tells suites apart; a lone suite needs none
    if limit is not None and shortened:
        _shorten(grid, limit)
    parts = []
    for section in grid.sections:
        if section.rows:
            cells = len(section.rows) * len(_columns(grid.columns, section))
            if cells > _SPARSE + 50 * len(section.cells):
                parts.append(
                    f"{in_line(section.suite)}: the table is left out: {cells:,} cells, of which "
                    f"{len(section.cells):,} hold something"
                )
                continue
            text = _draw(grid.columns, section, width, paint)
            parts.append(f"{in_line(section.suite)}\n{text}" if titled else text)
    if stars := star_lines(event for event in events if isinstance(event, VariantFinished)):
        parts.append("\n".join(stars))
    if shortened:
        rows_shown = sum(len(section.rows) for section in grid.sections)
        first = f" (the first {rows_shown:,} of them)" if rows_shown == limit else ""
        remark = (
            f"{rows - rows_shown:,} of {rows:,} rows are left out: above are those that hold something other than "
            f"PASS, SKIP and NOT-RUN{first}"
        )
        if not rows_shown:
            remark = f"the table is left out: none of its {rows:,} rows holds anything but PASS, SKIP and NOT-RUN"
        parts.append(f"{remark}; {hint}" if hint else remark)
    return "\n\n".join(parts)


def _shorten(grid: Grid, limit: int) -> None:
    """Leave out the rows that hold only PASS, SKIP and NOT-RUN, and those beyond the limit."""
    for section in grid.sections:
        loud = {row: None for (row, _), (verdict, _) in section.cells.items() if verdict not in _QUIET}
        section.rows = {row: None for row in itertools.islice((row for row in section.rows if row in loud), limit)}
        limit -= len(section.rows)


def _columns(columns: Iterable[str], section: Section) -> list[str]:
    """Return the columns of a section, without backends that only other suites ask for."""
    present = {column for row, column in section.cells if row in section.rows}
    return [column for column in columns if column in present]


def _draw(columns: list[str], section: Section, width: int, paint: Paint | None) -> str:
    columns = _columns(columns, section)
    cells = {
        column: [section.cells.get((row, column), (NOTHING, NOTHING))[1] for row in section.rows] for column in columns
    }
    # tabulate leaves two blanks between columns, and gives a heading two more.
    room = max(24, width - sum(2 + max(len(column) + 2, *map(len, cells[column])) for column in columns))
    body = []
    for row in section.rows:
        line = ["\n".join(wrap_id(in_line(row), room))]
        for column in columns:
            verdict, text = section.cells.get((row, column), (NOTHING, NOTHING))
            line.append(paint(in_line(text), verdict) if paint else in_line(text))
        body.append(line)
    return draw_table(body, ["case", *map(in_line, columns)])


def wrap_id(text: str, width: int) -> list[str]:
    """Break ``text`` into lines of at most ``width`` characters, after ``::``, ``/``, ``,`` or before ``[`` if
    possible.

    Nothing is left out: the lines without their indentation, joined, are the id again.
    """
    lines: list[str] = []
    indent = ""
    while len(indent) + len(text) > width:
        room = max(width - len(indent), 1)
        cut = max(
            text.rfind("::", 0, room) + 2 if "::" in text[:room] else 0,
            text.rfind("/", 0, room) + 1,
            text.rfind(",", 0, room) + 1,
            text.rfind("[", 0, room + 1),
        )
        cut = cut if 0 < cut <= room else room
        lines.append(indent + text[:cut])
        text, indent = text[cut:], "  "
    return [*lines, indent + text] if text or not lines else lines
