"""Failures that are alike have one signature, whatever the shape, the dtype, the names and the process; others have their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .driver import Result, run_in, write

FILES = {
    "broken.py": """
        import torch
        from torch.utils import _pytree as pytree


        def fails(part):
            raise AssertionError(f"no kernel for {part.dtype} of shape {list(part.shape)}")


        def compile_error(graph, inputs):
            pytree.tree_map(fails, inputs)


        def refuses(part):
            raise AssertionError(f"no kernel for {part.dtype} of shape {list(part.shape)}")


        def elsewhere(graph, inputs):
            pytree.tree_map(refuses, inputs)


        def wrong(graph, inputs):
            return lambda *args: (*(outs := graph(*args))[:-1], outs[-1] + 1)  # the last operator is to blame
        """,
    "alike.spec.yaml": """
        cases:
          - name: plain
            inputs: {x: [4, 8]}
            chain: [torch.neg, torch.sin]
          - name: larger
            inputs: {the_input: [2, 3, 5]}
            chain: [{torch.exp: $the_input, out: a}, {torch.sin: $a, out: b}]
            return: $b
            dtypes: [float64]
          - name: another_operator
            inputs: {x: [4, 8]}
            chain: [torch.neg, torch.cos]
        """,
}
BACKENDS = [word for name in ("compile_error", "elsewhere", "wrong") for word in ("--backend", f"broken:{name}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alike")
    write(folder, FILES)
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path) -> Result:
    return run_in(folder, "run", "alike.spec.yaml", *BACKENDS, "--no-confirm", env={"COLUMNS": "80"})


def signatures(ran: Result, backend: str) -> dict[str, str]:
    """Case to signature."""
    return {
        name.partition("[")[0]: event["signature"]
        for name, event in ran.finished.items()
        if name.endswith(f"@broken:{backend}")
    }


def test_one_bug_has_one_signature(ran: Result) -> None:
    signature = "compile-error at backend: AssertionError: no kernel for dtype of shape (…) in broken.py:"
    for backend, function in (("compile_error", "fails"), ("elsewhere", "refuses")):
        assert {*signatures(ran, backend).values()} == {signature + function}
    assert signatures(ran, "wrong") == {
        "plain": "value of torch.sin at backend",
        "larger": "value of torch.sin at backend",
        "another_operator": "value of torch.cos at backend",
    }


def test_another_frame_is_another_bug(ran: Result) -> None:
    assert {*signatures(ran, "compile_error").values()}.isdisjoint(signatures(ran, "elsewhere").values())


def test_another_process_says_the_same(ran: Result, folder: Path) -> None:
    again = run_in(folder, "run", "alike.spec.yaml::larger", *BACKENDS, "--isolation", "fresh", "--no-confirm")
    assert len(again.finished) == 3
    for name, event in again.finished.items():
        first = ran.finished[name]
        assert (event["severity"], event["signature"]) == (first["severity"], first["signature"])
        assert event["signature_id"] == first["signature_id"] != ""


def test_the_terminal_shows_a_group_once_the_worst_first(ran: Result, folder: Path) -> None:
    assert len(ran.finished) == 9
    blocks = re.findall(r"^(?:FAIL|ERROR) alike\.spec\.yaml::(\w+)\S+@broken:(\w+)$", ran.out, re.MULTILINE)
    assert blocks == [
        ("plain", "wrong"),
        ("another_operator", "wrong"),
        ("plain", "compile_error"),
        ("plain", "elsewhere"),
    ]
    table = ran.out[ran.out.index("\nresults  severity      signature\n") :].splitlines()[2:6]
    assert [line.split()[:2] for line in table] == [
        ["2", "wrong-result"], ["1", "wrong-result"], ["3", "exception"], ["3", "exception"],
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in table)
    for name in ran.finished:  # each id can be copied
        assert re.search(
            rf"^ +(?:reproduce: )?runner run 'alike\.spec\.yaml::{re.escape(name)}'", ran.out, re.MULTILINE
        )
    assert run_in(folder, "report", ran.folder, env={"COLUMNS": "80"}).out.count("\nERROR ") == 2


def test_junit_has_the_severity_and_the_signature(ran: Result) -> None:
    for case in ran.junit.iter("testcase"):
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        event = ran.finished[case.get("name", "")]
        assert properties["severity"] == event["severity"] in ("wrong-result", "exception")
        assert properties["signature"] == event["signature"]
        assert properties["signature_id"] == event["signature_id"]
