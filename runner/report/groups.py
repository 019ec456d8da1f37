"""Red results by what they have in common, one group for each signature, the worst first; and what to type about the
worst group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.cases.model import LAUNCH
from runner.contract.oracles import rank_of
from runner.quote import command_words
from runner.record.events import VariantFinished
from runner.text import one_line, plural
from runner.verdict.signature import assess

_HEADERS = ("results", "severity", "signature")


@dataclass(frozen=True, slots=True)
class Group:
    """Results that fail alike. The first member speaks for all."""

    members: tuple[VariantFinished, ...]

    @property
    def severity(self) -> str:
        """Return what the findings are worth; empty for results that rest on none, such as INVALID."""
        return self.members[0].severity or ""

    @property
    def title(self) -> str:
        """Return the signature with its id."""
        first = self.members[0]
        return one_line(f"{first.signature_id} {first.signature}", 400)


def groups_of(results: Iterable[VariantFinished]) -> list[Group]:
    """Return the groups: the worst severity first, then the largest, then the one that came first.

    A result of a log without signatures gets its own.
    """
    groups: dict[str, list[VariantFinished]] = {}
    for result in results:
        result = result if result.signature else assess(result)
        groups.setdefault(result.signature, []).append(result)
    ordered = sorted(groups.values(), key=lambda members: (rank_of(members[0].severity or ""), -len(members)))
    return [Group(tuple(members)) for members in ordered]


def render_groups(groups: Iterable[Group], width: int) -> str:
    """Return a table with a line for each group. Signatures are cut where they pass ``width`` columns."""
    rows = [(str(len(group.members)), group.severity or "-", group.title) for group in groups]
    counts, severities = (max(len(row[column]) for row in [_HEADERS, *rows]) for column in (0, 1))
    room = max(24, width - counts - severities - 4)
    lines = [
        f"{count:>{counts}}  {severity:<{severities}}  {one_line(title, room)}"
        for count, severity, title in [_HEADERS, *rows]
    ]
    return "\n".join(lines)


COMMANDS = ("diagnose", "reduce", "repro", "issue")
"""What a person does with a failure, in that order."""

_OF_A_LAUNCH = frozenset({"diagnose", "reduce", "repro"})
"""Commands that apply to a plain launch of kernels, which compiles nothing."""

_NOT_OF_REPRO = frozenset({"--seed", "--import", "--python"})
"""Options with a value that ``runner repro`` does not take: it runs nothing."""


def command_of(name: str, run: Sequence[str]) -> str:
    """Return the command ``name`` about a variant, as a shell reads it.

    Args:
        run: the words of the command that runs the variant, of ``command_words``.
    """
    start = run.index("runner")
    words = [word for word in run[start + 2 :] if word != "--no-known"]
    if name == "repro":
        values = {place + 1 for place, word in enumerate(words) if word in _NOT_OF_REPRO}
        words = [word for place, word in enumerate(words) if place not in values and word not in _NOT_OF_REPRO]
    return " ".join([*run[:start], "runner", name, *words])


def commands_of(event: VariantFinished) -> dict[str, str]:
    """Return what a person may type about a failure, by the names of ``COMMANDS``; empty where its log names no
    command."""
    run = command_words(event.repro)
    names = [name for name in COMMANDS if event.backend != LAUNCH or name in _OF_A_LAUNCH]
    return {name: command_of(name, run) for name in names} if run else {}


def next_lines(groups: Sequence[Group], width: int) -> list[str]:
    """Return at most four lines, one command each; none without a failure. Where nothing was compared, explain says
    why.

    They are about the first group, the worst, with a member that can be named. A command is never cut. What the group
    is stands beside the first command where ``width`` columns have room for it.
    """
    results = [event for group in groups for event in group.members]
    event = next((e for e in results if e.verdict in ("FAIL", "ERROR") and e.findings and commands_of(e)), None)
    if event is None:
        runs = (command_words(each.repro) for each in results if each.verdict == "VACUOUS")
        return [f"next: {command_of('explain', run)}" for run in runs if run][:1]
    lines = [
        f"{'next: ' if number == 0 else '      '}{command}" + (" > repro.py" if name == "repro" else "")
        for number, (name, command) in enumerate(commands_of(event).items())
    ]
    count = next(len(group.members) for group in groups if event in group.members)
    alike = f"  # {plural(count, 'failure')}{' alike' * (count > 1)}: {one_line(event.signature, 120)}"
    if len(lines[0] + alike) <= width:
        lines[0] += alike
    return lines
