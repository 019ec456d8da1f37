"""Event logs as they should be, and what becomes of them when somebody edits them at random."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.record.events import Event, RunFinished, RunStarted
from runner.record.journal import Journal
from runner.record.signing import signature_of

JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1.5, -2.5, 10**30, 2**53, float("nan"), float("inf"), "", "x", "\x1b[2J", "\udc80", "\u202e", "PASS",
    "FAIL", "value", "../../x", "/", "a" * 5000, [], [1], ["x"], [[]], [None], {}, {"a": 1}, {"type": 3, "message": [], "chain": "x"},
    [{"oracle": "value", "message": "m"}], [{"oracle": 5}], {"busy": "x"}, {"mismatched": -1, "elements": "x"}, 10**400,
    ["runner", "run", "--junit", "x.xml"], ["runner", "run", "--help"], ["runner", "run", "-j", "x"], ["runner"], ["\x1b[2J", "run", "\x00"],
]  # fmt: skip
"""Values that stand where another was."""


def edit(rng: random.Random, data: Any) -> Any:
    """A copy of a JSON value with one thing in it changed: replaced, left out, renamed, added, or moved."""
    if isinstance(data, dict) and data and rng.random() < 0.9:
        key = rng.choice([*data])
        way = rng.random()
        if way < 0.7:
            return {**data, key: edit(rng, data[key])}
        if way < 0.8:
            return {name: value for name, value in data.items() if name != key}
        if way < 0.9:
            return {**data, rng.choice([*data, "schema", "findings", "x"]): rng.choice(JUNK)}
        return {**data, key: data[rng.choice([*data])]}
    if isinstance(data, list) and data and rng.random() < 0.7:
        place = rng.randrange(len(data))
        return [*data[:place], edit(rng, data[place]), *data[place + rng.randrange(2) :]]
    return rng.choice(JUNK)


def edit_lines(rng: random.Random, lines: Sequence[bytes]) -> list[bytes]:
    """The lines of a log after one to three edits of values, lines or bytes."""
    lines = [*lines]
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(lines)) if lines else 0
        way = rng.random()
        if not lines:
            lines.append(b"[]")
        elif way < 0.6:
            try:
                data = edit(rng, json.loads(lines[place]))
            except ValueError:  # changed before
                continue
            lines[place] = json.dumps(data).encode()
        elif way < 0.7:
            del lines[place]
        elif way < 0.8:
            lines.insert(rng.randrange(len(lines)), lines[place])
        elif way < 0.85:
            rng.shuffle(lines)
        elif way < 0.9:
            lines = lines[:place]
        else:
            line = bytearray(lines[place])
            for _ in range(rng.randrange(1, 4)):
                if line:
                    line[rng.randrange(len(line))] = rng.choice(b'\x00\n"{}[],:\xff\x1be0-\\')
            lines[place] = bytes(line[: rng.randrange(len(line) + 1)] if rng.random() < 0.3 else line)
    return lines


def signed(events: Sequence[Event], **changes: Any) -> list[Event]:
    """The events of a run, whose start says ``changes`` and is signed by this user."""
    start = next(event for event in events if isinstance(event, RunStarted))
    start = replace(start, **changes)
    start = replace(start, signature=signature_of(start))
    return [start, *(event for event in events if not isinstance(event, RunStarted))]


def written(path: Path, events: Sequence[Event], **stamp: str) -> list[bytes]:
    """The lines of a journal of these events, which is written."""
    with Journal(path, stamp=stamp) as journal:
        assert all([journal.write(event) for event in events])
    return path.read_bytes().splitlines()


def ended(events: Sequence[Event], code: int) -> list[Event]:
    """The same run with this exit code."""
    return [replace(event, exit_code=code) if isinstance(event, RunFinished) else event for event in events]
