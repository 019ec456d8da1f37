"""Which parts of the compiler one compiled run reaches: decompositions, lowerings, calls of kernels made elsewhere,
passes, and lines.

torch says so itself: its structured trace has the graphs and the code, and its counters name the passes that changed
something. Of decompositions neither has a record, so that the function of ``torch.fx`` that applies them is watched.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from runner.contract.lines import text_of
from runner.worker.torch_private import counters
from runner.worker.torch_private.logs import Event, Trace, tracing
from runner.worker.torch_private.operator_database import noting_decompositions

LOWERED = "inductor_post_grad_graph"
"""The graph whose operators Inductor lowers."""
CODE = "inductor_output_code"
TRACED = ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
"""Graphs of ATen operators, where Dynamo and AOTAutograd have done their part."""

_OPERATOR = re.compile(r"\btorch\.ops\.(\w+\.\w+)")
_CALLED = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.(?!inductor_prims)\w+\.\w+)(?=\(|\.\w+\()")

_TORCH = Path(torch.__file__).parent
_FOLDERS = tuple(f"{_TORCH / name}/" for name in ("_functorch", "_inductor"))
"""Those whose lines are recorded."""
_PROLOGUE = {
    dis.opmap[name]
    for name in ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP")
    if name in dis.opmap
}
"""Instructions that a function begins with. The line of ``def`` does not run, where it has no others."""


class Reach:
    """What was reached so far. ``names`` are ``KIND NAME``: ``lowering aten.relu``."""

    def __init__(self, has_lines: bool = False) -> None:
        """Nothing yet. Lines are recorded where asked for: they double the time of a compilation."""
        self.names: set[str] = set()
        self._has_lines = has_lines

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note what compilations reach while the context lasts. It changes nothing that is compiled."""
        trace = Trace(lambda name: name in (LOWERED, CODE, *TRACED), self._read)
        lines: dict[str, set[int]] = {}
        with (
            tracing(trace),
            noting_decompositions(lambda name: self.names.add(f"decomposition {name}")),
            _lines(lines) if self._has_lines else contextlib.nullcontext(),
        ):
            yield
        self.names |= {text_of(_short(file), numbers) for file, numbers in lines.items() if numbers}
        self.names |= {f"pass {name}" for name, count in (counters.of("inductor") or {}).items() if count}

    def _read(self, event: Event) -> None:
        if event.name == CODE:
            self.names |= {f"fallback {name.removeprefix('torch.ops.')}" for name in _CALLED.findall(event.payload)}
            return
        kind = "lowering" if event.name == LOWERED else "operator"
        self.names |= {f"{kind} {name}" for name in _OPERATOR.findall(event.payload)}


@contextlib.contextmanager
def _lines(lines: dict[str, set[int]]) -> Iterator[None]:
    """Add the lines of torch's folders that run in this thread, by file.

    A debugger's own function is put back afterwards.
    """
    unwatched: set[str] = set()

    def enter(frame: types.FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename in unwatched or not code.co_flags & inspect.CO_NEWLOCALS:
            return None
        if not code.co_filename.startswith(_FOLDERS):
            unwatched.add(code.co_filename)
            return None
        add = lines.setdefault(code.co_filename, set()).add

        def step(frame: types.FrameType, event: str, argument: object) -> Callable[..., Any]:
            if event == "line":
                add(frame.f_lineno)
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def _short(file: str) -> str:
    return Path(file).relative_to(_TORCH).as_posix()


def line_table() -> list[str]:
    """Return all lines of torch's folders that are in functions.

    Others run when torch is imported, which nobody watches.
    """
    texts = []
    for file in sorted(file for folder in _FOLDERS for file in Path(folder).rglob("*.py")):
        try:
            module = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        except SyntaxError:  # of a newer Python
            continue
        if numbers := {number for code in _functions(module) for number in _lines_of(code)}:
            texts.append(text_of(_short(str(file)), numbers))
    return texts


def _functions(code: types.CodeType) -> Iterator[types.CodeType]:
    if code.co_flags & inspect.CO_NEWLOCALS:
        yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _functions(constant)


def _lines_of(code: types.CodeType) -> Iterator[int]:
    opcodes = code.co_code
    for begin, end, line in code.co_lines():
        if line is not None and not (line == code.co_firstlineno and _PROLOGUE.issuperset(opcodes[begin:end:2])):
            yield line
