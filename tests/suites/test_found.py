"""``specs/found``: every case fails as its ledger entry says."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from runner.cases.model import Case
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]
findings = script_module("findings_page")
CASES: list[Case] = findings.cases()
FIRST = [*{findings.severity(case): case for case in reversed(CASES)}.values()]
"""One case of each severity."""


@pytest.mark.slow
@pytest.mark.skipif(not version("torch").startswith("2.13.0"), reason="the suite runs under torch 2.13.0 here")
@pytest.mark.parametrize("cases", [FIRST, pytest.param(CASES, marks=pytest.mark.nightly)], ids=["first", "all"])
def test_every_case_fails_as_its_entry_says(cases: list[Case], tmp_path: Path) -> None:
    paths = [f"{case.file}::{case.name}" for case in cases]
    command = [sys.executable, "-m", "runner", "run", *paths, "--backend", "inductor", "--no-confirm", "-j", "2"]
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    process = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=1800
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert f"\n{len(cases)} xfail in" in process.stdout
