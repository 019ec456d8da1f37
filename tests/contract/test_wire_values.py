"""Jobs, records and findings go over the wire as JSON and come back as they were."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from runner.contract.finding import Finding
from runner.contract.graphs import Break, Call, Capture, Graph, GraphInput, Operand, Statistics, Tensor
from runner.contract.job import Job, Record, Trust
from runner.engine.messages import check_record

JOB = Job("k", "id", "here", "name", "text", {"backend": "inductor"}, ignore=("stride",), packages=("numpy",), memory=1)
FINDING = Finding("value", "it differs", "output", {"n": 1}, {"type": "E", "message": "m"}, line=3)
ALIAS = Finding("alias", "shares memory", severity="metadata")
RECORD = Record(
    (FINDING, ALIAS), labels=("slow",), notes=("a note",), comparisons=2, compared={"outputs": 2}, graphs=1, kernels=3,
    break_reasons=("print",), reached=("lowering aten.relu",), seconds={"eager": 0.5}, model_runs=3, code=("/a/b.py",),
    unchecked=("torch 9 has no counters",),
)  # fmt: skip

TENSOR = Tensor((2, 3), "float32", (1, 2), 4, requires_grad=True, storage=1, dynamic=(0,))
STATISTICS = Statistics(-1.0, 2.0, 0.5, 0.1, zeros=0.25)
CALL = Call(
    "y", "torch.add", ("$x", [1, "torch.float16"]), {"alpha": 2}, (Operand("x", TENSOR, STATISTICS),), (TENSOR,),
    contexts=({"torch.autocast": {"device_type": "cpu"}},), module=("layer Linear",), source="m.py:3: x + 1",
)  # fmt: skip
GRAPH = Graph(
    "graph_0", "Model", (GraphInput("x", TENSOR, statistics=STATISTICS), GraphInput("n", python=3)), (CALL,), ["$y"],
    grad=True,
)  # fmt: skip
CAPTURE = Capture("Model", (GRAPH,), (Break("print", "m.py:4"),), ("a note",), "2.13.0", 1.5)


@pytest.mark.parametrize(
    "value",
    [
        GRAPH,
        CAPTURE,
        JOB,
        RECORD,
        dataclasses.replace(RECORD, trust=Trust("FLAKY", "why", {"type": "E"})),
        Record(),
        FINDING,
    ],
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert type(value).from_json(json.loads(json.dumps(value.to_json()))) == value


@pytest.mark.parametrize("record", [RECORD, Record(trust=Trust("INVALID", "eager raised"))])
def test_control_takes_what_a_record_writes(record: Record) -> None:
    check_record(json.loads(json.dumps(record.to_json())))


def test_a_stored_record_may_lack_later_keys_and_have_unknown_ones() -> None:
    assert Record.from_json(
        {"comparisons": 2, "unknown": 1, "trust": {"verdict": "SKIP", "reason": "r", "more": 1}}
    ) == (Record(comparisons=2, trust=Trust("SKIP", "r")))


def test_a_job_with_a_misspelt_key_is_refused() -> None:
    with pytest.raises(TypeError, match="treads"):
        Job.from_json({**JOB.to_json(), "treads": 2})


@pytest.mark.parametrize("key", ["grahps", "torhc"])
def test_a_capture_with_a_misspelt_key_is_refused(key: str) -> None:
    with pytest.raises(TypeError, match=key):
        Capture.from_json({**CAPTURE.to_json(), key: ()})
