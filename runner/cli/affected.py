"""``runner run --affected-by``: the variants that a change of the compiler can affect, and what is known of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runner.exit_codes import NOTHING, UsageError
from runner.files import read_text
from runner.session.affected import Block, Candidate, Selection, candidate, read_diff, read_place, select
from runner.session.recorded_lines import Recorded, find_recorded
from runner.session.run import Plan, narrowed
from runner.session.settings import RunSettings
from runner.text import one_line, plural

_OPTION = "--affected-by"
_LONGEST = 64 << 20
"""Bytes of a diff."""
_NAMED = 3


def read_changes(what: str) -> list[Block]:
    """Return the changed lines that the option names: a diff (``-`` is standard input), ``FILE:LINES`` or a file.

    Raises UsageError.
    """
    is_diff = what == "-" or what.endswith((".diff", ".patch"))
    text = ""
    try:
        if what == "-":
            text = _standard_input()
        elif is_diff or (os.path.isfile(what) and not what.endswith(".py")):
            text = read_text(what, "replace")
    except OSError as error:
        raise UsageError(f"{_OPTION} {what}: {error.strerror or error}") from None
    blocks = read_diff(text) if is_diff or "\n@@ -" in text else read_place(what)
    if not blocks:
        reason = "the diff changes no line" if is_diff else "it names no line"
        raise UsageError(f"{_OPTION} {what}: {reason}; nothing is to run", NOTHING)
    return blocks


def _standard_input() -> str:
    """Raises UsageError where it is closed, or longer than any diff."""
    data = sys.stdin.buffer.read(_LONGEST + 1) if sys.stdin is not None else None
    if data is None or len(data) > _LONGEST:
        reason = "there is no standard input" if data is None else f"it has more than {_LONGEST >> 20} MiB"
        raise UsageError(f"{_OPTION} -: {reason}")
    return data.decode(errors="replace")


def narrow(planned: Plan, what: str, command: str, settings: RunSettings) -> Plan:
    """Return the plan with the variants that a change can affect, in their order, and a remark about them.

    Args:
        planned: what the command line selects, all shards together.
        what: the option's value.
        command: what records lines of these variants, as a person types it.
        settings: those of the run, whose shard the plan is cut to.

    Raises:
        UsageError: ``what`` cannot be read, or no kept run has lines of these variants.
    """
    changes = read_changes(what)
    variants = {item.variant.id: item.variant for item in planned.planned}
    if not variants:
        return planned
    recorded = find_recorded([*variants])
    if recorded is None:
        raise UsageError(
            f"{_OPTION}: no run that is kept here recorded lines of these variants; record them: {command}"
        )
    candidates = [candidate(variant, recorded.seconds.get(id_, 0.0)) for id_, variant in variants.items()]
    selection = select(recorded.line_map, changes, candidates)
    if not selection.reasons:
        raise UsageError(f"{_OPTION} {what}: only tests and documents change; nothing is to run", NOTHING)
    place = {id_: number for number, id_ in enumerate(selection.reasons)}
    chosen = sorted((item for item in planned.planned if item.variant.id in place), key=lambda e: place[e.variant.id])
    return narrowed(planned, chosen, _summary(selection, recorded, candidates), settings)


def _summary(selection: Selection, recorded: Recorded, candidates: Sequence[Candidate]) -> str:
    """Say what runs, of how much, and what nobody knows."""
    total = sum(each.seconds for each in candidates)
    seconds = sum(each.seconds for each in candidates if each.id in selection.reasons)
    new = sum(each.id not in recorded.line_map.counts for each in candidates)
    parts = [f"{_OPTION}: {len(selection.reasons)} of {plural(len(candidates), 'variant')} run"]
    parts += [f"{seconds / total:.0%} of the recorded time"] if total else []
    parts += [f"{new} are new"] if new else []
    parts += [f"{selection.sampled} stand for {selection.common} that reach common lines"] if selection.sampled else []
    text = ", ".join(parts) + f"; lines are those of run {recorded.run}"
    if selection.tests:
        text += f"; without {plural(len(selection.tests), 'file')} of tests and documents"
    if selection.unknown:
        names = ", ".join(one_line(str(block), 80) for block in selection.unknown[:_NAMED])
        more = f" and {len(selection.unknown) - _NAMED} more" if len(selection.unknown) > _NAMED else ""
        text += f"; nobody knows what reaches {names}{more} (C++, generated code, import, untested): all run"
    return text
