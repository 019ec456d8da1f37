"""Captured cases take every command that a hand-written case takes, from a failure to its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .driver import run_in
from .test_capture import BROKEN, MODELS

pytest.importorskip("torch")
pytestmark = pytest.mark.nightly

GRAINS = ("graph", "module", "operator")
BACKEND = ("--backend", "broken:compile_graph", "--allow-python")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a transformer of two layers, captured in each grain."""
    here = tmp_path_factory.mktemp("grains")
    (here / "models.py").write_text(MODELS, encoding="utf-8")
    (here / "broken.py").write_text(BROKEN, encoding="utf-8")
    for grain in GRAINS:
        result = run_in(here, "capture", "models:make_transformer", "--by", grain, "-o", grain)
        assert result.code == 0 and "1 graph, 1 of them whole" in result.out, result.out + result.err
    return here


def test_a_transformer_is_valid_and_passes_under_inductor(folder: Path) -> None:
    assert "0 errors, 0 warnings" in run_in(folder, "validate", *GRAINS, "--build").out
    judged = run_in(folder, "run", "graph", "--backend", "inductor", "--no-confirm", limit=900)
    assert judged.code == 0 and "1 passed" in judged.out, judged.out


@pytest.mark.parametrize(
    "case",
    [
        "graph/transformer.spec.yaml::transformer",
        "module/transformer_modules.spec.yaml::gelu",
    ],
)
def test_each_command_takes_a_captured_case(folder: Path, case: str) -> None:
    grain = case.partition("/")[0]
    assert "F.gelu(" in run_in(folder, "show", case).out
    judged = run_in(folder, "run", case, *BACKEND, "--no-confirm", limit=600)
    assert judged.code == 1 and "1 failed" in judged.out and "value at output" in judged.out, judged.out
    why = run_in(folder, "why", case, *BACKEND, "--budget", "5m", "-o", f"why_{grain}", limit=900)
    assert why.code == 1 and "operator  F.gelu" in why.out and "-> 1 operators" in why.out, why.out + why.err
    assert "exit status 1, the failure" in " ".join(why.out.split()), why.out
    diagnosed = run_in(folder, "diagnose", case, *BACKEND, limit=900)
    assert diagnosed.code == 0 and "torch._C._nn.gelu" in diagnosed.out, diagnosed.out + diagnosed.err
    reduced = run_in(folder, "reduce", case, *BACKEND, "--budget", "2m", "-o", f"reduced_{grain}", limit=600)
    assert reduced.code == 0 and "-> 1 operators" in reduced.out, reduced.out + reduced.err
    report = run_in(folder, "issue", case, *BACKEND, "--no-reduce", "-o", f"{grain}.md", limit=600)
    text = (folder / f"{grain}.md").read_text(encoding="utf-8")
    assert report.code == 0 and "gelu" in text and "broken" in text, report.out + report.err
    script = run_in(folder, "repro", case, *BACKEND)
    (folder / f"{grain}.py").write_text(script.out, encoding="utf-8")
    shown = subprocess.run([sys.executable, f"{grain}.py"], cwd=folder, capture_output=True, text=True)
    assert shown.returncode == 1 and "not close" in shown.stderr, shown.stdout + shown.stderr
