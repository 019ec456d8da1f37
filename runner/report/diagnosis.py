"""A diagnosis as plain text, and as a page that is one file, readable without JavaScript and without a network.

The page shows a tensor's error as shapes: cells, bars and words, from the worker's record of a heat map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.cases.model import LAUNCH
from runner.contract.finding import Finding, index_of
from runner.diagnose.diagnosis import Ablation, Culprit, Diagnosis, Kept
from runner.quote import operand, shell_word
from runner.report.failure import command_of, layout, raiser_of, shown_rows, stage_outcomes, stage_words
from runner.templates import render_template
from runner.text import cap, clean, duration, head_lines, in_line, indent, number, one_line, ordinal, plural

LEVELS = 7
"""Shades of the heat map."""

ALIKE, MISPLACED = 1, 2
"""As in ``runner/worker/tasks/heatmap.py``."""

_NONFINITE = {ALIKE: "NaN or infinite on both sides", MISPLACED: "NaN or infinite on one side alone"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A square of the heat map: its place, its shade (``h1`` to ``h7``, ``alike``, ``misplaced``), and its text."""

    x: int
    y: int
    shade: str
    text: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The cells that hold an error or a NaN; all others are right. ``legend`` has a shade and its words."""

    columns: int
    rows: int
    cells: tuple[Cell, ...]
    legend: tuple[tuple[str, str], ...]
    layout: str  # how the tensor lies in it
    size: float  # pixels of a cell's side


@dataclass(frozen=True, slots=True)
class Bar:
    """Counts of one class of relative errors, and the heights (0 to 1) that they are drawn with."""

    label: str
    eager: int
    compiled: int
    eager_height: float
    compiled_height: float


def heat_map(record: Mapping[str, Any]) -> HeatMap:
    """Return the heat map of a record in shades of its absolute error.

    The shades are equal steps of the exponent between the smallest and the largest error.
    """
    grid, shape = record["grid"], list(record["shape"])
    errors = [[float(cell) for cell in row] for row in grid["absolute"]]  # infinities and NaN are words there
    finite = [error for row in errors for error in row if 0 < error < math.inf]
    low, high = (math.log10(min(finite)), math.log10(max(finite))) if finite else (0.0, 0.0)
    cells = []
    for y, row in enumerate(errors):
        for x, error in enumerate(row):
            kind = grid["kind"][y][x]
            if kind == 0 and error == 0:
                continue
            shade = "misplaced" if kind == MISPLACED else f"h{_level(error, low, high)}" if error else "alike"
            parts = [_NONFINITE[kind]] if kind in _NONFINITE else []
            parts += [f"error {number(error)}, relative {number(grid['relative'][y][x])}"] if error else []
            cells.append(Cell(x, y, shade, f"{_range(grid, shape, y, x)}: {'; '.join(parts)}"))
    used = {cell.shade for cell in cells}
    legend = [
        (f"h{level}", _span(level, low, high)) for level in range(1, LEVELS + 1) if finite and f"h{level}" in used
    ]
    legend += [("misplaced", _NONFINITE[MISPLACED])] if "misplaced" in used else []
    legend += [("alike", _NONFINITE[ALIKE])] if "alike" in used else []
    columns = len(errors[0]) if errors else 0
    side = min(24.0, 640 / max(columns, len(errors), 1))  # a small map can be seen, a large one fits on a page
    return HeatMap(columns, len(errors), tuple(cells), tuple(legend), _layout(grid, shape), side)


def bars(histogram: Mapping[str, Any]) -> list[Bar]:
    """Return the histogram of a record: exact, each decade, and errors of values that are 0.

    Heights are logarithmic, so that one element of a million shows.
    """
    exact, unscaled = (
        [(label, side["eager"], side["compiled"])] if side["eager"] or side["compiled"] else []
        for label, side in (("exact", histogram["exact"]), ("of 0", histogram["unscaled"]))
    )
    rows = zip(histogram["decades"], histogram["eager"], histogram["compiled"], strict=True)
    counts = [*exact, *((f"1e{decade}", eager, compiled) for decade, eager, compiled in rows), *unscaled]
    top = max((math.log1p(count) for _, *sides in counts for count in sides), default=0.0) or 1.0
    return [
        Bar(label, eager, compiled, math.log1p(eager) / top, math.log1p(compiled) / top)
        for label, eager, compiled in counts
    ]


def _level(error: float, low: float, high: float) -> int:
    if not math.isfinite(error) or high == low:
        return LEVELS
    return min(LEVELS, 1 + int((math.log10(error) - low) / (high - low) * LEVELS))


def _span(level: int, low: float, high: float) -> str:
    """Return the errors of one shade, in words."""
    if high == low:
        return f"{10**high:.2g}"
    step = (high - low) / LEVELS
    return f"{10 ** (low + (level - 1) * step):.2g} to {10 ** (low + level * step):.2g}"


def _layout(grid: Mapping[str, Any], shape: Sequence[int]) -> str:
    """Return one sentence on what rows, columns and cells mean."""
    width, rows, columns = grid["width"], grid["row_span"], grid["column_span"]
    if len(shape) > 2:
        sentence = f"Rows are the first {len(shape) - 1} dimensions, flattened; columns are the last."
    elif len(shape) == 2:
        sentence = "Rows and columns are the tensor's own."
    elif len(shape) == 1 and shape[0] > width:
        sentence = f"The vector goes on from row to row, {width} elements in each."
    else:
        sentence = "The tensor is one row."
    if rows * columns > 1:
        sentence += f" A cell holds up to {rows} x {columns} elements and shows the largest error among them."
    return sentence


def _range(grid: Mapping[str, Any], shape: Sequence[int], y: int, x: int) -> str:
    """Return the indices that a cell covers, such as ``[0, 3, 8:16]``; a range over several dimensions by its ends."""
    width, elements = grid["width"], math.prod(shape)
    rows = -(-elements // width)
    first_row, last_row = y * grid["row_span"], min((y + 1) * grid["row_span"], rows) - 1
    first, last = x * grid["column_span"], min((x + 1) * grid["column_span"], width) - 1
    start = index_of(first_row * width + first, shape)
    end = index_of(min(last_row * width + last, elements - 1), shape)
    if start == end:
        return number(start)
    if sum(a != b for a, b in zip(start, end, strict=True)) == 1:
        parts = [str(a) if a == b else f"{a}:{b + 1}" for a, b in zip(start, end, strict=True)]
        return f"[{', '.join(parts)}]"
    return f"{number(start)} to {number(end)}"


_COMMANDS = (
    ("reduce", "the smallest case that fails alike"),
    ("debug", "a folder with everything the compiler did"),
    ("issue", "a bug report"),
)

_MODULE = "torch._inductor.config."  # named once in a setting of several flags
_ERROR = 6  # lines of an exception's message
_WIDTH = 100  # of a detail or a setting


def render(diagnosis: Diagnosis, run: Sequence[str] = ()) -> str:
    """Return the text, without a newline at its end.

    Args:
        run: the words of the command that runs the variant, as a shell reads them; by its id alone if empty.
    """
    lines = [f"{diagnosis.verdict} {one_line(diagnosis.id)} on torch {diagnosis.torch}"]
    if diagnosis.signature is None:
        return "\n".join([*lines, *_nothing(diagnosis)])
    lines += _failure(diagnosis)
    lines += ["", "to blame", f"  {blame(diagnosis)}"]
    if diagnosis.ablations:
        lines += ["", "under one changed setting", *_table(diagnosis.ablations)]
    if diagnosis.stopped:
        run = run or ("runner", "run", shell_word(operand(diagnosis.id)))
        lines += ["", f"{diagnosis.stopped}; this goes on from what is known", f"  {command_of('diagnose', run)}"]
    lines += ["", "go on with", *(f"  {command}  # {why}" for command, why in _commands(diagnosis, run, _COMMANDS))]
    return "\n".join([*lines, "", f"diagnosed in {duration(diagnosis.seconds)}"])


def taken_over(kept: Kept) -> str:
    """Return one line that says what is taken over from an earlier diagnosis, and from when."""
    return f"runner: taken over from runner diagnose at {kept.when}: {blame(kept.diagnosis)}"


def _commands(diagnosis: Diagnosis, run: Sequence[str], commands: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what to type for the ``commands`` (name, purpose) that apply.

    For a plain launch those about a compiler are left out.
    """
    run = run or ("runner", "run", shell_word(operand(diagnosis.id)))
    launched = diagnosis.id.rpartition("@")[2] == LAUNCH
    return [(command_of(name, run), why) for name, why in commands if not launched or name in ("reduce", "repro")]


