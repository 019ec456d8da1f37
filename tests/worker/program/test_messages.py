"""What a program prints and of what it warns, in eager and compiled code."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import typing_extensions
from worker_jobs import oracles, passes, run, source

from runner.worker.program.messages import heard

DEFINITIONS = """
import logging, pprint, sys, time, warnings
class Own: pass
def say(*words): print(*words)
@torch.compiler.disable
def say_outside(*words): print(*words, sep="-")
@torch.library.custom_op("messages::echo", mutates_args=())
def echo(x: torch.Tensor) -> torch.Tensor:
    print("echo")
    return x + 1
@echo.register_fake
def _(x):
    print("traced")
    return torch.empty_like(x)
"""


def record_of(body: str, by: str) -> dict[str, Any]:
    """The record of a body that has the number ``by``: 1 in eager, 2 in compiled code, or one of them in both."""
    number = "2 if torch.compiler.is_compiling() else 1" if by == "differs" else by
    return run(source(f"by = {number}\n{body}\nreturn x * 2", definitions=DEFINITIONS), "eager")


PRINTS = [
    ("print('by', by)", "stdout"),
    ("print('a' if by == 1 else 'b'); print('b' if by == 1 else 'a')", "stdout"),
    ("by == 1 and print('x')", "stdout"),
    ("by == 2 and print('x')", "stdout"),
    ("print(by, end=''); print()", "stdout"),
    ("print(by, x.shape, [by, by])", "stdout"),
    ("print(Own(), by)", "stdout"),
    ("say(by)", "stdout"),
    ("say_outside(by)", "stdout"),
    ("sys.stdout.write(f'{by}')", "stdout"),
    ("print(by, file=sys.stderr)", "stderr"),
    ("print(by); print(3, file=sys.stderr); print(4)", "stdout"),
    ("pprint.pprint({'by': by})", "stdout"),
]


@pytest.mark.parametrize(("body", "stream"), PRINTS)
def test_what_a_program_prints_is_compared_in_order(body: str, stream: str) -> None:
    record = record_of(body, "differs")
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("print", stream)], record
    assert passes(record_of(body, "1")) and passes(record_of(body, "2"))


@pytest.mark.parametrize(
    "body",
    ["warnings.warn('by %d' % by)", "by == 1 and warnings.warn('x')", "warnings.warn('x', (UserWarning, FutureWarning)[by - 1])"],
)  # fmt: skip
def test_what_a_program_warns_of_is_compared(body: str) -> None:
    record = record_of(body, "differs")
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("warning", "warning")], record
    assert passes(record_of(body, "1")) and passes(record_of(body, "2"))


@pytest.mark.parametrize(
    ("body", "backend"),
    [
        ("print(x * x.exp(), x.sum().item(), {'a': 1e-3 / 3})", "aot_eager"),
        ("print(x * self.p)", "aot_eager"),
        ("x = echo(x)", "aot_eager"),
        ("torch.nn.functional.mse_loss(x, torch.ones(1, 5))", "eager"),
        ("import numpy; numpy.log(numpy.float32(-1) * x.abs().numpy())", "eager"),
        ("logging.getLogger('torch.mine').info('x')", "eager"),
    ],
)
def test_a_healthy_program_says_the_same(body: str, backend: str) -> None:
    init = "self.p = torch.nn.Parameter(torch.ones(5))"
    record = run(source(f"{body}\nreturn x * 2", init=init, definitions=DEFINITIONS), backend)
    assert passes(record), record


def test_what_two_eager_runs_say_differently_is_not_compared() -> None:
    record = record_of("print(time.time_ns(), by)", "differs")
    assert passes(record) and "messages: not compared (two eager runs print or warn differently)" in record["notes"]


def test_a_case_may_ignore_it() -> None:
    body = "by = 2 if torch.compiler.is_compiling() else 1\nprint(by)\nreturn x * 2"
    assert oracles(run(source(body), "eager", ignore=["print"])) == []


def test_streams_and_warnings_are_as_before_after_a_run() -> None:
    streams, show = (sys.stdout, sys.stderr), warnings.showwarning
    with heard("somewhere", ()) as messages, pytest.raises(ValueError, match="end"):
        print("heard")
        raise ValueError("end")
    assert (sys.stdout, sys.stderr) == streams and warnings.showwarning is show
    assert messages.take() == (("stdout", "heard\n"),) and messages.take() == ()


def test_a_warning_is_heard_again_in_the_next_run() -> None:
    for _ in range(2):
        with heard("somewhere", ()) as messages:
            for number in (1, 1):
                warnings.warn(f"number {number}", stacklevel=1)
            assert [text for _, text in messages.take()] == ["UserWarning: number 1"]


@pytest.mark.parametrize(("folder", "is_heard"), [(Path(torch.__file__).parent, False), (Path(__file__).parent, True)])
def test_a_deprecated_function_warns_for_its_caller(folder: Path, is_heard: bool) -> None:
    text = "import warnings\n@deprecated('old')\ndef old(): warnings.warn('inside')\ndef call(): old()"
    names: dict[str, Any] = {"deprecated": typing_extensions.deprecated, "__name__": "planted"}
    exec(compile(text, str(folder / "planted.py"), "exec"), names)
    with heard("case", ()) as messages:
        names["call"]()
    said = [message.text for message in messages.take()]
    assert said == (["UserWarning: inside"] if is_heard else [])
