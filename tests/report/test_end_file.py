"""A report that is written at the end, its trouble included."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.record.events import Event, RunFinished
from runner.report.handlers import EndFile
from tests.report.events_sample import failure, started


def test_it_is_written_at_the_end_and_when_asked(tmp_path: Path) -> None:
    counts: list[int] = []
    file = EndFile("--ctrf", tmp_path / "file", lambda events: counts.append(len(events)), pytest.fail)
    for event in (started(), failure()):
        file.handle(event)
    assert counts == []
    file.handle(RunFinished(1, 1.0))
    file.close()
    assert counts == [3] and file.problem == ""
    file.write()
    assert counts == [3, 3]


def test_a_run_without_an_end_is_written_at_the_close(tmp_path: Path) -> None:
    counts: list[int] = []
    file = EndFile("--ctrf", tmp_path / "file", lambda events: counts.append(len(events)), pytest.fail)
    file.close()
    assert counts == []
    file.handle(started())
    file.close()
    file.close()
    assert counts == [1]


def test_what_is_wrong_with_the_file_is_told(tmp_path: Path) -> None:
    def write(events: Sequence[Event]) -> None:
        os.mkdir(tmp_path)

    problems: list[str] = []
    file = EndFile("--html", tmp_path / "file", write, problems.append)
    file.handle(RunFinished(1, 1.0))
    assert problems == [file.problem] == [f"--html {tmp_path / 'file'} could not be written: File exists"]
