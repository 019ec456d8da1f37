"""The parts of a report's material: the script alone, and what ends the gathering."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.diagnose import bug_report
from runner.diagnose.bug_report import ScriptRun, gather, run_script
from tests.handmade import loaded, written
from tests.report.pictures import diagnosis


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("import sys; print('so'); sys.exit(3)", 3, "so\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", 0, "\ufffd"),
        ("print('on it', flush=True); import time; time.sleep(600)", 1, "on it\n\nTimeout (3 s)"),
    ],
)
@pytest.mark.slow
def test_the_script_runs_in_a_process_of_its_own(
    text: str, code: int, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bug_report, "START", 2.0)
    case = "cases: [{name: a, inputs: {x: [2]}, chain: [torch.neg], timeout: 1s}]"
    one = loaded(written(tmp_path, case)).variants[0]
    engine = SimpleNamespace(variant=one, paths=("/nowhere",), environment=SimpleNamespace(python=sys.executable))  # fmt: skip
    assert run_script(text, engine) == ScriptRun(code, output, text)  # type: ignore[arg-type]


def test_what_the_caller_raises_ends_the_gathering() -> None:
    said: list[str] = []
    asked: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) > 1:
            raise KeyboardInterrupt

    def ask(jobs: Sequence[str], tick: Callable[[], None]) -> None:
        asked.extend(jobs)
        tick()

    engine = SimpleNamespace(job=lambda task="judge", isolation="": task, ask=ask)
    with pytest.raises(KeyboardInterrupt):
        gather(engine, diagnosis(), "cases: []", say)  # type: ignore[arg-type]
    assert asked == ["judge", "judge", "environment"] and len(set(said)) == 1
