"""The groups of a hunt: red results by their signature, with what is known of each and what became of its reduction and
its report.

``groups/<id>/`` in a hunt's folder holds the files of a group: a case, a script, a report and ``group.json``.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.contract.oracles import rank_of
from runner.files import read_bytes, replace_text
from runner.generate.generator import Request
from runner.hunt.state import Head, Red, Reduction, Report, State
from runner.hunt.triage import Triage

FAILURES = ("FAIL", "ERROR")
"""Verdicts about the compiler. The groups of others, such as VACUOUS, are listed, and nothing of them is reduced."""


@dataclass(frozen=True, slots=True)
class Known:
    """What earlier hunts and people know: places by the ids of signatures, and the triage of this hunt."""

    places: Mapping[str, str] = field(default_factory=dict)
    triage: Mapping[str, Triage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Red results with one signature.

    ``known`` is where it was known from before; empty for one that is new. ``alike`` is the id of a group that was seen
    earlier, and that was reduced to the same case or has the same cause.
    """

    reds: tuple[Red, ...]
    round: int  # that saw it first
    known: str = ""
    triage: Triage | None = None
    reduction: Reduction | None = None
    alike: str = ""
    report: Report | None = None

    @property
    def first(self) -> Red:
        """Return the first result, which speaks for all."""
        return self.reds[0]

    @property
    def id(self) -> str:
        """Return the id of the signature."""
        return self.first.signature_id

    @property
    def fails(self) -> bool:
        """Return whether it is about the compiler."""
        return self.first.verdict in FAILURES

    @property
    def is_new(self) -> bool:
        """Return whether it is about the compiler, and nobody has said anything of it."""
        return self.fails and not self.known and self.triage is None

    @property
    def is_pending(self) -> bool:
        """Return whether its first case should be reduced."""
        return self.is_new and self.reduction is None

    @property
    def is_unreported(self) -> bool:
        """Return whether its reduced case should be reported. One report serves all groups with the same case."""
        reduced = self.reduction is not None and not self.reduction.problem
        return self.is_new and reduced and not self.alike and self.report is None


def groups_of(state: State, known: Known | None = None) -> list[Group]:
    """Return the groups of a hunt: the worst severity first, then the largest.

    A group is known to a ledger where an entry explains its reduced case, or each of its results.
    """
    known = known or Known()
    reds: dict[str, list[Red]] = defaultdict(list)
    rounds: dict[str, int] = {}
    for record in state.rounds:
        for red in record.red:
            reds[red.signature_id].append(red)
            rounds.setdefault(red.signature_id, record.round)
    groups = []
    cases: dict[str, str] = {}
    causes: dict[str, str] = {}
    for key, members in reds.items():
        reduction = state.reductions.get(key)
        entry = (reduction.known if reduction else "") or (members[0].known if all(m.known for m in members) else "")
        place = known.places.get(key, "") or entry
        report = state.reports.get(key)
        same_case = cases.setdefault(reduction.case, key) if reduction and reduction.case else key
        same_cause = causes.setdefault(report.cause, key) if report and report.cause else key
        alike = next((first for first in (same_case, same_cause) if first != key), "")
        groups.append(Group(tuple(members), rounds[key], place, known.triage.get(key), reduction, alike, report))
    return sorted(groups, key=lambda group: (not group.fails, rank_of(group.first.severity), -len(group.reds)))


CASE, REDUCED, SCRIPT, REPORT, GROUP = "case.spec.yaml", "reduced.spec.yaml", "repro.py", "report.md", "group.json"
IDS = 1000
"""Ids that ``group.json`` names, so that a hunt of a day stays small; all are counted."""
REDRAWN = 10
"""Results that it has the command for."""


def folder_of(folder: Path, signature_id: str) -> Path:
    """Return the folder of a group."""
    return folder / "groups" / signature_id


def spec_of(folder: Path, number: int) -> Path:
    """Return the spec file of a round."""
    return folder / "rounds" / f"{number:05}.spec.yaml"


def request_of(head: Head) -> Request:
    """Return what the hunt asks the generator for."""
    depth = (head.depth[0], head.depth[1]) if len(head.depth) == 2 else None
    return Request(head.seed, head.batch, 0, head.profile, head.ops, depth, allow_python=head.allow_python)


def write_groups(folder: Path, head: Head, groups: Iterable[Group]) -> None:
    """Write ``group.json`` of each group that has a folder."""
    command = request_of(head).command
    for group in groups:
        own = folder_of(folder, group.id)
        if not own.is_dir():
            continue
        first = dataclasses.asdict(group.first)
        data = {
            **{name: first[name] for name in ("signature_id", "signature", "severity", "verdict", "stage", "oracle",
                "reason")},
            "torch": head.torch,
            "count": len(group.reds),
            "first": group.first.id,
            "round": group.round,
            "known": group.known,
            "triage": dataclasses.asdict(group.triage) if group.triage else None,
            "alike": group.alike,
            "reduction": dataclasses.asdict(group.reduction) if group.reduction else None,
            "report": dataclasses.asdict(group.report) if group.report else None,
            # What a guided hunt draws depends on its earlier rounds: the files of its rounds keep the cases.
            "redraw": []
            if head.guided
            else [f"{command} --first {red.number} --count 1" for red in group.reds[:REDRAWN]],
            "variants": [red.id for red in group.reds[:IDS]],
        }  # fmt: skip
        text = json.dumps(data, indent=1) + "\n"
        if not (own / GROUP).is_file() or read_bytes(own / GROUP) != text.encode():
            replace_text(own / GROUP, text)
