"""What is told of an exception: the one behind the compiler's own, and its frame inside torch."""

from __future__ import annotations

import functools
import sys
import types
from subprocess import CalledProcessError

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed, TorchRuntimeError

from runner.contract.finding import telling_line, top_frame
from runner.worker.program import backends
from runner.worker.program.errors import MESSAGE_LIMIT, describe, package_of


def raised(action):
    with pytest.raises(BaseException) as info:
        action()
    return describe(info.value).info["origin"]


def shapes():
    torch.broadcast_shapes((2,), (3,))


def wrapped():
    try:
        shapes()
    except RuntimeError as error:
        failed = BackendCompilerFailed.__new__(BackendCompilerFailed, "backend='toy' raised:")  # its arguments vary
        failed.inner_exception = error
        raise failed from None


def suppressed():
    """As ``LoweringException``: the inner one is neither its cause nor an attribute."""
    try:
        shapes()
    except RuntimeError:
        raise TorchRuntimeError("RuntimeError: see below") from None


def own():
    try:
        shapes()
    except RuntimeError:
        raise KeyError("mine") from None


def test_the_origin_is_behind_the_compiler_s_own_exception() -> None:
    plain = raised(shapes)
    assert plain["type"] == "RuntimeError" and plain["frame"].endswith("broadcast_shapes")
    assert raised(wrapped) == raised(suppressed) == plain


def test_what_a_model_hides_stays_hidden() -> None:
    assert raised(own) == {"type": "KeyError", "message": "'mine'", "frame": ""}


COMMAND = "C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\n"
WARNING = "vec256_int.h:1746:7: warning: overflow in conversion\n"


@pytest.mark.parametrize(("leading", "trailing"), [(0, 0), (200, 0), (200, 200), (10, 400)])
def test_the_diagnosis_of_a_compiler_survives_its_warnings(leading: int, trailing: int) -> None:
    diagnosis = "a.cpp:9:1: fatal error: error writing to a.s: No space left on device"

    def build() -> None:
        try:
            raise CalledProcessError(1, ["g++"])
        except CalledProcessError as error:
            raise RuntimeError(f"{COMMAND}{WARNING * leading}{diagnosis}\n{WARNING * trailing}") from error

    with pytest.raises(RuntimeError) as raised_error:
        build()
    info = describe(raised_error.value).info
    assert diagnosis in info["message"] and info["message"].startswith(COMMAND)
    assert len(info["message"]) < MESSAGE_LIMIT + 100
    assert info["origin"]["type"] == "RuntimeError" and info["origin"]["message"] == diagnosis[17:]


def test_a_long_message_without_a_diagnosis_keeps_both_ends() -> None:
    with pytest.raises(ValueError, match="first") as raised_error:
        raise ValueError("first\n" + "middle\n" * 2000 + "last")
    message = describe(raised_error.value).info["message"]
    assert message.startswith("first\nmiddle") and message.endswith("middle\nlast")
    assert "characters left out" in message and len(message) < MESSAGE_LIMIT + 100


def test_an_exception_that_is_its_own_cause_ends() -> None:
    def circle():
        first, second = ValueError("1"), ValueError("2")
        first.__cause__, second.__cause__ = second, first
        raise first

    assert raised(circle) == {"type": "ValueError", "message": "2", "frame": ""}


def test_shapes_do_not_move_the_frame() -> None:
    def larger():
        torch.broadcast_shapes((4, 1, 7), (3,))

    assert raised(larger)["frame"] == raised(shapes)["frame"]