def blame(diagnosis: Diagnosis) -> str:
    """Return what is to blame, in one sentence."""
    culprit, note = diagnosis.culprit, one_line(diagnosis.bisect_note)
    if culprit is None:
        stage = f"stage {diagnosis.stage}" if diagnosis.stage else "unknown"
        return f"{stage}; {note}" if note else stage
    text = sentence(culprit)
    return f"{text}; {note}" if note else text


def sentence(culprit: Culprit) -> str:
    """Return a culprit as ``inductor, subsystem lowerings, the 2nd application: relu (aten.relu.default)``.

    The step of the chain follows, such as ``of the step relu, the second of two, net.spec.yaml:14``.
    """
    if culprit.calls is not None and culprit.number is not None:
        beside = f" together with {', '.join(map(one_line, culprit.beside))}" if culprit.beside else ""
        step = f", the step {one_line(culprit.step)}" if culprit.step else ""
        place = f", {culprit.place}" if culprit.place else ""
        call = f"call {culprit.number + 1} of {culprit.calls}"
        return f"{culprit.backend}: {call}, {one_line(str(culprit.operator))}{beside}{step}{place}"
    if culprit.subsystem is None:
        return f"backend {culprit.backend}"
    if culprit.number is None and culprit.name:
        return f"{culprit.backend}: it goes away with {culprit.name}"
    text = f"{culprit.backend}, subsystem {culprit.subsystem}"
    if culprit.number is None:
        return text
    text += f", the {ordinal(culprit.number + 1)} application"
    if culprit.name:
        text += f": {one_line(culprit.name)}" + (f" ({culprit.operator})" if culprit.operator else "")
    step = one_line(", ".join(filter(None, (culprit.step, culprit.place))))
    return f"{text}, of the step {step}" if culprit.step else f"{text}, of {step}" if step else text


