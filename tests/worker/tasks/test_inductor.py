"""Bugs that torch itself can plant in Inductor, for its own tests."""

from __future__ import annotations

import pytest
from worker_jobs import oracles, passes, run, source

RELU = source("return torch.relu(x) + 0.5")
FLAG = "torch._inductor.config.cpp.inject_{}_bug_TESTING_ONLY"


def test_clean_inductor_passes():
    record = run(RELU, "inductor")
    assert passes(record) and record["graphs"] == 1


@pytest.mark.parametrize(
    ("body", "name", "kind", "expected"),
    [
        ("return torch.relu(x) + 0.5", "relu", "accuracy", "value"),
        ("return torch.relu(x) + 0.5", "relu", "compile_error", "compile-error"),
        ("return torch.log1p(x.abs())", "log1p", "accuracy", "value"),
    ],
)
def test_an_injected_bug_is_found(body, name, kind, expected):
    record = run(source(body), "inductor", config={FLAG.format(name): kind})
    assert oracles(record) == [expected]
    if expected == "compile-error":
        assert "CppCompileError" in record["findings"][0]["error"]["chain"]


def test_a_lost_backward_is_found_in_the_backward_too():
    text = source("return torch.relu(x).log1p()", inputs="torch.randn(4, 5, requires_grad=True)")
    record = run(text, "inductor", grad={"mode": "backward"}, config={FLAG.format("log1p"): "accuracy"})
    assert "value" in oracles(record)
    assert passes(run(text, "inductor", grad={"mode": "backward"}))


def test_random_numbers_agree_by_default():
    text = source("return torch.nn.functional.dropout(x, 0.5, training=True)")
    assert passes(run(text, "inductor"))


def test_kernels_are_counted_anew_for_each_job():
    text = source("return torch.relu(x).sum(0) @ x.t(), torch.argsort(x) + 1")
    fused = run(RELU, "inductor")
    assert (fused["kernels"], fused["vectorized"]) == (1, 1)
    assert run(text, "inductor")["kernels"] > 1
    assert (run(RELU, "inductor")["kernels"], run(RELU, "aot_eager")["kernels"]) == (1, None)
