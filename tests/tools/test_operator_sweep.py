"""The sweep over operators sees a planted overflow, and finds none among the operators that a case may use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "operator_sweep.py"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the allocator")]


def sweep(out: Path, *options: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Run the tool with one job. Return its exit code, what it printed, and the deaths."""
    command = [sys.executable, str(TOOL), "--jobs", "1", "--minutes", "9", "--out", str(out), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.exists(), process.stdout + process.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return process.returncode, process.stdout, [line for line in lines if "reason" in line]


@pytest.mark.parametrize("name", ["aten._cummax_helper", "torch.batch_norm_update_stats"])
def test_an_operator_that_writes_past_an_end_is_reported(tmp_path: Path, name: str) -> None:
    code, text, deaths = sweep(tmp_path / "deaths", "--only", name, "--calls", "80", "--no-records")
    assert code == 1 and f"CORRUPT {name}: " in text
    assert {death["name"] for death in deaths} == {name}
    assert {"past the end of a tensor", "a write beside a tensor"} & {death["reason"] for death in deaths}


def test_operators_that_check_their_arguments_live(tmp_path: Path) -> None:
    names = ("torch.add", "aten.mm", "Tensor.index_select")
    options = [word for name in names for word in ("--only", name)]
    code, text, deaths = sweep(tmp_path / "deaths", *options, "--calls", "80", "--no-records")
    assert (code, deaths) == (0, [])
    assert f"{len(names)} operators, {80 * len(names)} calls, 2 whole rounds" in text


@pytest.mark.nightly
def test_no_operator_of_a_part_reads_or_writes_past_an_end(tmp_path: Path) -> None:
    code, text, deaths = sweep(tmp_path / "deaths", "--shard", "1/40", "--seed", "7", "--calls", "40", "--no-records")
    assert (code, deaths) == (0, []), text


def test_a_file_of_deaths_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "deaths"
    out.write_text("kept")
    command = [sys.executable, str(TOOL), "--out", str(out)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2 and f"{out} exists" in process.stderr and out.read_text() == "kept"
