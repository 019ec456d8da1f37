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
        case, backend, *more = RUNS[name]
        done = run_in(folder, "explain", f"a.spec.yaml::{case}", "--backend", backend, "-j", 1, *more)
        assert done.code == 0, done.text
        return done

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RUNS, pool.map(run, RUNS), strict=True))


@pytest.fixture(scope="module")
def busy(results: dict[str, Result]) -> dict[str, Any]:
    return json.loads(results["json"].out)  # nothing else is on standard output


def test_a_break_is_placed_in_the_yaml(busy: dict[str, Any]) -> None:
    assert busy["id"] == "a.spec.yaml::busy[float32,cpu]@eager"
    found = busy["graph_breaks"][0]
    line, column = (int(part) for part in found["at"].split(":")[1:])
    assert FILES["a.spec.yaml"].splitlines()[line - 1][column - 1 :].lstrip("- ").startswith("builtin.print")
    assert "print" in found["code"] and "print" in found["reason"]


def test_calls_tell_what_ran_what_was_compiled_again_and_what_was_not(busy: dict[str, Any]) -> None:
    first, second, third = busy["calls"]
    assert (first["recompiled"], first["graph_breaks"], first["eager"]) == ([], 1, [])
    assert len(first["graphs_run"]) == len(second["graphs_run"]) == 2
    assert len(second["recompiled"]) == 2, "both halves of the function"
    assert any("expected 2, actual 3" in reason for one in busy["recompiles"] for reason in one["reasons"])
    assert "forward" in third["eager"] and not third["graphs_run"]
    assert busy["limits"][0]["value"] == 2


def test_the_same_as_tables(results: dict[str, Result]) -> None:
    done = results["busy"]
    assert "NOT COMPILED: forward ran eagerly in call 2" in done.out
    assert "graph break at" in done.out and "a.spec.yaml:" in done.out
    assert "torch.relu" in done.out and "torch.add" in done.out
    assert "\x1b" not in done.out
    assert "compiling a.spec.yaml::busy" in done.err, "progress"


def test_of_what_is_in_order_nothing_is_made(results: dict[str, Result]) -> None:
    done = results["quiet"]
    assert "1 graph, 0 graph breaks, 0 recompiles in 2 calls" in done.out
    assert "NOT COMPILED" not in done.out and "RAISED" not in done.out and "graph break at" not in done.out
