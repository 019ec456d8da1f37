"""``hunt.jsonl``: what is read is what was written, whatever killed the writer, and nothing else passes."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest

from runner.exit_codes import UsageError
from runner.hunt.groups import HUNT_FILE, Head, Line, Reduction, Report, State, append_line, read_state
from tests.hunt.samples import HEAD, A, red, round_of

LINES: tuple[Line, ...] = (
    Head(7, "deep", 10, "2.13.0+cpu", "torch.*", (3, 8), ("inductor",), ("cpu",), (1, 1)),
    round_of(0),
    round_of(1, red(), red(number=3)),
    Reduction(A, 12.5, before=4, after=1, elements=3, complete=True),
    Report(A, 7.5, unmet=1, culprit="inductor, subsystem lowerings", cause="11111111"),
)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    for line in LINES:
        append_line(tmp_path, line)
    state = read_state(tmp_path)
    assert state is not None
    assert (state.head, *state.rounds, *state.reductions.values(), *state.reports.values()) == LINES
    assert (state.next_round, state.hunting, state.reducing) == (2, 80.0, 20.0)


def test_half_a_line_of_a_killed_hunt_spoils_itself_alone(tmp_path: Path) -> None:
    append_line(tmp_path, HEAD)
    append_line(tmp_path, round_of(0))
    with open(tmp_path / HUNT_FILE, "ab") as file:
        file.write(b'{"round": 1, "cases": 8, "red": [{"id": "rou')
    state = read_state(tmp_path)
    assert state is not None and state.next_round == 1
    append_line(tmp_path, round_of(1))
    state = read_state(tmp_path)
    assert state is not None and [record.round for record in state.rounds] == [0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": "7"},
        {"batch": 1.5},
        {"depth": [1, "2"]},
        {"backend": "inductor"},
        {"layout": 2},
        {"profile": None},
        {"shard": [1]},
        {"shard": [3, 2]},
        {"shard": [0, 0]},
    ],
)
def test_a_head_of_other_types_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    append_line(tmp_path, HEAD)
    data = json.loads((tmp_path / HUNT_FILE).read_text())
    (tmp_path / HUNT_FILE).write_text(json.dumps({**data, **changes}) + "\n")
    with pytest.raises(UsageError, match=r"hunt\.jsonl:1: "):
        read_state(tmp_path)


def test_shards_have_every_round_once() -> None:
    """Each does its own rounds, one shard apart."""
    numbers = []
    for index in (1, 2, 3):
        state = State(dataclasses.replace(HEAD, shard=(index, 3)))
        for _ in range(4):
            numbers.append(state.next_round)
            state.add(round_of(numbers[-1]))
    assert sorted(numbers) == [*range(12)] and numbers[:4] == [0, 3, 6, 9]


@pytest.mark.parametrize("key", ["../../etc", "aaaaaaaa/b", "", "AAAAAAAA", "aaaaaaaa\n"])
def test_an_id_that_could_name_another_folder_is_refused(key: str, tmp_path: Path) -> None:
    for line in (round_of(0, red(key)), Reduction(key, 1.0), Report(key, 1.0)):
        (tmp_path / HUNT_FILE).unlink(missing_ok=True)
        append_line(tmp_path, HEAD)
        append_line(tmp_path, line)
        with pytest.raises(UsageError, match=r"hunt\.jsonl:2: no line of a hunt"):
            read_state(tmp_path)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"round": 0}', '{"verdicts": {"PASS": "x"}, "round": 0, "red": []}', "[" * 200 + "]" * 200]
)
def test_another_line_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / HUNT_FILE).write_text(text + "\n")
    with pytest.raises(UsageError, match=r"hunt\.jsonl:1: "):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"verdicts": True}, {"verdicts": None}, {"verdicts": ["PASS"]}, {"variants": 10**400}, {"drawing": 10**400}],
)
def test_a_round_of_other_types_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    append_line(tmp_path, HEAD)
    with open(tmp_path / HUNT_FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps({**dataclasses.asdict(round_of(0)), **changes}) + "\n")
    with pytest.raises(UsageError, match=r"hunt\.jsonl:2: no line of a hunt"):
        read_state(tmp_path)


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left") as caught:
            append_line(tmp_path, HEAD)
    assert caught.value.filename == str(tmp_path / HUNT_FILE)
