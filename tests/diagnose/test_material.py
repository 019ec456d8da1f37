"""The parts of a report's material: the script alone, and what ends the gathering."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.diagnose import material
from runner.diagnose.material import run_script
from runner.diagnose.rules import ScriptRun
from tests.handmade import loaded, written


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
    monkeypatch.setattr(material, "START", 2.0)
    case = "cases: [{name: a, inputs: {x: [2]}, chain: [torch.neg], timeout: 1s}]"
    one = loaded(written(tmp_path, case)).variants[0]
    engine = SimpleNamespace(variant=one, paths=("/nowhere",), environment=SimpleNamespace(python=sys.executable))  # fmt: skip
    assert run_script(text, engine) == ScriptRun(code, output, text)  # type: ignore[arg-type]
