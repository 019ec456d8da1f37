"""The journal under full disks, torn lines and killed writers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.engine import journal
from runner.engine.events import Event, Finding, Notice, RunFinished, RunStarted, VariantFinished
from runner.engine.journal import Journal, read

STARTED = RunStarted(
    "r1", "1", ("run", "suites"), "2026-01-01T00:00:00", "host", "/w", ({"python": "3.11", "torch": "2.6"},)
)
FINISHED = VariantFinished(
    id="a/b",
    case="b",
    suite="a",
    suites=("a",),
    backend="inductor",
    torch="2.6.0",
    python="3.11.7",
    device="cpu",
    dtype="float32",
    label="a/b",
    file="a.yaml",
    line=3,
    verdict="FAIL",
    seconds=1.5,
    oracles=("value",),
    findings=(Finding("value", "off by \udc80 one\n", numbers={"max": float("nan")}),),
)
EVENTS: list[Event] = [STARTED, FINISHED, Notice("héllo"), RunFinished(1, 2.0)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "journal.jsonl"
    with Journal(path) as log:
        assert all(log.write(event) for event in EVENTS)
        assert len(path.read_bytes().splitlines()) == 4  # at once, not at the end
    events, unreadable = read(path)
    assert repr(events) == repr(EVENTS) and unreadable == 0  # by repr: NaN is not equal to itself


def test_every_line_is_stamped_and_the_events_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    stamp = {"plan": "abc", "shard": "2/4", "message": "not this", "event": "nor this"}
    with Journal(path, stamp=stamp) as log:
        assert all(log.write(event) for event in EVENTS)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["plan"], line["shard"]) for line in lines] == [("", "")] + [("abc", "2/4")] * 3  # a run says its own
    assert repr(read(path)[0]) == repr(EVENTS)


def test_a_journal_is_continued_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event": "notice", "message": "whole"}\n{"event": "noti')
    assert read(path) == ([Notice("whole")], 1)
    with Journal(path) as log:
        log.write(Notice("next"))
    assert read(path) == ([Notice("whole"), Notice("next")], 1)


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[1, 2]", b"3", b'{"event": "run-finished"}', b'{"event": "notice"', b"[" * 100_000]
)
def test_a_line_that_makes_no_sense_is_counted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line + b'\n\n{"event": "notice", "message": "m", "later": 1}\n{"event": "of-a-later-version"}\n')
    assert read(path) == ([Notice("m")], 1)


def test_a_full_disk_warns_once_and_the_run_goes_on(tmp_path: Path) -> None:
    problems: list[str] = []
    path = tmp_path / "journal.jsonl"
    path.symlink_to("/dev/full")
    with Journal(path, problems.append) as log:
        assert [log.write(event) for event in EVENTS] == [False] * 4
    (problem,) = problems
    assert "No space left on device" in problem and "journal.jsonl" in problem and log.lost == 4


def test_a_write_cut_short_spoils_only_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []
    path = tmp_path / "journal.jsonl"
    room = [90]
    write = os.write

    def until_full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    log = Journal(path, problems.append)
    monkeypatch.setattr(journal.os, "write", until_full)
    assert [log.write(Notice("one")), log.write(Notice("two")), log.write(Notice("three"))] == [True, False, False]
    room[0] = 1000  # somebody made room
    assert log.write(Notice("four")) and log.write(Notice("five"))
    log.close()
    assert read(path) == ([Notice("one"), Notice("four"), Notice("five")], 1)
    assert len(problems) == 1


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    problems: list[str] = []
    (tmp_path / "file").write_text("")
    log = Journal(tmp_path / "file" / "journal.jsonl", problems.append)
    assert not log.write(Notice("lost"))
    (tmp_path / "file").unlink()
    assert log.write(Notice("kept"))
    log.close()
    log.close()
    assert read(log.path) == ([Notice("kept")], 0) and len(problems) == 1


def test_a_missing_journal_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.jsonl")


def test_a_killed_writer_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    script = f"""
from runner.engine.events import Notice
from runner.engine.journal import Journal
log = Journal({str(path)!r})
for number in range(10**9):
    log.write(Notice("x" * 1000 + str(number)))
    if number == 100:
        print("up", flush=True)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"up\n"
        writer.kill()
    events, unreadable = read(path)
    assert len(events) > 100 and unreadable <= 1
