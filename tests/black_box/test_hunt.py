"""``runner hunt`` finds a planted bug, reduces it, goes on after SIGKILL, and leaves known groups alone."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .driver import Result, command, environment, run_in, write

pytest.importorskip("torch")
pytest.importorskip("numpy")

BROKEN = '''
import torch


def no_relu(graph, inputs, **options):
    """Cannot compile relu, as a compiler with a bug."""
    assert all(node.target is not torch.nn.functional.relu for node in graph.graph.nodes), "a planted bug"
    return graph.forward
'''
HUNT = (
    "hunt",
    "--ops",
    "F.relu",
    "--depth",
    "1..2",
    "--seed",
    "1",  # half of its first cases are valid
    "--batch",
    "10",
    "--backend",
    "broken:no_relu",
    "-j",
    "1",
    "-o",
    "h",
)
LIMIT = 600


def state(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "h" / "hunt.jsonl").read_text(encoding="utf-8").splitlines()]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < end, f"{path.name} does not come"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A hunt of one round."""
    folder = tmp_path_factory.mktemp("hunt")
    write(folder, {"broken.py": BROKEN})
    result = run_in(folder, *HUNT, "--rounds", "1", limit=LIMIT)
    assert result.code == 1, result.text
    return result


def group_of(folder: Path) -> Path:
    """The folder of the one group that a hunt has."""
    [own] = (folder / "h" / "groups").iterdir()
    return own


@pytest.mark.nightly
def test_a_planted_bug_is_found_reduced_and_reported(first: Result) -> None:
    own = group_of(first.cwd)
    assert re.search(
        rf"(?m)^exception +{own.name} compile-error at backend: AssertionError: a planted bug .* new +\d+ -> 1\b",
        first.out,
    )
    assert "-> 1 " in first.err
    group = json.loads((own / "group.json").read_text(encoding="utf-8"))
    assert (group["severity"], group["oracle"], group["reduction"]["after"]) == ("exception", "compile-error", 1)
    assert "chain: [F.relu]" in (own / "reduced.spec.yaml").read_text(encoding="utf-8")
    report = (own / "report.md").read_text(encoding="utf-8")
    assert "F.relu: torch.compile fails to compile with BackendCompilerFailed" in report and "chain: [F.relu]" in report
    assert report.startswith("# [broken] ") and (group["report"]["problem"], group["report"]["unmet"]) == ("", 0)
    assert f"{own.name}: report written" in first.err
    script = subprocess.run([sys.executable, own / "repro.py"], cwd=first.cwd, env={**environment(), "PYTHONPATH": str(first.cwd)}, timeout=LIMIT)  # fmt: skip
    assert script.returncode == 1


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("count", "name"), [(2, "reduce"), (3, "issue")])
def test_a_hunt_that_ends_before_prints_how_to_go_on(first: Result, count: int, name: str) -> None:
    cut = first.cwd / f"cut {count}"
    shutil.copytree(first.cwd / "h", cut)
    lines = (cut / "hunt.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (cut / "hunt.jsonl").write_text("".join(lines[:count]), encoding="utf-8")
    printed = run_in(first.cwd, "hunt", "--status", cut.name).out.rpartition("next: runner ")[2]
    words = shlex.split(printed)
    assert words[0] == name and run_in(first.cwd, *words, limit=LIMIT).code in (0, 1), printed


def end_by(number: int, folder: Path) -> int:
    """The exit code of a hunt that goes on, and gets a signal once it has drawn its second round."""
    drawn = folder / "h" / "rounds" / "00001.spec.yaml"
    drawn.unlink(missing_ok=True)
    with subprocess.Popen(command(*HUNT, "--rounds", "2"), cwd=folder, env=environment()) as process:
        wait_for(drawn, process)
        process.send_signal(number)
    return process.returncode


@pytest.mark.slow
@pytest.mark.nightly
def test_an_interrupted_hunt_has_done_no_half_of_a_round(first: Result, tmp_path: Path) -> None:
    shutil.copytree(first.cwd, tmp_path, dirs_exist_ok=True)
    assert end_by(signal.SIGINT, tmp_path) == 2
    assert [line["round"] for line in state(tmp_path) if "round" in line] == [0]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_killed_hunt_goes_on(first: Result, tmp_path: Path) -> None:
    shutil.copytree(first.cwd, tmp_path, dirs_exist_ok=True)
    own = group_of(tmp_path)
    assert end_by(signal.SIGKILL, tmp_path) == -signal.SIGKILL
    assert [line["round"] for line in state(tmp_path) if "round" in line] == [0]
    (tmp_path / "h" / "triage.yaml").write_text(f'"{own.name}": {{triage: bug}}\n', encoding="utf-8")
    again = run_in(tmp_path, *HUNT, "--rounds", "2", limit=LIMIT)
    assert again.code == 0, "the one group has a triage"
    assert [line["round"] for line in state(tmp_path) if "round" in line] == [0, 1]
    assert [sum(kind in line for line in state(tmp_path)) for kind in ("reduction", "report")] == [1, 1]
    status = run_in(tmp_path, "hunt", "--status", "h")
    assert (status.code, status.out) == (0, again.out)
    assert "2 rounds, " in status.out and " bug " in status.out
    assert run_in(tmp_path, *HUNT, "--rounds", "2", "--seed", "2").code == 4


MODEL = """
import torch


class Sizes(torch.nn.Module):
    def forward(self, x):
        return x.sin() + len({x.dim(), x.shape[0]})  # a set, which a chain cannot say
"""
SPEC = """
cases:
  - name: sizes
    inputs: {x: [4, 3]}
    module: {file: model.py, name: Sizes}
"""
NO_SIN = """
def no_sin(graph, inputs):
    assert all(node.target != "sin" for node in graph.graph.nodes), "a planted bug"
    return graph.forward
"""
BACKEND = ("--backend", "no_sin:no_sin")
MUTANTS = (
    "hunt", "--mutate", "model.spec.yaml", "--ops", "F.relu", "--depth", "1..1", "--batch", "6", "--rounds", "1", *BACKEND, "-j", "2", "-o", "h"
)  # fmt: skip
"""Only the model and its mutants call ``sin``, so that there is one group."""


@pytest.mark.nightly
@pytest.mark.slow
def test_mutants_of_a_model_in_python_take_it_along(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": MODEL, "model.spec.yaml": SPEC, "no_sin.py": NO_SIN})
    refused = run_in(tmp_path, *MUTANTS)
    assert refused.code == 4 and "add --allow-python" in refused.err
    hunt = run_in(tmp_path, *MUTANTS, "--allow-python", limit=LIMIT)
    assert hunt.code == 1, hunt.text
    [own] = (tmp_path / "h" / "groups").iterdir()
    [copy] = own.glob("model_*.py")
    reduced = (own / "reduced.spec.yaml").read_text(encoding="utf-8")
    assert copy.read_bytes() == (tmp_path / "model.py").read_bytes()
    assert f"module: {{file: {copy.name}, name: Sizes}}" in reduced
    path = {"PYTHONPATH": str(tmp_path)}
    again = run_in(own, "run", "reduced.spec.yaml", "--allow-python", "--no-confirm", *BACKEND, env=path, limit=LIMIT)
    assert again.code == 1, again.text
