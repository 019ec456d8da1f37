"""The explanation as a person reads it: places in the YAML, and nothing that is not there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from runner.builder.source import Source
from runner.cli.explain import placed, render_explained, telling
from runner.diagnostics import Span

SOURCE = Source(
    "import torch\nx = torch.relu(x)\nprint(x)\n", (None, Span("a.spec.yaml", 4, 9), Span("a.spec.yaml", 5, 9))
)

QUIET: dict[str, Any] = {
    "id": "a.spec.yaml::case[float32,cpu]@eager",
    "torch": "2.13.0",
    "backend": "eager",
    "calls": [{"call": 0, "graphs_run": [0], "compiled": ["0/0"], "recompiled": [], "graph_breaks": 0, "eager": []}],
    "compilations": [
        {
            "compile_id": "0/0",
            "call": 0,
            "frame": "forward",
            "at": None,
            "code": None,
            "seconds": 0.5,
            "guards": 1,
            "operators": 2,
            "failed": None,
            "restarts": [],
        }
    ],
    "graphs": [
        {
            "graph": 0,
            "call": 0,
            "compile_id": "0/0",
            "frame": "forward",
            "operators": {"torch.relu": 2, "torch.add": 1},
            "compiled": True,
            "runs": [0],
        }
    ],
    "graph_breaks": [],
    "guards": {"0/0": ["check_tensor(L['x'])"]},
    "recompiles": [],
    "limits": [],
    "counters": {},
    "raised": None,
    "first_call": {"graphs": 1, "graph_breaks": [], "operators": 3, "guards": 4, "raised": None},
}


def changed(**changes: Any) -> str:
    return render_explained({**copy.deepcopy(QUIET), **changes})


def test_a_line_becomes_a_place_and_a_statement():
    record = {"graph_breaks": [{"line": 3, "reason": "r"}, {"line": None, "reason": "s"}, {"line": 99, "reason": "t"}]}
    assert placed(record, SOURCE)["graph_breaks"] == [
        {"reason": "r", "at": "a.spec.yaml:5:9", "code": "print(x)"},
        {"reason": "s", "at": None, "code": None},
        {"reason": "t", "at": "a.spec.yaml:5:9", "code": None},
    ]


def test_what_went_well_is_a_few_lines():
    text = changed()
    assert text.startswith(
        "a.spec.yaml::case[float32,cpu]@eager under torch 2.13.0\n1 graph, 0 graph breaks, 0 recompiles"
    )
    assert "torch.relu x2, torch.add" in text
    assert "1 guard of 0/0\n  check_tensor(L['x'])" in text
    assert "torch._dynamo.explain, of the first call alone: 1 graph, 0 graph breaks, 3 operators, 4 guards" in text
    for loud in ("NOT COMPILED", "RAISED", "graph break at", "reason"):
        assert loud not in text


def test_breaks_and_recompiles_have_tables():
    text = changed(
        graph_breaks=[{"call": 0, "compile_id": "0/0", "reason": "print\nmore", "at": "a.spec.yaml:5:9", "code": "print(x)"}],
        recompiles=[
            {"call": 1, "compile_id": "0/1", "reasons": ["0/0: expected 2, actual 3"], "compiled": True},
            {"call": 2, "compile_id": "0/2", "reasons": ["0/1: expected 3, actual 4"], "compiled": False},
        ],
    )  # fmt: skip
    assert "1 graph break, 1 recompile" in text
    (line,) = [line for line in text.splitlines() if "a.spec.yaml:5:9" in line]
    assert "print(x)" in line and "more" not in line
    assert "0/0: expected 2, actual 3" in text


def test_frames_that_ran_eagerly_are_said_first_and_loudly():
    hit = {"call": 2, "frame": "forward", "at": None, "code": None, "limit": "torch._dynamo.config.recompile_limit",
           "value": 2, "reason": "0/1: expected 3, actual 4"}  # fmt: skip
    calls = [{**QUIET["calls"][0], "call": n, "eager": ["forward"] if n in (2, 3) else []} for n in range(4)]
    lines = changed(limits=[hit], calls=calls).splitlines()
    warning = "NOT COMPILED: forward ran eagerly in calls 2, 3, past torch._dynamo.config.recompile_limit = 2"
    assert lines[3:5] == [warning, "  last reason: 0/1: expected 3, actual 4"]


def test_a_frame_that_was_given_up_is_said_as_loudly():
    (compilation,) = QUIET["compilations"]
    text = changed(compilations=[{**compilation, "failed": "Unsupported: Failed\n  Explanation: No."}])
    assert "NOT COMPILED: forward was given up in call 0 and ran eagerly\n  reason: Unsupported: Failed: No." in text


def test_an_error_is_said_with_its_place_and_breaks_that_torchs_explain_saw():
    error = {"type": "Unsupported", "message": "print\nmore", "at": "a.spec.yaml:5:9", "code": "print(x)"}
    first = {**QUIET["first_call"], "graph_breaks": [{"reason": "print", "at": "a.spec.yaml:5:9", "code": "print(x)"}]}
    text = changed(raised=error, first_call=first, graphs=[{**QUIET["graphs"][0], "compiled": False}])
    assert "RAISED in call 0: Unsupported: print more\n  at a.spec.yaml:5:9: print(x)" in text
    assert "  break at a.spec.yaml:5:9: print(x): print" in text
    assert "not compiled" in text


def test_guards_that_a_recompile_repeats_are_not_printed_again():
    text = changed(guards={"0/0": ["A: a", "B: 2"], "0/1": ["A: a", "B: 3"], "1/0": ["A: a"], "0/2": ["A: a", "B: 3"]})
    assert text.endswith(
        "2 guards of 0/0\n  A: a\n  B: 2\n2 guards of 0/1, those of the compilation before but for\n  B: 3\n"
        "1 guard of 1/0\n  A: a\n2 guards of 0/2, those of the compilation before"
    )


def test_guards_that_are_alike_are_told_once():
    kinds = (
        "hasattr(L['{}']['w'], '_dynamo_{}') == False",
        "id(L['{}'], 12345678{}) <class 'a'>",
        "len(L['{}']) == {}",
    )
    guards = [kind.format(name, number) for kind in kinds for name, number in (("x", 10), ("y", 20), ("z", 10))]
    lines = (
        changed(guards={"0/0": [*guards, "id(L['x'], 1234567899) <class 'b'>"]})
        .partition("guards of 0/0\n")[2]
        .splitlines()
    )
    assert lines == [
        "  hasattr(L['x']['w'], '_dynamo_10') == False  (and 2 more alike)",
        "  id(L['x'], 1234567810) <class 'a'>  (and 2 more alike)",
        "  len(L['x']) == 10  (and 1 more alike)",
        "  len(L['y']) == 20",
        "  id(L['x'], 1234567899) <class 'b'>",
    ]


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("call_function print", "call_function print"),
        ("Data-dependent branching\n  Explanation: It depends.\n  Hint: none", "Data-dependent branching: It depends."),
        ("Encountered graph break when tracing CALL:\n\nFailed\n  Explanation: No.", "Failed: No."),
        ("", ""),
    ],
)
def test_a_reason_is_cut_to_what_it_tells(reason: str, line: str):
    assert telling(reason) == line


@pytest.mark.parametrize("count", [1, 30])
def test_many_operators_go_on_in_the_next_line(count: int):
    operators = {f"torch.operator_{n}": 1 for n in range(count)}
    text = changed(graphs=[{**QUIET["graphs"][0], "operators": operators}])
    assert all(name in text for name in operators)
    assert max(map(len, text.splitlines())) < 140
