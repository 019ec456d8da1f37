"""``runner.pytest_plugin.session``: a log that is read while it grows, and a run that ends with whoever began it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from runner.pytest_plugin.session import END, LOG, OUTPUT, NoVerdict, ResultLog, RunProcess
from runner.record.events import to_json
from runner.record.journal import Journal
from tests.handmade import played, variants


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    """The lines of a run with one verdict."""
    (tmp_path / "log").mkdir()
    with Journal(tmp_path / "whole.jsonl") as journal:
        for event in played(variants(tmp_path, ""), ["2.13.0"], lambda *_: "PASS"):
            assert to_json(event) and journal.write(event)
    return (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)


def grow(folder: Path, lines: list[bytes], name: str) -> threading.Thread:
    """Write a log as slowly as a run does, each line in two parts, and last its end."""

    def write() -> None:
        for line in lines:
            for part in (line[:20], line[20:]):
                time.sleep(0.05)
                with open(folder / LOG, "ab") as file:
                    file.write(part)
        (folder / name).write_text("0")

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_verdict_is_there_as_soon_as_its_line_is_whole(tmp_path: Path, lines: list[bytes]) -> None:
    log, id = ResultLog(tmp_path / "log"), str(variants(tmp_path, "")[0].id)
    assert not log.has_all([id])
    thread = grow(tmp_path / "log", lines, "no end")
    assert log.wait(id).verdict == "PASS" and log.has_all([id])
    thread.join()


def test_what_was_written_before_the_end_counts(tmp_path: Path, lines: list[bytes]) -> None:
    log, id = ResultLog(tmp_path / "log"), str(variants(tmp_path, "")[0].id)
    (tmp_path / "log" / OUTPUT).write_bytes(b"last \x1b[31mwords\n")
    thread = grow(tmp_path / "log", lines, END)
    with pytest.raises(NoVerdict, match=r"ended with exit code 0\nlast words$"):
        log.wait("another")
    assert log.wait(id).verdict == "PASS"
    thread.join()


def test_without_a_folder_nobody_waits(tmp_path: Path) -> None:
    with pytest.raises(NoVerdict, match=r"the run has ended$"):
        ResultLog(tmp_path / "gone").wait("a")


def test_a_run_that_cannot_begin_says_why(tmp_path: Path) -> None:
    process = RunProcess(tmp_path, tmp_path, ["run", "absent.spec.yaml"], None)
    with pytest.raises(NoVerdict, match=r"exit code 4\nrunner: no such file or directory: absent.spec.yaml"):
        ResultLog(tmp_path).wait("a")
    process.stop(now=False)


def test_a_module_of_that_name_in_the_folder_is_not_run(tmp_path: Path) -> None:
    for name in ("runner.py", "json.py", "signal.py"):
        (tmp_path / name).write_text("raise SystemExit(77)")
    process = RunProcess(tmp_path, tmp_path, ["run", "absent.spec.yaml"], None)
    process.stop(now=False)
    assert (tmp_path / END).read_text() == "4"