def _nothing(diagnosis: Diagnosis) -> list[str]:
    """Return the lines of a variant without a failure of the compiler."""
    reason = f": {one_line(diagnosis.reason)}" if diagnosis.reason else ""
    lines = ["it passes: nothing to diagnose"] if diagnosis.verdict == "PASS" else [f"nothing to diagnose{reason}"]
    return ["  " + line for line in [*lines, *diagnosis.labels, *map(one_line, diagnosis.notes)]]


def _failure(diagnosis: Diagnosis) -> list[str]:
    """Return the stages and the first finding, with its numbers."""
    rows = shown_rows(
        ("stages", stage_outcomes(diagnosis.stages)),
        ("stage", diagnosis.stage or ""),
        ("signature", str(diagnosis.signature)),
        ("labels", ", ".join(diagnosis.labels)),
        *(("note", note) for note in diagnosis.notes),
        limit=400,
    )
    lines = ["  " + one_line(diagnosis.reason, 600)] if diagnosis.reason else []
    lines += [f"  {name:<9} {value}" for name, value in rows]
    if diagnosis.findings:
        lines += _finding(diagnosis.findings[0])
    if len(diagnosis.findings) > 1:
        lines.append(f"  and {plural(len(diagnosis.findings) - 1, 'more finding')}")
    return lines


def _finding(finding: Finding) -> list[str]:
    lines = layout(finding.numbers)
    error = finding.error or {}
    if error.get("type"):
        head, *continuation = head_lines(str(error.get("message") or ""), _ERROR) or [""]
        lines += [one_line(f"raised {error['type']}: {head}", 400), *indent(continuation, 2)]
    return indent(lines, 4)


def _table(ablations: Sequence[Ablation]) -> list[str]:
    """Return the lines of the ablations: name, outcome, setting. A detail line follows another failure and a missing
    answer.
    """
    name = max(len(ablation.name) for ablation in ablations)
    lines = []
    for ablation in ablations:
        lines.append(
            f"  {ablation.name:<{name}}  {ablation.outcome:<9}  "
            f"{one_line(ablation.setting.replace(f', {_MODULE}', ', '), 2 * _WIDTH)}"
        )
        if ablation.outcome in ("other", "no answer") and ablation.detail:
            lines.append(" " * (name + 4) + one_line(ablation.detail, _WIDTH))
    return lines


