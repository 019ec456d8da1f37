"""``runner run --affected-by``: a backend's own pull request runs the cases that reach the changed lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .driver import command, environment, run_in, write

pytest.importorskip("torch")

CASES = """\
cases:
  - {name: relu, inputs: {x: [4]}, chain: [F.relu], tags: [a]}
  - {name: sine, inputs: {x: [4]}, chain: [torch.sin]}
  - {name: cosine, inputs: {x: [4]}, chain: [torch.cos]}
"""
ADDED = CASES + "  - {name: tangent, inputs: {x: [4]}, chain: [torch.tan]}\n"

BACKEND = """\
import torch


def compile_graph(graph, inputs):
    names = [str(node.target) for node in graph.graph.nodes]
    if any("sin" in name for name in names):
        return compile_sine(graph)
    return graph.forward


def compile_sine(graph):
    factor = 1
    return lambda *inputs: [each * factor for each in graph.forward(*inputs)]
"""

DIFF = """\
--- a/acme/__init__.py
+++ b/acme/__init__.py
@@ -10,4 +10,4 @@

 def compile_sine(graph):
-    factor = 1
+    factor = 2
     return lambda *inputs: [each * factor for each in graph.forward(*inputs)]
"""

WORDS = ("run", "a.spec.yaml", "--backend", "acme:compile_graph", "--no-confirm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded run, a change that breaks a case, and a case that is new since."""
    place = tmp_path_factory.mktemp("affected")
    write(place, {"a.spec.yaml": CASES, "acme/__init__.py": BACKEND})
    refused = run_in(place, *WORDS, "--affected-by", "acme/__init__.py:12")
    assert refused.code == 4, refused.text
    assert "runner run a.spec.yaml --backend acme:compile_graph --no-confirm --coverage-lines" in refused.err
    recorded = run_in(place, *WORDS, "--coverage-lines")
    assert recorded.code == 0, recorded.text
    lines = [name for name in recorded.of("sine@acme:compile_graph")["reached"] if "acme" in name]
    assert lines == ["line acme/__init__.py:5-7,12-13"]
    write(place, {"acme/__init__.py": BACKEND.replace("factor = 1", "factor = 2"), "a.spec.yaml": ADDED})
    return place


def test_a_diff_on_standard_input_runs_new_cases_and_those_that_reach_its_lines(folder: Path) -> None:
    process = subprocess.run(
        command(*WORDS, "--affected-by", "-"),
        cwd=folder, env=environment(None), input=DIFF, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    text = process.stdout + process.stderr
    assert process.returncode == 1, text
    assert "--affected-by: 2 of 4 variants run" in text and "1 are new" in text
    assert "FAIL a.spec.yaml::sine[float32,cpu]@acme:compile_graph" in text and "1 passed" in text
    again = run_in(folder, "rerun", "--failed")
    assert again.code == 1 and "1 failed" in again.text, "standard input is not read again"


@pytest.mark.parametrize(
    ("what", "count"),
    [("acme/__init__.py:8", "3 of 4"), ("acme/__init__.py:12-13", "2 of 4"), ("csrc/a.cpp", "4 of 4")],
)
def test_places_and_files_without_lines(folder: Path, what: str, count: str) -> None:
    result = run_in(folder, *WORDS, "--affected-by", what)
    assert f"--affected-by: {count} variants run" in result.text
    assert ("all run" in result.text) == (what == "csrc/a.cpp")


def test_shards_select_alike_and_can_be_merged(folder: Path) -> None:
    for shard in ("1", "2"):
        words = ("--affected-by", "acme/__init__.py:12", "--shard", f"{shard}/2", "--events", f"{shard}.jsonl")
        assert "--affected-by: 2 of 4 variants run" in run_in(folder, *WORDS, *words).text
    merged = run_in(folder, "merge", "1.jsonl", "2.jsonl", "-o", "merged")
    assert merged.code == 1 and "1 passed, 1 failed" in merged.text


def test_what_changes_nothing_is_refused(folder: Path) -> None:
    (folder / "empty.diff").write_text("")
    for what, code, message in (("empty.diff", 5, "the diff changes no line"), ("none.patch", 4, "No such file")):
        result = run_in(folder, *WORDS, "--affected-by", what)
        assert result.code == code and message in result.err, result.text
