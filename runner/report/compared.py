"""What a verdict rests on: what was compared, and by what a pass was excused that lies outside the tolerance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from runner.contract.oracles import is_excuse
from runner.record.events import VariantFinished
from runner.text import one_line, plural

STARRED = "PASS*"
"""How tables write a pass that needed an excuse."""

_LABELS = 20  # that a line names: a log may hold any number of them


def excuses(event: VariantFinished) -> tuple[str, ...]:
    """Return the labels of a pass whose values lie outside the tolerance; empty for any other verdict."""
    return tuple(label for label in event.labels if event.verdict == "PASS" and is_excuse(label))


def star_line(events: Iterable[VariantFinished]) -> str:
    """Return the line below a table that says what excused its passes, and how many; empty if nothing did."""
    counts = Counter(label for event in events for label in excuses(event))
    if not counts:
        return ""
    labels = [f"{label} ({count})" for label, count in sorted(counts.items())]
    words = ", ".join(labels[:_LABELS]) + (", ..." if len(labels) > _LABELS else "")
    return one_line(f"{STARRED}: values lie outside the tolerance and still pass: {words}")


def compared_lines(event: VariantFinished) -> list[str]:
    """Return what was compared, what excused a pass, and the notes, one line each."""
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
    lines += [f"label {label}" for label in event.labels]
    lines += [f"note {note}" for note in event.notes]
    return [one_line(line) for line in lines]
