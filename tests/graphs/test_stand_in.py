"""A case with a model in Python is reduced by the captured graph of it that fails alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.diagnose.harness import VariantEngine
from runner.engine.messages import Outcome
from runner.graphs.stand_in import failing_graph
from tests.handmade import environment, finding, variants


def call(name: str, operator: str, operand: str) -> dict[str, Any]:
    tensor = {"dtype": "float32", "shape": [4], "stride": [1]}
    return {
        "name": name, "operator": operator, "positional": [f"${operand}"], "operands": [{"name": operand, "tensor": tensor}],
        "results": [tensor],
    }  # fmt: skip


def graph(name: str, operator: str) -> dict[str, Any]:
    tensor = {"dtype": "float32", "shape": [4], "stride": [1]}
    return {
        "name": name, "origin": "Model", "inputs": [{"name": "x", "tensor": tensor}],
        "calls": [call("y", operator, "x"), call("z", "torch.neg", "y")], "result": ["$z"],
    }  # fmt: skip


class ScriptedEngine:
    """Records two graphs, of which one calls tanh; what calls it fails with the findings."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = [each.to_json() for each in findings]
        self.ended: list[Outcome] = []

    def submit(self, job: Job) -> None:
        result: dict[str, Any] = {"findings": self.findings if "tanh" in job.source else [], "compared": 1}
        if job.task == "capture":
            graphs = [graph("graph_0", "torch.sin"), graph("graph_1", "torch.tanh")]
            result = {"capture": {"model": "m", "graphs": graphs}, "raised": None, "error": None}
        self.ended.append(Outcome(job=job, ended="result", seconds=1.0, result=result))

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended


@pytest.mark.parametrize("oracle", ["value", "stride"])
def test_the_graph_that_fails_alike_is_found(oracle: str, tmp_path: Path) -> None:
    (variant,) = variants(tmp_path, "seed: 3\nconfig: {torch._inductor.config.cpp.simdlen: 1}")
    engine = VariantEngine(variant, environment())
    engine.local_engine = ScriptedEngine([finding(oracle)])  # type: ignore[assignment]
    found = failing_graph(engine, [finding("value")], tmp_path, lambda text: None)
    if oracle == "stride":
        assert found is None, "another failure"
        return
    assert found is not None
    found, diagnosis = found
    assert (diagnosis.verdict, diagnosis.run_seconds) == ("FAIL", 1.0)
    assert [(each.oracle, each.stage) for each in diagnosis.findings] == [("value", "inductor")]
    assert found.backend == variant.backend
    assert [step.operator for step in found.case.chain] == ["torch.tanh", "torch.neg"]
    assert Path(found.case.file) == tmp_path / "graph_1.spec.yaml"
    assert (found.case.seed, found.config, found.case.config) == (3, variant.config, variant.case.config)
    assert variant.config, "the settings of the model's case are the graph's"
