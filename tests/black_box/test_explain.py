"""``runner explain`` as a person runs it: tables with places in the YAML, and one JSON object."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .driver import Result, run_in, spec, write

LIMIT = "torch._dynamo.config.cache_size_limit"
FILES = {
    "a.spec.yaml": spec(
        f"""
        name: busy
        params: {{n: [2]}}
        inputs: {{x: ["${{n}}", 4]}}
        dynamic: false
        config: {{{LIMIT}: 2}}
        chain:
          - {{torch.relu: $x, out: y}}
          - builtin.print: [seen]
          - torch.add: [$y, 1]
        calls: [{{params: {{n: 3}}}}, {{params: {{n: 5}}}}]
        """,
        "name: quiet\ninputs: {x: [2, 4]}\nchain: [torch.relu, {torch.add: [$_, 1]}]\ncalls: [{}]",
    ),
}


RUNS = {"busy": ("busy", "eager"), "json": ("busy", "eager", "--json"), "quiet": ("quiet", "aot_eager")}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("explain")
    write(folder, FILES)

    def run(name: str) -> Result:
        case, backend, *options = RUNS[name]
        result = run_in(folder, "explain", f"a.spec.yaml::{case}", "--backend", backend, "-j", 1, *options)
        assert result.code == 0, result.text
        return result

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RUNS, pool.map(run, RUNS), strict=True))


@pytest.fixture(scope="module")
def busy(results: dict[str, Result]) -> dict[str, Any]:
    return json.loads(results["json"].out)  # nothing else is on standard output


def test_a_break_is_placed_in_the_yaml(busy: dict[str, Any]) -> None:
    assert busy["id"] == "a.spec.yaml::busy[float32,cpu]@eager"
    graph_break = busy["graph_breaks"][0]
    line, column = (int(part) for part in graph_break["at"].split(":")[1:])
    assert FILES["a.spec.yaml"].splitlines()[line - 1][column - 1 :].lstrip("- ").startswith("builtin.print")
    assert "print" in graph_break["code"] and "print" in graph_break["reason"]


def test_calls_tell_what_ran_what_was_compiled_again_and_what_was_not(busy: dict[str, Any]) -> None:
    first, second, third = busy["calls"]
    assert (first["recompiled"], first["graph_breaks"], first["eager"]) == ([], 1, [])
    assert len(first["graphs_run"]) == len(second["graphs_run"]) == 2
    assert len(second["recompiled"]) == 2, "both halves of the function"
    assert any("expected 2, actual 3" in reason for recompile in busy["recompiles"] for reason in recompile["reasons"])
    assert "forward" in third["eager"] and not third["graphs_run"]
    assert busy["limits"][0]["value"] == 2


def test_the_same_as_tables(results: dict[str, Result]) -> None:
    result = results["busy"]
    assert "NOT COMPILED: forward ran eagerly in call 2" in result.out
    assert "graph break at" in result.out and "a.spec.yaml:" in result.out
    assert "torch.relu" in result.out and "torch.add" in result.out
    assert "\x1b" not in result.out
    assert "compiling a.spec.yaml::busy" in result.err, "progress"


def test_of_what_is_in_order_nothing_is_made(results: dict[str, Result]) -> None:
    result = results["quiet"]
    assert "1 graph, 0 graph breaks, 0 recompiles in 2 calls" in result.out
    assert "NOT COMPILED" not in result.out and "RAISED" not in result.out and "graph break at" not in result.out
