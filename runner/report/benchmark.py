"""Timings as a table, and as bars: one SVG, by itself or on a page, readable without JavaScript and without a
network."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runner.benchmark.measure import BUSY, Copy, Report, Row, Side, Spread
from runner.report.table import wrap_id
from runner.templates import render_template
from runner.text import clean, draw_table, in_line, one_line, plural

HEADERS = (
    "variant", "compile\ncold", "compile\nwarm", "eager", "compiled", "speed-up", "peak\neager", "peak\ncompiled",
    "kernels", "moved", "GB/s", "of copy",
)  # fmt: skip
UNCLEAR = "~"
_ID_WIDTH = 44
_NONE = "-"

_ROW, _BAR, _WIDTH, _LABEL = 40, 14, 720, 12
_TICKS = 6


def render(report: Report) -> str:
    """Return the table, why variants are missing from it, and what the figures mean."""
    several = len({row.torch for row in report.rows}) > 1
    parts = [draw_table([_cells(row, several) for row in report.timed], HEADERS, right=True)] if report.timed else []
    lines = {
        "not timed": [
            f"  {in_line(row.id)}: {row.status}: {one_line(row.reason)}"
            + (f" (compiled cold in {time(row.cold.seconds)})" if row.cold else "")
            for row in report.rows
            if row.status != "timed"
        ],
        "notes": [f"  {in_line(row.id)}: {one_line(note)}" for row in report.rows for note in row.notes],
    }
    parts += ["\n".join([title, *rows]) for title, rows in lines.items() if rows]
    return clean("\n\n".join(filter(None, [*parts, _legend(report)])))


def _cells(row: Row, several: bool) -> list[str]:
    name = f"{row.id} torch {row.torch}" if several else row.id
    traffic = row.traffic
    least = ">=" if traffic and traffic.source != "inductor" else ""
    return [
        "\n".join(wrap_id(in_line(name), _ID_WIDTH)),
        time(row.cold.seconds) if row.cold else _NONE,
        time(row.warm.seconds) if row.warm else _NONE,
        _spread(row.eager),
        _spread(row.compiled),
        f"{UNCLEAR if row.unclear else ''}{row.speedup:.2f}" if row.speedup else _NONE,
        _memory(row.eager),
        _memory(row.compiled),
        _kernels(row),
        f"{least}{size(traffic.bytes)}" if traffic else _NONE,
        f"{least}{significant(row.bandwidth / 1e9)}" if row.bandwidth is not None else _NONE,
        f"{least}{row.of_copy:.0%}" if row.of_copy is not None else _NONE,
    ]


def _kernels(row: Row) -> str:
    """Return how many kernels Inductor generated, and where known how many the GPU launched in eager and compiled."""
    generated = _NONE if row.generated is None else str(row.generated)
    launches = [side.launches for side in (row.eager, row.compiled) if side is not None]
    if all(count is None for count in launches):
        return generated
    return f"{generated} ({' to '.join(_NONE if count is None else str(count) for count in launches)})"


def _spread(side: Side | None) -> str:
    return _NONE if side is None else spread(side.seconds)


def spread(times: Spread) -> str:
    """Return ``1.23 ms ±4%``: the median, and half the interquartile range as a share of it."""
    half = times.range / 2 / times.median if times.median else 0.0
    return f"{time(times.median)} ±{half:.0%}" if half < 10 else f"{time(times.median)} ±>999%"


def _memory(side: Side | None) -> str:
    return _NONE if side is None or side.memory is None else size(side.memory)


def _legend(report: Report) -> str:
    lines = [_about(copy) for copy in report.copies]
    if report.load > BUSY:
        lines.append(
            f"others were at work on this machine before it began (load {report.load:.2f} a processor): do not trust "
            "the times"
        )
    if report.speedup is not None:
        lines.append(f"speed-up, geometric mean of {plural(len(report.timed), 'variant')}: {report.speedup:.2f}")
        lines.append(f"median ± half the interquartile range; {UNCLEAR} the quartiles of eager and compiled overlap; "
                     "cold, warm: the first call with an empty kernel cache and with a full one")  # fmt: skip
    if any(row.device == "cpu" for row in report.timed):
        lines.append("peak on the CPU: growth of the resident set in one call (ru_maxrss); under 1 MiB it is noise")
    if any(row.traffic and row.traffic.source != "inductor" for row in report.timed):
        lines.append(">= is a lower bound: inputs, parameters and outputs, each once, since Inductor counted nothing")
    return "\n".join(lines + (["not judged: runner run says whether the answers are right"] if report.timed else []))


def _about(copy: Copy) -> str:
    threads = f", {plural(copy.threads, 'thread')}" if copy.device == "cpu" else ""
    return (f"{copy.device} ({one_line(copy.name)}{threads}, torch {copy.torch}): a copy of {size(copy.bytes // 2)} "
            f"reads and writes {significant(copy.bandwidth / 1e9)} GB/s ({spread(copy.seconds)})")  # fmt: skip


def time(seconds: float) -> str:
    """Return seconds with three digits and a unit: ``853 ns``, ``12.3 µs``, ``4.56 ms``, ``7.89 s``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 0.9995:
            return f"{significant(seconds * factor)} {unit}"
    return f"{significant(seconds * 1e9)} ns"


