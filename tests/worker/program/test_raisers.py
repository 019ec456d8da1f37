"""An error under a backend of another package says who raised it: that package, torch within it, or torch around it."""

from __future__ import annotations

import functools
import sys
import types

import pytest
import torch

from runner.worker.program import backends
from runner.worker.program.errors import describe
from runner.worker.program.raisers import package_of, packages_of

CODE = """
import json
import torch

def itself(graph, inputs):
    raise AssertionError("I know no such graph")

def in_the_compiled_code(graph, inputs):
    def run(*args):
        raise ValueError("cannot run")
    return run

def by_the_standard_library(graph, inputs):
    return json.loads("{")

def by_torch_within(graph, inputs):
    torch.broadcast_shapes((2,), (3,))

def by_torch_for_a_reason(graph, inputs):
    try:
        torch.broadcast_shapes((2,), (3,))
    except RuntimeError as error:
        raise TypeError("not supported") from error

def by_torch_around(graph, inputs):
    return None  # Dynamo asserts that it is a function

def right(graph, inputs):
    return graph.forward

class Compiler:
    def __call__(self, graph, inputs):
        raise AssertionError("an object")

compiler = Compiler()
"""


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An installed package of somebody else, with backends."""
    module = types.ModuleType("planted_package.compiling")
    exec(compile(CODE, "/site-packages/planted_package/compiling.py", "exec"), vars(module))
    parent = types.ModuleType("planted_package")
    monkeypatch.setitem(sys.modules, "planted_package", parent)
    monkeypatch.setitem(sys.modules, "planted_package.compiling", module)
    return module


def origin(name: str, function=torch.relu) -> dict[str, str]:
    """The facts of the error that ``function`` raises under a backend."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backends.find(name))
    with pytest.raises(BaseException) as failure:
        compiled(torch.ones(3))
    return describe(failure.value, module=__name__, packages=backends.packages(name)).info["origin"]


@pytest.mark.parametrize(
    ("name", "by", "caller", "frame"),
    [
        ("itself", "planted_package", "planted_package", "planted_package/compiling.py:itself"),
        ("in_the_compiled_code", "planted_package", "planted_package", "planted_package/compiling.py:run"),
        ("by_the_standard_library", "planted_package", "planted_package", "planted_package/compiling.py:by_the_standard_library"),
        ("compiler", "planted_package", "planted_package", "planted_package/compiling.py:__call__"),
        ("by_torch_within", "torch", "planted_package", "broadcast_shapes"),
        ("by_torch_for_a_reason", "torch", "planted_package", "broadcast_shapes"),
        ("by_torch_around", "torch", None, "_dynamo/output_graph.py:_call_user_compiler"),
    ],
)  # fmt: skip
def test_who_raised(package: types.ModuleType, name: str, by: str, caller: str | None, frame: str) -> None:
    facts = origin(f"planted_package.compiling:{name}")
    assert (facts["raised_by"], facts.get("called_by")) == (by, caller)
    assert facts["frame"].endswith(frame)


def test_the_case_s_own_error_is_nobody_else_s(package: types.ModuleType) -> None:
    def model(x):
        if x.shape[0] == 3:
            raise KeyError("the model's own")
        return x

    facts = origin("planted_package.compiling:right", torch.compiler.disable(model))
    assert facts["type"] == "KeyError" and not {"raised_by", "called_by"} & facts.keys()


@pytest.mark.parametrize("name", ["relu_compile_error_TESTING_ONLY", "relu_runtime_error_TESTING_ONLY"])
def test_torch_s_own_backends_are_told_of_as_before(name: str) -> None:
    assert not {"raised_by", "called_by"} & origin(name).keys()


def test_the_packages_of_a_backend(package: types.ModuleType) -> None:
    assert packages_of("inductor", "inductor") == packages_of("eager", "eager") == frozenset()
    assert packages_of("adapter:backend", package.compiler) == {"adapter", "planted_package"}
    assert packages_of("adapter:backend", functools.partial(package.right, 1)) == {"adapter", "planted_package"}
    assert backends.packages("triton") == backends.packages("triton-compiled") == frozenset()
    assert backends.packages("runner.worker.planted:clean") == {"runner.worker.planted"}


@pytest.mark.parametrize(
    ("module", "package"),
    [("openvino.torch", "openvino"), ("torch", "torch"), ("json.decoder", ""), ("runner.worker.planted", "runner.worker.planted"), ("", "")],
)  # fmt: skip
def test_the_package_of_a_module(module: str, package: str) -> None:
    assert package_of(module) == package
