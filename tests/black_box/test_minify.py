"""``runner minify`` makes of a planted bug a script with one operator that fails alike, and refuses what does not fail."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .driver import Result, environment, run_in, spec, write

RELU = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
CASE = """
    name: {name}
    inputs: {{x: [4, 8]}}
    config: {{{config}}}
    chain: [torch.neg, torch.relu, torch.sigmoid]
    """
FILES = {
    "case.spec.yaml": spec(
        CASE.format(name="crash", config=f"{RELU}: compile_error"),
        CASE.format(name="wrong", config=f"{RELU}: accuracy"),
        CASE.format(name="plain", config=""),
        """
        name: trained
        inputs: {x: {shape: [4, 8], requires_grad: true}}
        grad: backward
        chain: [torch.neg, torch.relu, torch.sigmoid]
        """,
    ),
    "toys.py": """
        import os

        import torch
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd


        def _backward(graph, inputs):
            return make_boxed_func(lambda *args: [out if out is None else out * 2 for out in graph.forward(*args)])


        doubled = aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward), bw_compiler=_backward)


        def deadly(graph, inputs):
            found = any(node.target is torch.relu for node in graph.graph.nodes)
            return lambda *args: os.abort() if found else graph(*args)
        """,
}
RUNS = {
    "crash": ("case.spec.yaml::crash", "--backend", "inductor"),
    "wrong": ("case.spec.yaml::wrong", "--backend", "inductor", "--accuracy"),
    "backend": ("case.spec.yaml::plain", "--after", "dynamo", "--backend", "relu_compile_error_TESTING_ONLY"),
    "custom": ("case.spec.yaml::trained", "--after", "dynamo", "--backend", "toys:doubled"),
    "death": ("case.spec.yaml::plain", "--after", "dynamo", "--backend", "toys:deadly"),
    "fine": ("case.spec.yaml::plain", "--backend", "aot_eager"),
}


@pytest.fixture(scope="module")
def minify(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Result]:
    """``minify(name)`` is what RUNS[name] did. It runs once."""
    folder = tmp_path_factory.mktemp("minify")
    write(folder, FILES)
    return functools.cache(lambda name: run_in(folder, "minify", *RUNS[name], "-o", name, "-j", 1))


@pytest.mark.parametrize(
    ("name", "count", "operator", "error"),
    [
        pytest.param("crash", 3, "aten.relu", "CppCompileError", marks=pytest.mark.nightly),
        pytest.param("wrong", 3, "aten.relu", "AccuracyError", marks=pytest.mark.nightly),
        pytest.param("backend", 3, "torch.relu", "ReluCompileError", marks=pytest.mark.nightly),
        ("custom", 3, "torch.", "AccuracyError"),  # a wrong gradient, which any of the three shows
        pytest.param("death", 3, "torch.relu", "SIGABRT", marks=pytest.mark.nightly),
    ],
)
def test_one_operator_is_left_and_fails_alike(
    minify: Callable[[str], Result], name: str, count: int, operator: str, error: str
) -> None:
    result = minify(name)
    assert result.code == 0, result.text
    assert f"{count} operators -> 1 operator" in result.out, result.text
    assert operator in result.out
    assert "in a fresh process fails alike: " in result.out and error in result.out.split("fails alike: ")[1]
    assert "looking for the graph" in result.err and "nodes left" in result.err, "progress"


def test_the_script_runs_alone_from_any_folder(minify: Callable[[str], Result], tmp_path: Path) -> None:
    folder = minify("custom").cwd / "custom"
    new_folder = folder.rename(tmp_path / "moved")
    process = subprocess.run([sys.executable, str(new_folder / "repro.py")], cwd=tmp_path, env=environment(), capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    assert process.returncode != 0
    assert "AccuracyError" in process.stderr
    assert "generating random data" not in process.stderr, "its inputs lie beside it"


def test_what_does_not_fail_is_refused(minify: Callable[[str], Result]) -> None:
    result = minify("fine")
    assert result.code == 1, result.text
    assert "does not fail: PASS" in result.err
    assert not (result.cwd / "fine").exists()
