"""What ``runner history`` prints: the verdicts of one case over all runs kept here, the newest first, and how often it
is red.

``rate_lines`` says the same of the attempts of ``--stress``, with the interval of each rate. It is Wilson's: E. B.
Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American Statistical
Association 22 (1927). L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial proportion",
Statistical Science 16 (2001), recommend it for few attempts, where the usual one is too narrow.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from runner.cases.versions import release_of
from runner.diagnostics import shown_path
from runner.quote import command_words
from runner.record.events import RED, Key, RunStarted, VariantFinished, from_json, grouped
from runner.record.journal import lines, parse_line
from runner.record.store import FOLDER, start_order
from runner.report.failure import command_of
from runner.text import duration, in_line, one_line, plural

CONFIDENCE = 0.95
"""How often an interval made this way holds the true rate, at least about."""


@dataclass(frozen=True, slots=True)
class FlakeRate:
    """``red`` of ``count`` attempts were red."""

    red: int
    count: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return the bounds between which the rate lies, from 0 to 1."""
        return wilson(self.red, self.count)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.red} of {self.count} red: {percent(self.red / self.count)}, "
            f"{CONFIDENCE:.0%} interval {percent(low)} to {percent(high)}"
        )


def flake_rate(tallies: Iterable[Mapping[str, int]]) -> FlakeRate | None:
    """Return the rate over several tallies of verdicts; None where they count nothing."""
    red = count = 0
    for tally in tallies:
        count += sum(tally.values())
        red += sum(number for verdict, number in tally.items() if verdict in RED)
    return FlakeRate(red, count) if count else None


