"""Ctrl-C, SIGTERM, SIGHUP and SIGKILL: what a run leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .driver import command, environment, latest, processes_of, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

CASES = spec("name: a\ninputs: {x: [4]}\nparams: {n: [1, 2, 3]}\nchain: [{torch.add: [$x, $n]}]")
RUN = ("run", "a.spec.yaml", "--backend", "eager", "-j", "1")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder below that of the run, with a short path that no other process knows: a long one is not used."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as base:
        write(Path(base), {"a.spec.yaml": CASES})
        Path(base, "t").mkdir()
        yield Path(base, "t")


@contextlib.contextmanager
def started(
    temporary: Path, *args: str, ignored: signal.Signals | None = None, passed: Sequence[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """The command in the folder above ``temporary``, its output in one pipe; ended however the test ends."""
    process = subprocess.Popen(
        command(*args), cwd=temporary.parent, env=environment({"TMPDIR": str(temporary)}), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=passed,
        preexec_fn=None if ignored is None else lambda: signal.signal(ignored, signal.SIG_IGN),
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    text = ""
    while word not in text:
        line = process.stdout.readline()
        assert line, text
        text += line
    return text


def no_process_is_left(temporary: Path) -> bool:
    end = time.monotonic() + 10
    while processes_of(str(temporary)) and time.monotonic() < end:
        time.sleep(0.05)
    return processes_of(str(temporary)) == []


@pytest.mark.parametrize(
    ("number", "moment", "fewest", "most"),
    [(signal.SIGTERM, "runner ", 0, 3), (signal.SIGHUP, "(1/60)", 1, 50), (signal.SIGINT, "(3/3)", 3, 3)],
    ids=["at the start", "between", "after the last verdict"],
)
def test_a_signal_ends_a_run_in_order(
    number: signal.Signals, moment: str, fewest: int, most: int, temporary: Path
) -> None:
    if moment == "(1/60)":
        write(temporary.parent, {"a.spec.yaml": CASES.replace("[1, 2, 3]", str([*range(60)]))})
    with started(temporary, *RUN) as process:
        text = read_until(process, moment)
        process.send_signal(number)
        time.sleep(0.01)
        process.send_signal(number)  # as timeout(1) does; it is the same wish
        text += process.stdout.read() if process.stdout else ""
        assert process.wait(30) == 2, text
    assert "Traceback" not in text and ", interrupted\n" in text and "\nreports: " in text
    folder = latest(temporary.parent)
    assert folder is not None
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert lines[-1]["event"] == "run-finished" and lines[-1]["interrupted"] and lines[-1]["exit_code"] == 2
    assert fewest <= sum(line["event"] == "variant-finished" for line in lines) <= most
    planned = sum(line["event"] == "variant-planned" for line in lines)
    assert len([*ElementTree.parse(folder / "junit.xml").iter("testcase")]) == planned
    assert no_process_is_left(temporary)
    assert [*temporary.glob("runner-*")] == []


def test_a_hangup_that_is_ignored_stays_ignored(temporary: Path) -> None:
    with started(temporary, *RUN, ignored=signal.SIGHUP) as process:
        text = read_until(process, "runner ")
        process.send_signal(signal.SIGHUP)
        text += process.stdout.read() if process.stdout else ""
        assert process.wait(30) == 0, text
    assert "3 passed" in text


def test_the_third_signal_ends_at_once_what_cannot_end_in_order(temporary: Path) -> None:
    """A log that nobody reads: once the pipe is full, writing to it lasts for ever."""
    write(temporary.parent, {"a.spec.yaml": CASES.replace("[1, 2, 3]", str([*range(2000)]))})
    reader, writer = os.pipe()
    with started(temporary, *RUN, "--events", f"/dev/fd/{writer}", passed=[writer]) as process:
        read_until(process, "runner ")
        for _ in range(2):
            time.sleep(0.4)
            process.send_signal(signal.SIGINT)
        text = read_until(process, "a third signal ends it at once")
        time.sleep(0.4)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 2
        text += process.stdout.read() if process.stdout else ""
    os.close(reader)
    os.close(writer)
    assert "Traceback" not in text
    assert no_process_is_left(temporary)


@pytest.mark.usefixtures("real_torch")
@pytest.mark.parametrize("words", [("bench", "a.spec.yaml"), ("diagnose", "a.spec.yaml::a"), ("debug", "a.spec.yaml::a")], ids=" ".join)  # fmt: skip
def test_other_commands_end_too(words: tuple[str, ...], temporary: Path) -> None:
    with started(temporary, *words) as process:
        end = time.monotonic() + 20
        while not [*temporary.glob("runner-*/control")]:
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(signal.SIGHUP)
        text = process.stdout.read() if process.stdout else ""
        assert process.wait(30) == 2, text
    assert "Traceback" not in text and "interrupted" in text
    assert no_process_is_left(temporary)
    assert [*temporary.glob("runner-*")] == []


def test_what_a_killed_run_left_goes_at_the_next_start(temporary: Path) -> None:
    with started(temporary, *RUN) as process:
        read_until(process, "runner ")
        process.kill()
    assert no_process_is_left(temporary)  # the workers notice
    assert len([*temporary.glob("runner-*")]) == 1
    result = run_in(temporary.parent, *RUN, "--device", "cuda", env={"TMPDIR": str(temporary)})
    assert result.code == 0 and [*temporary.glob("runner-*")] == []
