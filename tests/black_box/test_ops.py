"""``runner ops``: a model op by op under a backend, with one operator wrong and one unsupported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .driver import Result, run_in

pytest.importorskip("torch")

SPEC = """
cases:
  - name: block
    inputs: {x: [4, 8]}
    chain:
      - nn.Linear: [8, 16]
      - F.gelu: {approximate: tanh}
      - nn.Linear: [16, 8]
      - F.gelu: {approximate: tanh}
      - torch.softmax: [$_, -1]
"""

BACKEND = '''
"""A backend that drops the argument of gelu and knows no softmax."""


def compile(graph, inputs):
    for node in graph.graph.nodes:
        if "softmax" in str(node.target):
            raise NotImplementedError("no softmax")
        if "gelu" in str(node.target):
            node.kwargs = {}
    graph.recompile()
    return graph.forward
'''


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ops")
    (folder / "block.spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "acme.py").write_text(BACKEND, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def table(here: Path) -> Result:
    words = ["ops", "block.spec.yaml", "--backend", "acme:compile", "--backend", "eager", "-o", "table"]
    return run_in(here, *words, "--json", "ops.json")


def test_the_sentence_of_a_model_counts_its_distinct_calls(table: Result) -> None:
    assert table.code == 1, table.err
    assert (
        "block[float32,cpu] under acme:compile: of 5 distinct calls 2 right (2 computed by torch), 2 wrong, "
        "1 unsupported; 40.0 % by use are right, 0.0 % by its own code" in table.out
    )
    assert "block[float32,cpu] under eager: of 5 distinct calls 5 right; 100.0 % by use are right" in table.out


def test_the_json_names_each_call_with_its_numbers(here: Path, table: Result) -> None:
    calls = json.loads((here / "ops.json").read_text(encoding="utf-8"))["calls"]
    assert (here / "table" / "ops.json").is_file()
    states = {(c["use"]["operator"], c["backend"]): c["state"] for c in calls}
    assert states["F.gelu", "acme:compile"] == "wrong"
    assert states["torch.softmax", "acme:compile"] == "unsupported"
    assert {state for (_, backend), state in states.items() if backend == "eager"} == {"right"}
    wrong = next(c for c in calls if c["state"] == "wrong")
    assert wrong["use"]["call"].startswith("F.gelu(float32[4, ")
    assert wrong["ulp"] > 1000 * wrong["eager_ulp"]


def test_the_printed_next_command_explains_the_worst_call(here: Path, table: Result) -> None:
    command = next(line for line in table.out.splitlines() if line.startswith("next: runner why"))
    assert "--backend acme:compile" in command and "f_gelu" in command


def test_a_case_that_cannot_run_in_eager_is_said(here: Path) -> None:
    (here / "wrong.spec.yaml").write_text(SPEC.replace("[16, 8]", "[15, 8]"), encoding="utf-8")
    result = run_in(here, "ops", "wrong.spec.yaml", "--backend", "eager")
    assert result.code == 5
    assert "while it was recorded: " in result.err and "no operator call could be written as a case" in result.err


@pytest.mark.nightly
def test_a_run_may_go_on_op_by_op_with_what_failed(here: Path) -> None:
    words = ["run", "block.spec.yaml", "--backend", "acme:compile", "--backend", "eager", "--no-confirm"]
    result = run_in(here, *words, "--op-by-op", "failed")
    assert result.code == 1
    assert "block[float32,cpu] under acme:compile: of 5 distinct calls" in result.out
    assert "under eager" not in result.out, "eager was right, so its calls are not run"
    suites = json.loads((here / ".runner/latest/events.jsonl").read_text(encoding="utf-8").splitlines()[0])["suites"]
    assert [*suites] == ["block"], "the latest run is the one that was typed"


@pytest.mark.nightly
def test_the_drift_says_where_the_error_enters(here: Path) -> None:
    (here / "drift.spec.yaml").write_text(SPEC.replace("torch.softmax: [$_, -1]", "torch.sigmoid"), encoding="utf-8")
    words = ["diagnose", "drift.spec.yaml::block", "--drift", "--json", "drift.json", "--backend"]
    result = run_in(here, *words, "acme:compile")
    assert result.code == 0 and "The error enters at F.gelu" in result.out, result.err
    drift = json.loads((here / "drift.json").read_text(encoding="utf-8"))[0]
    assert [row["operator"] for row in drift["rows"]][drift["enters"]] == "F.gelu" and drift["enters"] == 1
    sound = run_in(here, *words, "eager")
    assert "No error enters at one call" in sound.out, sound.err
