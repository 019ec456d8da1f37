"""``dynamic:`` with dimensions of inputs: reading, ids, claims, writing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spec_files import Files

from runner.builder.source import build
from runner.cases.model import Mark, Marks, Unclaimed
from runner.cases.serialize import case_text, resolve_axes
from runner.diagnostics import Span
from runner.session.plan import unclaimed_need

MARKED = """
    params: {n: [4]}
    inputs: {x: ["${n}", 3], y: {view_of: x}, g: {values: [1.0], hidden: true}}
    dynamic: [{x: [0]}, {y: {maybe: [0], dynamic: [1]}, x: {maybe: [0, 1]}}, true, null]
    chain: [{torch.mul: [$x, $y]}]
    calls: [{params: {n: 7}}]
    """


def test_dimensions_are_marked_before_each_call(files: Files) -> None:
    variants = files.variants(MARKED)
    assert [v.id.partition("[")[2].rpartition(",float32,cpu]")[0] for v in variants] == [
        "dynamic={x:[0]}", "dynamic={y:maybe[0],y:[1],x:maybe[0,1]}", "dynamic=true", "dynamic=null",
    ]  # fmt: skip
    marks = variants[0].dynamic
    assert isinstance(marks, Marks)
    assert [replace(mark, span=Span("", 0, 0)) for mark in marks.items] == [Mark("x", (0,), Span("", 0, 0))]
    lines = [[line.strip() for line in build(v).text.split("\n") if "mark_dynamic" in line] for v in variants]
    assert lines == [
        ["torch._dynamo.mark_dynamic(x, [0])"] * 2,
        [
            "torch._dynamo.maybe_mark_dynamic(y, [0])", "torch._dynamo.mark_dynamic(y, [1])",
            "torch._dynamo.maybe_mark_dynamic(x, [0, 1])",
        ] * 2,
        [],
        [],
    ]  # fmt: skip


def test_marks_are_dynamic_shapes_to_claims(files: Files) -> None:
    for variant in files.variants(MARKED):
        backend = replace(variant.backend, unclaimed=Unclaimed(dynamic=True))
        need = unclaimed_need(replace(variant, backend=backend))
        assert need == ("dynamic shapes" if variant.dynamic else "")


def test_what_is_written_is_read_back(files: Files) -> None:
    case = files.case(MARKED)
    text = case_text(case)
    files.write("b.spec.yaml", text)
    assert case_text(files.suites("b.spec.yaml")[0].cases[0]) == text
    first = resolve_axes(files.variants(MARKED)[0])
    assert "dynamic: {x: [0]}" in case_text(first)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("dynamic: {z: [0]}", "3:15: the model gets no input 'z'"),
        ("dynamic: [true, {x: [1, 2]}]", "3:22: input 'x' has no dimension 2 | they count from 0"),
        ("dynamic: {x: {maybe: [5]}}", "3:15: input 'x' has no dimension 5 | they count from 0"),
        ("dynamic: {x: [-1]}", "3:19: -1 is too small: expected 0 or more"),
        ("dynamic: {x: []}", "3:18: expected at least one entry, found none | such as [0]"),
        ("dynamic: {}", "3:14: this mapping is empty"),
        ("dynamic: {x: {perhaps: [0]}}", "3:19: unknown key 'perhaps' | the keys here: dynamic, maybe"),
        ("dynamic: {x: 0}", "3:18: expected dimensions such as [0], or {maybe: [0]}, found the integer 0"),
        ("dynamic: yes", "3:14: expected true, false, null, or dimensions of inputs such as {x: [0]}, found the text 'yes' | in YAML 1.2 yes is text: write true or false"),
        ("inputs: {p: {python: 1}, x: [2]}\nchain: [{torch.add: [$x, $p]}]\ndynamic: {p: [0]}", "5:15: input 'p' is no tensor, so it has no dimensions"),
        ("inputs: {g: {shape: [2], hidden: true}, x: {view_of: g}}\nchain: [{torch.sin: $x}]\ndynamic: {g: [0]}", "5:15: the model gets no input 'g'"),
        ("params: {s: [[2, 3], [4]]}\ninputs: {x: $s}\ndynamic: {x: [1]}", "5:15: input 'x' has no dimension 1 | they count from 0"),
    ],
)  # fmt: skip
def test_problems(files: Files, keys: str, message: str) -> None:
    assert files.errors(keys) == [message]