@pytest.mark.parametrize(
    ("frames", "frame"),
    [
        ([("_ops.py", "__call__"), ("_inductor/ir.py", "create")], "_inductor/ir.py:create"),
        ([("_inductor/lowering.py", "wrapped"), ("_inductor/graph.py", "run_node")], "_inductor/graph.py:run_node"),
        ([("_inductor/ir.py", "<lambda>"), ("_inductor/ir.py", "f")], "_inductor/ir.py:f"),
        ([("_refs/__init__.py", "div")], "_refs/__init__.py:div"),
        ([("_inductor/utils.py", "f")], "_inductor/utils.py:f"),
        ([("autograd/graph.py", "_engine_run_backward"), ("x.py:codegen(y)", "z")], ""),
        ([], ""),
    ],
)
def test_wrappers_are_passed_over(frames: list[tuple[str, str]], frame: str) -> None:
    assert top_frame(frames) == frame


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("first\nsecond", "first"),
        ("backend='inductor' raised:\nKeyError: 'buf4'", "KeyError: 'buf4'"),
        ("C++ compile error\n\ng++ -Werror a.cpp\n\na.cpp:3:5: error: no matching function\n  1 | x", "error: no matching function"),
        ("", ""),
        ("\n\nfrom user code:\n   File \"a.py\", line 3, in forward\n    return gen()\n", ""),
        ("not yet\n\nfrom user code:\n   File \"a.py\", line 3, in forward\n", "not yet"),
    ],
)  # fmt: skip
def test_the_telling_line(message: str, line: str) -> None:
    assert telling_line(message) == line


def test_a_bare_assert_of_dynamo_is_summed_up_by_its_class() -> None:
    error = AssertionError('\n\nfrom user code:\n   File "a.py", line 3, in forward\n    return gen()\n')
    assert describe(error).summary == "AssertionError"


class Hostile(BaseException):
    """Raises whatever one asks it."""

    def __str__(self) -> str:
        raise self


class Mute(Hostile):
    def __getattr__(self, name: str) -> object:
        raise Hostile


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (Hostile, "Hostile", "<its message cannot be had: Hostile>"),
        (Mute, "Unreadable", "Mute raised Hostile while it was read"),
    ],
)
def test_an_exception_that_cannot_be_read_is_told(kind: type[BaseException], name: str, message: str) -> None:
    try:
        raise kind
    except BaseException as error:  # noqa: BLE001
        record = describe(error)
    assert (record.info["type"], record.info["message"]) == (name, message)
    assert "test_an_exception_that_cannot_be_read" in record.info["trace"]


def test_an_exception_whose_class_raises_is_told() -> None:
    class Unnamed(type):
        def __getattribute__(cls, name: str) -> object:
            raise Hostile

        def __instancecheck__(cls, instance: object) -> bool:
            raise Hostile

    kind = Unnamed("Nameless", (ValueError,), {})
    try:
        raise type.__call__(kind, "words")
    except BaseException as error:  # noqa: BLE001
        record = describe(error)
    assert record.info["type"] == "Nameless" and record.info["message"] == "words", record
    assert record.info["bases"] == ["Nameless", "ValueError", "Exception", "BaseException", "object"]


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
    exec(compile(CODE, "/site-packages/planted_package/__init__.py", "exec"), vars(parent))
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


@pytest.mark.parametrize("function", ["itself", "by_the_standard_library"])
def test_the_frame_of_a_package_s_own_module_names_its_file(package: types.ModuleType, function: str) -> None:
    facts = origin(f"planted_package:{function}")
    assert (facts["raised_by"], facts["frame"]) == ("planted_package", f"planted_package/__init__.py:{function}")


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
    assert backends.packages_of("inductor", "inductor") == backends.packages_of("eager", "eager") == frozenset()
    assert backends.packages_of("adapter:backend", package.compiler) == {"adapter", "planted_package"}
    assert backends.packages_of("adapter:backend", functools.partial(package.right, 1)) == {
        "adapter",
        "planted_package",
    }
    assert backends.packages("triton") == backends.packages("triton-compiled") == frozenset()
    assert backends.packages("runner.worker.planted:clean") == {"runner.worker.planted"}


@pytest.mark.parametrize(
    ("module", "package"),
    [("openvino.torch", "openvino"), ("torch", "torch"), ("json.decoder", ""), ("runner.worker.planted", "runner.worker.planted"), ("", "")],
)  # fmt: skip
def test_the_package_of_a_module(module: str, package: str) -> None:
    assert package_of(module) == package
