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

from .driver import command, environment, run_in, write

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


@pytest.mark.slow
def test_a_planted_bug_is_found_and_reduced_and_a_killed_hunt_goes_on(tmp_path: Path) -> None:
    write(tmp_path, {"broken.py": BROKEN})
    first = run_in(tmp_path, *HUNT, "--rounds", "1", limit=LIMIT)
    assert first.code == 1, first.text
    [own] = (tmp_path / "h" / "groups").iterdir()
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
    script = subprocess.run([sys.executable, own / "repro.py"], cwd=tmp_path, env={**environment(), "PYTHONPATH": str(tmp_path)}, timeout=LIMIT)  # fmt: skip
    assert script.returncode == 1

    for count, name in ((2, "reduce"), (3, "issue")):  # what a hunt prints that ends before
        cut = tmp_path / f"cut {count}"
        shutil.copytree(tmp_path / "h", cut)
        lines = (cut / "hunt.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (cut / "hunt.jsonl").write_text("".join(lines[:count]), encoding="utf-8")
        printed = run_in(tmp_path, "hunt", "--status", cut.name).out.rpartition("next: runner ")[2]
        words = shlex.split(printed)
        assert words[0] == name and run_in(tmp_path, *words, limit=LIMIT).code in (0, 1), printed

    for number, code in ((signal.SIGINT, 2), (signal.SIGKILL, -signal.SIGKILL)):
        (tmp_path / "h" / "rounds" / "00001.spec.yaml").unlink(missing_ok=True)
        with subprocess.Popen(command(*HUNT, "--rounds", "2"), cwd=tmp_path, env=environment()) as process:
            wait_for(tmp_path / "h" / "rounds" / "00001.spec.yaml", process)
            process.send_signal(number)
        assert process.returncode == code
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
BACKEND = ("--backend", "runner.worker.planted:to_double")
MUTANTS = (
    "hunt", "--mutate", "model.spec.yaml", "--batch", "8", "--rounds", "1", "--reduce-budget", "30s", *BACKEND, "-j", "2", "-o", "h"
)  # fmt: skip


@pytest.mark.slow
def test_mutants_of_a_model_in_python_take_it_along(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": MODEL, "model.spec.yaml": SPEC})
    refused = run_in(tmp_path, *MUTANTS)
    assert refused.code == 4 and "add --allow-python" in refused.err
    hunt = run_in(tmp_path, *MUTANTS, "--allow-python", limit=LIMIT)
    assert hunt.code == 1, hunt.text
    copy = min((tmp_path / "h" / "groups").glob("*/model_*.py"))  # drawn cases have groups too
    own = copy.parent
    reduced = (own / "reduced.spec.yaml").read_text(encoding="utf-8")
    assert copy.read_bytes() == (tmp_path / "model.py").read_bytes()
    assert f"module: {{file: {copy.name}, name: Sizes}}" in reduced
    again = run_in(own, "run", "reduced.spec.yaml", "--allow-python", *BACKEND, limit=LIMIT)
    assert again.code == 1, again.text