_TRACE = 16 * 1024  # bytes of a trace that a page shows

_PAGE_COMMANDS = (
    ("reduce", "the smallest case that fails alike"),
    ("repro", "the case as a script that needs torch alone"),
    ("explain", "graphs, graph breaks, guards and recompiles"),
    ("debug", "kernels, graphs, IR and logs in one folder"),
    ("minify", "torch's own minifier"),
    ("issue", "a bug report"),
)
"""What to do next, and what comes of it."""


def page(diagnosis: Diagnosis, record: Mapping[str, Any] | None, run: Sequence[str] = ()) -> str:
    """Return the diagnosis as HTML.

    Args:
        run: as ``render`` takes it.
        record: of ``runner.diagnose.harness.run_heat_map``; None where it was not asked for.
    """
    return render_template(
        "diagnosis.html.j2",
        title=in_line(diagnosis.id),
        reason=one_line(diagnosis.reason, 1000),
        properties=_properties(diagnosis),
        steps=stage_steps(diagnosis.stages, diagnosis.stage),
        findings=[finding_parts(finding) for finding in diagnosis.findings],
        commands=_commands(diagnosis, run, _PAGE_COMMANDS),
        **cause_parts(diagnosis, record),
    )


def cause_parts(diagnosis: Diagnosis, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what templates show of the cause: the culprit, why it is not known, the ablations, and the heat map.

    Args:
        diagnosis: of the failure.
        record: as ``page`` takes it.
    """
    numbers = (record or {}).get("picture")
    return {
        "culprit": _culprit(diagnosis.culprit),
        "bisect_note": diagnosis.bisect_note,
        "ablations": diagnosis.ablations,
        "heat_map": numbers,
        "no_heat_map": one_line((record or {}).get("reason") or ""),
        "grid": heat_map(numbers) if numbers else None,
        "bars": bars(numbers["histogram"]) if numbers and numbers["histogram"] else [],
        "worst": _worst(numbers) if numbers else None,
    }


def _properties(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return shown_rows(
        ("verdict", diagnosis.verdict),
        ("torch", diagnosis.torch),
        ("signature", str(diagnosis.signature or "")),
        ("labels", ", ".join(diagnosis.labels)),
        *(("note", note) for note in diagnosis.notes),
        ("time", duration(diagnosis.seconds) if diagnosis.seconds else ""),
        limit=1000,
    )


def stage_steps(stages: Mapping[str, str], first_bad: str | None) -> list[tuple[str, str, str]]:
    """Return the stages in their order: name, what each showed, and ``ok``, ``bad`` or ``guilty``."""
    return [
        (stage_words(stage), one_line(outcome), "ok" if outcome == "ok" else "guilty" if stage == first_bad else "bad")
        for stage, outcome in stages.items()
    ]


def _culprit(culprit: Culprit | None) -> list[tuple[str, str]]:
    if culprit is None:
        return []
    return shown_rows(
        ("backend", culprit.backend),
        ("subsystem", culprit.subsystem or ""),
        ("application", "" if culprit.number is None else f"the {ordinal(culprit.number + 1)}"),
        ("operator or pass", culprit.name or ""),
        ("step", ", ".join(filter(None, (culprit.step, culprit.place)))),
    )


def finding_parts(finding: Finding) -> dict[str, Any]:
    """Return what templates show of a finding."""
    error = finding.error or {}
    return {
        "oracle": finding.oracle,
        "path": one_line(finding.path),
        "stage": finding.stage,
        "message": cap(clean(finding.message), 4000),
        "numbers": layout(finding.numbers),
        "error": cap(clean(f"{error['type']}: {error.get('message', '')}"), _TRACE) if error.get("type") else "",
        "raiser": raiser_of(error),
        "causes": [one_line(str(name)) for name in error.get("chain") or ()][1:],
        "trace": cap(clean(str(error.get("trace") or "")), _TRACE),
    }


def _worst(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the worst elements: its columns and rows of text."""
    rows: Sequence[Mapping[str, Any]] = record["worst"]
    columns = [
        name
        for name in ("index", "eager", "compiled", "float64", "absolute", "relative")
        if any(name in r for r in rows)
    ]
    return {"columns": columns, "rows": [[number(row.get(name, "")) for name in columns] for row in rows]}
