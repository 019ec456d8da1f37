"""The files of a hunt's groups: ``groups/<id>/`` with a case, a script, a report and ``group.json``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from runner.files import read_bytes, replace_text
from runner.generate.generator import Request
from runner.hunt.groups import Group
from runner.hunt.state import Head

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
            **{name: first[name] for name in ("signature_id", "signature", "severity", "verdict", "stage", "oracle", "reason")},
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
            "redraw": [] if head.guided else [f"{command} --first {red.number} --count 1" for red in group.reds[:REDRAWN]],
            "variants": [red.id for red in group.reds[:IDS]],
        }  # fmt: skip
        text = json.dumps(data, indent=1) + "\n"
        if not (own / GROUP).is_file() or read_bytes(own / GROUP) != text.encode():
            replace_text(own / GROUP, text)
