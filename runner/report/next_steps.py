"""The commands that a run with failures ends with: what to type about the worst group of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.cases.model import LAUNCH
from runner.quote import command_words
from runner.record.events import VariantFinished
from runner.text import one_line, plural
from runner.verdict.signature import FailureSignature, main_signature

COMMANDS = ("diagnose", "reduce", "repro", "issue")
"""What a person does with a failure, in that order."""

_OF_A_LAUNCH = frozenset({"diagnose", "reduce", "repro"})
"""Commands that apply to a plain launch of kernels, which compiles nothing."""

_NOT_OF_REPRO = frozenset({"--seed", "--import", "--python"})
"""Options with a value that ``runner repro`` does not take: it runs nothing."""


def target_words(event: VariantFinished) -> list[str]:
    """Return what a command about this variant must be told, as words of a shell; empty where its log names no command."""
    return [word for word in command_words(event.repro)[2:] if word != "--no-known"]


def worst_group(results: Iterable[VariantFinished]) -> tuple[FailureSignature, Sequence[VariantFinished]] | None:
    """Return the signature and the members of the worst group of failures; None without a failure.

    Failures of one signature are a group. A wrong answer is worse than no answer, then many failures are worse than few, then
    the first group counts.
    """
    groups: dict[tuple[str, FailureSignature], list[VariantFinished]] = {}
    for event in results:
        signature = main_signature(event.findings) if event.verdict in ("FAIL", "ERROR") else None
        if signature is not None and target_words(event):
            groups.setdefault((event.verdict, signature), []).append(event)
    if not groups:
        return None
    (_, signature), members = min(groups.items(), key=lambda group: (group[0][0] != "FAIL", -len(group[1])))
    return signature, members


def next_lines(results: Iterable[VariantFinished], width: int) -> list[str]:
    """Return at most four lines, one command each; none without a failure. Where nothing was compared, explain says why.

    A command is never cut. What the group is stands beside the first one where ``width`` columns have room for it.
    """
    results = [*results]
    worst = worst_group(results)
    if worst is None:
        vacuous = next((event for event in results if event.verdict == "VACUOUS" and target_words(event)), None)
        return [f"next: runner explain {' '.join(target_words(vacuous))}"] if vacuous is not None else []
    signature, members = worst
    words = target_words(members[0])
    names = [name for name in COMMANDS if members[0].backend != LAUNCH or name in _OF_A_LAUNCH]
    lines = [
        f"{'next: ' if number == 0 else '      '}runner {name} {' '.join(_told(name, words))}"
        + (" > repro.py" if name == "repro" else "")
        for number, name in enumerate(names)
    ]
    alike = f"  # {plural(len(members), 'failure')}{' alike' * (len(members) > 1)}: {one_line(str(signature), 120)}"
    if len(lines[0] + alike) <= width:
        lines[0] += alike
    return lines


def _told(command: str, words: Sequence[str]) -> list[str]:
    if command != "repro":
        return [*words]
    values = {place + 1 for place, word in enumerate(words) if word in _NOT_OF_REPRO}
    return [word for place, word in enumerate(words) if place not in values and word not in _NOT_OF_REPRO]
