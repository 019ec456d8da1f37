"""What the values of a forward are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runner.worker.tasks.eager import describe_value
from runner.worker.tasks.registry import run_job

SOURCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        v1 = torch.sigmoid(x).t()
        v2 = torch.max(v1, 0)
        with torch.no_grad():
            v3 = v1.to(torch.int64)
        a, b = torch.chunk(v1, 2)
        size = x.shape[0]
        several = [a, size]
        {last}
        return v1
def make_model():
    return Model()
def make_inputs():
    return [torch.arange(12.0).reshape(3, 4).requires_grad_()]
"""


def values(last: str) -> dict[str, Any]:
    job = {
        "key": "k", "id": "i", "environment": "here", "name": "n", "task": "shapes", "source": SOURCE.replace("{last}", last), "arguments": {},
        "backend": {"backend": "eager"}, "grad": {"mode": "forward"}, "threads": 1,
    }  # fmt: skip
    return run_job(job, lambda message: None)["values"]


@pytest.mark.parametrize("last", ["pass", "raise IndexError"])
def test_every_variable_is_described_even_if_it_raises(last: str) -> None:
    infos = values(last)
    assert set(infos) == {"x", "v1", "v2", "v3", "a", "b", "size", "several"}
    assert infos["x"] == {
        "kind": "tensor", "shape": [3, 4], "dtype": "float32", "requires_grad": True, "contiguous": True, "low": 0.0, "high": 11.0,
    }  # fmt: skip
    assert (infos["v1"]["shape"], infos["v1"]["contiguous"], infos["v1"]["requires_grad"]) == ([4, 3], False, True)
    assert 0.4 < infos["v1"]["low"] < infos["v1"]["high"] <= 1.0
    assert infos["v2"]["kind"] == "fields" and list(infos["v2"]["items"]) == ["values", "indices"]
    assert (infos["v3"]["dtype"], infos["v3"]["requires_grad"]) == ("int64", False)
    assert infos["size"] == {"kind": "python", "value": 3}
    assert [item["kind"] for item in infos["several"]["items"]] == ["tensor", "python"]


def test_a_case_that_cannot_be_loaded_has_no_values() -> None:
    assert values("return (") == {}


def test_odd_values() -> None:
    assert describe_value(torch.tensor([float("nan"), 2.0]))["low"] == 2.0
    assert describe_value(torch.empty(0))["low"] is None
    assert describe_value(torch.ones(2).to_sparse()) == {"kind": "other"}
    assert describe_value(float("inf")) == {"kind": "other"}
    assert describe_value(object()) == {"kind": "other"}
    assert describe_value([[[[1]]]])["items"][0]["items"][0]["items"][0] == {"kind": "other"}
    assert describe_value(torch.ones(1, dtype=torch.bool))["high"] == 1.0
    assert describe_value(torch.ones(1, dtype=torch.complex64))["low"] is None


def test_many_cases_are_run_in_one_job() -> None:
    case = {"key": "k", "id": "i", "environment": "here", "name": "n", "source": SOURCE.replace("{last}", "pass"),
            "backend": {"backend": "eager"}, "grad": {"mode": "forward"}, "threads": 1}  # fmt: skip
    raising = {**case, "source": SOURCE.replace("{last}", "raise IndexError('at last')")}
    broken = {**case, "source": "import torch\nx ="}
    answer = run_job(
        {**case, "task": "eager", "arguments": {"jobs": [case, raising, broken, case]}}, lambda message: None
    )
    first, second, third, fourth = answer["errors"]
    assert first is None and fourth is None
    assert second["type"] == "IndexError" and "SyntaxError" in third["type"]
