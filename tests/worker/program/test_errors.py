"""What is told of an exception: the one behind the compiler's own, and its frame inside torch."""

from __future__ import annotations

from subprocess import CalledProcessError

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed, TorchRuntimeError

from runner.contract.finding import telling_line, top_frame
from runner.worker.program.errors import MESSAGE_LIMIT, describe


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
    ],
)  # fmt: skip
def test_the_telling_line(message: str, line: str) -> None:
    assert telling_line(message) == line


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