def wilson(successes: int, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's score interval of a rate.

    Args:
        successes: from 0 to ``count``.
        count: at least 1.
        confidence: above 0 and below 1.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = successes / count, z * z / count
    centre = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # At the ends the bound is the end itself, which rounding would miss.
    return 0.0 if successes == 0 else centre - half, 1.0 if successes == count else centre + half


def percent(rate: float) -> str:
    """Return ``15.0 %``."""
    return f"{100 * rate:.1f} %"


@dataclass(frozen=True, slots=True)
class PastVerdict:
    """A verdict, the name of its run, and a hash of what that run planned: equal where cases and torch were the
    same."""

    run: str
    plan: str
    event: VariantFinished


def past_verdicts(case: str, base: Path | None = None) -> tuple[list[PastVerdict], int]:
    """Return the verdicts of a case, and how many runs there are. Logs that cannot be read are left out.

    The newest run comes first. Within a run the verdicts are ordered by id and torch: which variant ended first is
    chance.

    Args:
        case: an id, or the beginning of one up to its axes: ``FILE``, ``FILE::CASE``, ``FILE::CASE[AXES]``,
            ``FILE::CASE[AXES]@BACKEND``, ``FILE::CASE@BACKEND``; or the name of a case alone.
        base: the folder of runs, ``.runner`` if None.
    """
    case = _as_printed(case)
    verdicts: list[PastVerdict] = []
    journals = sorted(
        (base or Path(FOLDER)).glob("runs/*/events.jsonl"), key=lambda path: start_order(path.parent.name), reverse=True
    )
    for journal in journals:
        with contextlib.suppress(OSError):
            verdicts += _of_run(journal, case)
    return verdicts, len(journals)


def _of_run(journal: Path, case: str) -> list[PastVerdict]:
    """The verdicts in one log; of a variant that has two the later one. Raises OSError."""
    plan = ""
    results: dict[Key, VariantFinished] = {}
    for event in _events(journal, case):
        if isinstance(event, RunStarted):
            plan = event.plan
        elif case in _names(event):
            results[event.key] = event
    verdicts = sorted(results.values(), key=lambda event: (event.id, release_of(event.torch)))
    return [PastVerdict(journal.parent.name, plan, event) for event in verdicts]


def _events(journal: Path, case: str) -> Iterator[RunStarted | VariantFinished]:
    """The start of a run, and the verdicts that may be of the case: the other lines of a long log are not parsed."""
    words = [json.dumps(part)[1:-1].encode() for part in case.partition("@")[::2]]
    for line in lines(journal):
        if b'"run-started"' in line or (b'"variant-finished"' in line and all(word in line for word in words)):
            with contextlib.suppress(ValueError):  # torn, or no event
                event = from_json(parse_line(line))
                if isinstance(event, RunStarted | VariantFinished):
                    yield event


def _names(event: VariantFinished) -> tuple[str, ...]:
    """By which names a person may ask for a variant."""
    name = event.case.rpartition("::")[2]
    return (
        event.id,
        event.label,
        event.case,
        f"{event.case}@{event.backend}",
        name,
        f"{name}@{event.backend}",
        shown_path(event.file),
    )


def _as_printed(case: str) -> str:
    """The file of an id as reports print it, and a file alone as ``_names`` has it."""
    file, mark, name = case.partition("::")
    if mark:
        return f"{shown_path(file)}::{name}"
    return shown_path(os.path.abspath(file)) if Path(file).suffix else case


Paint = Callable[[str, str], str]
"""(text, verdict) to the text with colour."""

_HEADS = ("run", "torch", "backend", "verdict", "time", "stage", "signature")
_NARROWEST = 20
"""Columns of the signature, at least."""


def render(verdicts: Sequence[PastVerdict], width: int, paint: Paint | None = None) -> str:
    """Return a table for each set of axes, and below it a line for each backend and torch.

    Signatures are cut at ``width``.
    """
    groups = grouped(verdicts, lambda verdict: verdict.event.label)
    blocks = [
        "\n".join([in_line(label), *_table(members, width, paint), "", *_summaries(members)])
        for label, members in groups.items()
    ]
    runs = [words for verdict in verdicts if not verdict.event.tally and (words := command_words(verdict.event.repro))]
    if runs and len(runs) == len(verdicts):
        blocks.append(f"flake rate: {command_of('run', runs[0])} --stress 20 measures one")
    return "\n\n".join(blocks)


def _table(verdicts: Sequence[PastVerdict], width: int, paint: Paint | None) -> list[str]:
    from rich.cells import cell_len

    rows = [(in_line(verdict.run), *map(in_line, _cells(verdict.event))) for verdict in verdicts]
    widths = [max(cell_len(row[column]) for row in (_HEADS, *rows)) for column in range(len(_HEADS) - 1)]
    room = max(_NARROWEST, width - sum(widths) - 2 * len(widths))
    lines = []
    for verdict, row in ((None, _HEADS), *zip(verdicts, rows, strict=True)):
        cells = [cell + " " * (space - cell_len(cell)) for cell, space in zip(row, widths, strict=False)]
        if verdict is not None and paint is not None:
            cells[3] = paint(cells[3], verdict.event.verdict)
        lines.append("  ".join([*cells, one_line(row[-1], room)]).rstrip())
    return lines


def _cells(event: VariantFinished) -> tuple[str, ...]:
    rate = flake_rate([event.tally])
    word = f"{event.verdict} ({rate.red} of {rate.count} red)" if rate else event.verdict
    time = "cached" if event.cached else duration(event.seconds)
    signature = f"{event.signature_id} {event.signature}".strip()
    return event.torch, event.backend, word, time, event.stage or "-", signature or one_line(event.reason) or "-"


def _summaries(verdicts: Iterable[PastVerdict]) -> list[str]:
    """Return what became of each backend under each torch: how many verdicts of which kind, and the rate of red
    attempts."""
    lines = []
    for (backend, torch), members in grouped(verdicts, lambda each: (each.event.backend, each.event.torch)).items():
        counts = Counter(member.event.verdict for member in members)
        words = ", ".join(f"{count} {in_line(verdict)}" for verdict, count in counts.most_common())
        lines.append(f"{in_line(backend)}, torch {in_line(torch)}: {plural(len(members), 'run')}: {words}")
        stress = [member for member in members if member.event.tally]
        # Attempts of other cases or another torch are no attempts of the same thing.
        alike = [member.event.tally for member in stress if member.plan == stress[0].plan]
        if rate := flake_rate(alike):
            lines.append(f"  flake rate by --stress: {rate} (Wilson), {plural(len(alike), 'run')} of one plan")
    return lines


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
    rows = [
        (f"{rate.red} of {rate.count}", percent(rate.red / rate.count), f"({' to '.join(map(percent, rate.interval))})",
         name)
        for rate, name in entries
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(["", *(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
