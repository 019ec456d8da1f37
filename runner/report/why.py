"""What ``runner why`` found, on one screen of 80 columns. A command is never cut: one that lost its end is worth less
than a long line."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.cases.model import Variant
from runner.cases.walk import all_steps
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnostics import shown_file
from runner.record.events import VariantFinished
from runner.report.diagnosis import blame
from runner.report.failure import headline, raiser_of, shown_rows, stage_outcomes
from runner.text import clean, in_line, one_line
from runner.verdict.stages import in_order

WIDTH = 80
LINES = 14
"""Lines of the reduced case that are shown."""
FEW = 5
"""Operators of a reduced case that are named where none is known to be the one; more say nothing."""

_NAME = 10  # columns before a row's text


@dataclass(slots=True)
class Explanation:
    """What is known so far.

    ``yaml`` and ``summary`` are of the reduced case, ``script`` says where the script is and what came of it. ``rest``
    has a sentence about each step that was cut or left out, and the command that goes on. ``commands`` come next, each
    with its purpose.
    """

    event: VariantFinished
    variant: Variant
    diagnosis: Diagnosis
    known: str = ""
    yaml: str = ""
    summary: str = ""
    script: str = ""
    rest: list[tuple[str, str]] = field(default_factory=list)
    commands: list[tuple[str, str]] = field(default_factory=list)


def render(found: Explanation) -> str:
    """Return the text, without a newline at its end."""
    event, gone = found.event, [row.name for row in found.diagnosis.ablations if row.outcome == "gone"]
    head = f"{event.verdict} {in_line(event.id)} on torch {event.torch}"
    error = (event.findings[0].error if event.findings else None) or {}
    rows = shown_rows(
        ("", headline(event, 300)),
        ("", raiser_of(error)),
        ("known", found.known),
        ("stage", _stage(event)),
        ("operator", operator_of(found)),
        ("to blame", blame(found.diagnosis) if found.diagnosis.culprit else ""),
        ("gone", ", ".join(gone)),
        ("reduced", found.summary),
    )
    lines = [head, *(line for row in rows for line in _row(*row)), *excerpt(found.yaml)]
    lines += [line for row in shown_rows(("script", found.script)) for line in _row(*row)]
    for text, command in found.rest:
        lines += [*_row("not done", one_line(text, 300)), f"{'':<{_NAME}}{command}"]
    lines += [f"{'next' if number == 0 else '':<{_NAME}}{command}  # {why}"
              for number, (command, why) in enumerate(found.commands)]  # fmt: skip
    return "\n".join(lines)


def _stage(event: VariantFinished) -> str:
    """Return the stage, and what each stage showed."""
    return (
        f"{event.stage or 'unknown'} ({stage_outcomes(in_order(event.stages))})" if event.stages else event.stage or ""
    )


def operator_of(found: Explanation) -> str:
    """Return the operator at which the failure begins, with its place; else the few of the smallest case that is known.

    Of a wrong value the run says it, of anything else the reduced case.
    """
    place = found.event.findings[0].place if found.event.findings else ""
    if found.event.operator:
        return f"{found.event.operator}{f', {shown_file(place)}' if place else ''}"
    names = list(dict.fromkeys(step.operator for step in all_steps(found.variant.case.chain)))
    return ", ".join(names) if len(names) <= FEW else f"not found among the {len(names)} operators of the case"


def excerpt(yaml: str) -> list[str]:
    """Return the first lines of a case, without the comment that names its schema."""
    lines = [line for line in clean(yaml).rstrip().splitlines() if not line.startswith("#")]
    shown = lines if len(lines) <= LINES else lines[: LINES - 1]
    more = [f"  ... {len(lines) - len(shown)} more lines"] if len(shown) < len(lines) else []
    return [f"  {line}" if len(line) <= WIDTH - 2 else f"  {line[: WIDTH - 5]}..." for line in shown] + more


def _row(name: str, text: str) -> Sequence[str]:
    """Return the lines of a row, wrapped at words."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{name:<{_NAME}}", subsequent_indent=" " * _NAME, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