def size(count: int) -> str:
    """Return bytes with three digits and a binary unit: ``12.3 MiB``."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.0f} {units[0]}" if value.is_integer() else f"{significant(value)} {units[0]}"


def significant(value: float) -> str:
    """Return three digits without an exponent: ``0.0123``, ``1.23``, ``12.3``, ``1234``."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    places = 2 - math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:.{max(0, places)}f}"


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of the plot: a bar from 0 to ``x`` with a line from ``low`` to ``high``, in pixels; or words alone."""

    y: int
    label: str
    text: str
    kind: str  # faster, slower, unclear, or missing
    x: float = 0.0
    low: float = 0.0
    high: float = 0.0


def bars(report: Report) -> tuple[list[Bar], list[tuple[float, str]]]:
    """Return the bars, and the ticks of their axis (pixel and text). The scale begins with 0 at the left edge."""
    several = len({row.torch for row in report.rows}) > 1
    most = max([1.25, *(1.2 * row.speedup for row in report.rows if row.speedup)])
    step = _step(most)
    scale = _WIDTH / (math.ceil(most / step) * step)
    rows = []
    for number, row in enumerate(report.rows):
        label = in_line(f"{row.id} torch {row.torch}" if several else row.id)
        if row.speedup is None or row.speedup_range is None or row.eager is None or row.compiled is None:
            rows.append(Bar(number * _ROW, label, f"{row.status}: {one_line(row.reason, 120)}", "missing"))
            continue
        low, high = (min(end * scale, _WIDTH) for end in row.speedup_range)  # else noise would set the scale
        kind = "unclear" if row.unclear else "faster" if row.speedup > 1 else "slower"
        text = f"{row.speedup:.2f} ({spread(row.eager.seconds)} to {spread(row.compiled.seconds)})"
        rows.append(Bar(number * _ROW, label, text, kind, row.speedup * scale, low, high))
    return rows, [(number * step * scale, f"{number * step:g}") for number in range(math.ceil(most / step) + 1)]


def _step(most: float) -> float:
    """Return a round number that goes into ``most`` at most ``_TICKS`` times."""
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if most / (power * factor) <= _TICKS)


def svg(report: Report) -> str:
    """Return the bars as an SVG file."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _from_template(report, "benchmark.svg.j2")


def page(report: Report) -> str:
    """Return an HTML page with the bars over the table."""
    return _from_template(report, "benchmark.html.j2")


def _from_template(report: Report, name: str) -> str:
    rows, ticks = bars(report)
    unit = ticks[1][0] / float(ticks[1][1])  # pixels of a speed-up of 1
    return render_template(
        name,
        report=report,
        bars=rows,
        ticks=ticks,
        parity=next((x for x, text in ticks if text == "1"), unit),
        width=_WIDTH,
        height=len(rows) * _ROW,
        bar_height=_BAR,
        label_height=_LABEL,
        table=render(report),
    )
