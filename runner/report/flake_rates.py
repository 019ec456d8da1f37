"""What the attempts of ``--stress`` say: how often each variant is red, with the interval of that rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.record.events import VariantFinished
from runner.text import in_line, plural
from runner.verdict.flake_rate import FlakeRate, flake_rate, percent

_NAMED = 50
"""Variants that are named, at most."""


def rate_lines(results: Iterable[VariantFinished], several: bool = False) -> list[str]:
    """Return a line for each variant whose attempts differ, the highest rate first, and one for all others of one rate.

    Args:
        results: of a run; those without attempts of ``--stress`` are left out.
        several: whether variants differ by their torch alone, so that it must be named.
    """
    flaky: list[tuple[FlakeRate, str]] = []
    steady: dict[FlakeRate, int] = {}
    for result in results:
        rate = flake_rate([result.tally])
        if rate is None:
            continue
        if result.verdict == "FLAKY":
            flaky.append((rate, in_line(result.id + (f" torch {result.torch}" if several else ""))))
        else:
            steady[rate] = steady.get(rate, 0) + 1
    flaky.sort(key=lambda entry: -entry[0].red / entry[0].count)
    entries = [*flaky[:_NAMED], *((rate, _others(count, flaky)) for rate, count in steady.items())]
    if len(flaky) > _NAMED:
        entries.append((flaky[_NAMED][0], f"and {len(flaky) - _NAMED} more at most so often"))
    return ["red attempts of --stress, with Wilson's 95 % interval of the rate", *_aligned(entries)] if entries else []


def _others(count: int, flaky: Sequence[object]) -> str:
    each = f"each of {count}" if count > 1 else "one"
    return f"{each} other{'s' if count > 1 else ''}" if flaky else plural(count, "variant")


def _aligned(entries: Sequence[tuple[FlakeRate, str]]) -> list[str]:
    rows = []
    for rate, name in entries:
        low, high = rate.interval
        share = percent(rate.red / rate.count)
        rows.append((f"{rate.red} of {rate.count}", share, f"({percent(low)} to {percent(high)})", name))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(["", *(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
