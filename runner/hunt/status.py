"""The state of a hunt as text: a table of its groups, how fast it is, and what remains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runner.contract.lines import KIND, Lines, is_text
from runner.hunt.groups import Group
from runner.hunt.state import State
from runner.text import draw_table, duration, one_line, plural

_HEADERS = ("severity", "signature", "count", "first", "triage", "operators", "culprit")
_WIDTH = 90
_KINDS = {"step": "", "pair": "", "operator": "", "decomposition": "", "lowering": "", "fallback": "", "pass": "passes",
          KIND: ""}  # fmt: skip
"""What a guided hunt counts, with its plural where that is not regular."""


def render(state: State, groups: Sequence[Group]) -> str:
    """Return the table and the lines below it."""
    rows = [
        (group.first.severity or group.first.verdict, one_line(f"{group.id} {group.first.signature}", _WIDTH),
        len(group.reds),
         group.first.id.partition("::")[2].partition("[")[0], _said(group), _size(group),
         one_line(group.report.culprit, 60) if group.report else "")
        for group in groups
    ]  # fmt: skip
    lines = [draw_table(rows, _HEADERS)] if rows else ["no group: nothing was red"]
    variants = sum(record.variants for record in state.rounds)
    verdicts: Counter[str] = Counter()
    for record in state.rounds:
        verdicts.update(record.verdicts)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    lines += ["", f"{plural(len(state.rounds), 'round')}, {plural(variants, 'variant')}: {counted or 'none'}"]
    if state.hunting:
        drawing = sum(record.drawing for record in state.rounds)
        lines.append(
            f"{variants / state.hunting:.2f} variants a second; {duration(drawing)} of drawing, "
            f"{duration(state.hunting - drawing)} of running, {duration(state.reducing)} of reducing and reporting"
        )
    lines.append(_yield(state, groups))
    reached = [name for record in state.rounds for name in record.reached]
    kinds = Counter(name.partition(" ")[0] for name in reached if not is_text(name))
    kinds += Counter({KIND: len(Lines(reached))})  # none where none was recorded
    if kinds:
        lines.append(
            "reached: "
            f"{', '.join(plural(kinds[kind], kind, several) for kind, several in _KINDS.items() if kinds[kind])}"
        )
    pending, unreported = sum(group.is_pending for group in groups), sum(group.is_unreported for group in groups)
    remaining = [f"{plural(pending, 'group')} to reduce"] if pending else []
    remaining += [f"{plural(unreported, 'report')} to write"] if unreported else []
    lines.append(f"remaining: {', '.join(remaining) or 'nothing'}")
    return "\n".join(lines)


def _yield(state: State, groups: Sequence[Group]) -> str:
    """Return how many groups are new, and how many of them an hour gives."""
    new = sum(group.is_new for group in groups)
    known = sum(bool(group.known) for group in groups)
    judged = sum(group.triage is not None for group in groups)
    hours = (state.hunting + state.reducing) / 3600
    rate = f", {new / hours:.1f} an hour" if hours else ""
    return f"{plural(new, 'new group')}{rate}; {known} known, {judged} with a triage"


def _said(group: Group) -> str:
    """Return what is said of a group: by its triage, else by what was known before, else by its reduced case."""
    if group.triage is not None:
        return one_line(str(group.triage), 60)
    if group.known:
        return one_line(f"known: {group.known}", 60)
    return f"new{', as ' * bool(group.alike)}{group.alike}" if group.fails else ""


def _size(group: Group) -> str:
    """Return ``12 -> 2``, or why there is no smaller case."""
    done = group.reduction
    if done is None:
        return "waits" if group.is_pending else ""
    return one_line(done.problem, 40) if done.problem else f"{done.before} -> {done.after}" + "?" * (not done.complete)
