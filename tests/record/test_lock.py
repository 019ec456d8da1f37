"""One writer a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.exit_codes import UsageError
from runner.record.store import lock, lock_file

HOLD = """
import sys, time
from pathlib import Path
from runner.record.store import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(
            UsageError, match=rf"process {process.pid} on .+, since 2\d{{3}}-.+ UTC; wait until"
        ) as error:
            lock(tmp_path)
        assert error.value.code == 4
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with lock(tmp_path):  # a holder that was killed holds nothing
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_the_lock_is_given_back(tmp_path: Path) -> None:
    for _ in range(3):
        with lock(tmp_path), pytest.raises(UsageError):
            lock(tmp_path)


def test_a_child_that_lives_on_holds_nothing(tmp_path: Path) -> None:
    with lock(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        lock(tmp_path).close()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100_000, '{"pid": "\\u001b[2J"}'])
def test_a_lock_that_does_not_say_whose_it_is(tmp_path: Path, text: str) -> None:
    with lock(tmp_path):
        (tmp_path / "lock").write_text(text)
        with pytest.raises(UsageError, match="it does not say which"):
            lock(tmp_path)


def test_what_cannot_be_locked_stops_nothing_and_no_link_is_followed(tmp_path: Path) -> None:
    lock(tmp_path / "none").close()
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "lock").symlink_to(target)
    lock(tmp_path).close()
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    lock(tmp_path).close()
    assert target.read_text() == "kept"


def test_a_named_log_has_one_writer(tmp_path: Path) -> None:
    log = str(tmp_path / "log.jsonl")
    with lock_file(log):
        with pytest.raises(UsageError, match=r"log\.jsonl: another run writes this file; name another one"):
            lock_file(log)
        lock_file(str(tmp_path / "other.jsonl")).close()
    lock_file(log).close()
    for device in ("/dev/null", str(tmp_path / "none" / "log.jsonl")):
        with lock_file(device):
            lock_file(device).close()
