"""``--keep-warm`` and ``runner warm``: a run begins in processes that another one has left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Result, environment, processes_of, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

CASES = spec("name: a\ninputs: {x: [4]}\nchain: [F.relu]")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a case and a short path, below which all is kept. What stays warm ends with the test."""
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as folder:
        write(Path(folder), {"a.spec.yaml": CASES})
        try:
            yield Path(folder)
        finally:
            runner(Path(folder), "warm", "--stop")


def runner(home: Path, *words: str) -> Result:
    return run_in(home, *words, env={"XDG_CACHE_HOME": str(home / "cache")})


def kept(home: Path) -> list[str]:
    return re.findall(r"^process (\d+)$", runner(home, "warm").out, re.M)


def test_a_run_begins_in_the_processes_of_the_one_before(home: Path) -> None:
    words = ("run", "a.spec.yaml", "--backend", "eager", "--keep-warm", "--no-confirm")
    assert runner(home, "warm").out == "0 processes warm\n"
    first = runner(home, *words)
    assert (first.code, first.verdicts) == (0, {"a@eager": "PASS"})
    assert "info: 1 process stays warm for 10 minutes; runner warm --stop ends it" in first.out
    processes = kept(home)
    assert len(processes) == 1
    second = runner(home, *words)
    assert (second.code, second.verdicts, kept(home)) == (0, first.verdicts, processes)
    stopped = runner(home, "warm", "--stop")
    assert (stopped.code, stopped.out) == (0, f"process {processes[0]}\n1 process ended\n")
    assert kept(home) == [] and processes_of(str(home)) == []


def test_a_run_without_the_option_neither_leaves_nor_takes_any(home: Path) -> None:
    words = ("run", "a.spec.yaml", "--backend", "eager", "--no-confirm")
    runner(home, *words, "--keep-warm")
    processes = kept(home)
    result = runner(home, *words)
    assert (result.code, "warm" in result.out, kept(home)) == (0, False, processes)


def test_pytest_takes_the_option_too(home: Path) -> None:
    for _ in range(2):
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "a.spec.yaml", "--runner-backend", "eager",
             "--runner-keep-warm"],
            cwd=home, env=environment({"XDG_CACHE_HOME": str(home / "cache")}), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr
        processes = kept(home)
        assert processes
    assert all(os.path.exists(f"/proc/{process}") for process in processes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--engine", "ray"), "--keep-warm is about this machine, and --engine ray about others"),
        (
            ("--kernel-cache", "private"),
            "--keep-warm begins with what is there, and --kernel-cache private with nothing",
        ),
    ],
)
def test_what_contradicts_it_is_refused(words: tuple[str, ...], says: str, home: Path) -> None:
    result = runner(home, "run", "a.spec.yaml", "--keep-warm", *words)
    assert (result.code, says in result.err) == (4, True), result.text
