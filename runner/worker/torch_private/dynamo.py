"""What Dynamo shows to developers: when it compiles, its graphs, breaks, limits, recordings and exceptions."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator
from time import monotonic
from types import CodeType
from typing import Any

import torch._dynamo
from torch.fx import GraphModule

from runner.worker.torch_private.doors import Door

Function = Callable[..., Any]

_COMPILE = Door("torch._dynamo.output_graph:OutputGraph.call_user_compiler", "graphs of Dynamo are not seen")
EXPLAIN = Door("torch._dynamo:explain", "calls are not explained")
"""Takes a model, and returns what explains a call of it."""
RECORDING = Door("torch._dynamo.replay_record:ExecutionRecord", "recordings of Dynamo are not read")
"""The class of recordings. Its ``load`` reads a pickle."""
REPLAY = Door("torch._dynamo:replay", "recordings of Dynamo are not replayed")
"""Lets Dynamo compile the frame of a recording, given its file."""
_RECOMPILE_LIMIT = Door("torch._dynamo.config:recompile_limit", "the limit has its older name", ("2.13",))

_SKIP = Door("torch._dynamo.decorators:skip_code", "Dynamo looks at functions that watch a compilation")

OPERATORS = "torch._ops"
"""Where the classes of operators are: an overload, such as aten.add.Tensor, or a higher-order operator."""
_LIMITS_LOG = "torch._dynamo.convert_frame"
_BREAKS_LOGS = ("torch._dynamo.convert_frame.__graph_breaks", "torch._dynamo.exc.__graph_breaks")
_LIMIT_HIT = "torch._dynamo hit config."
"""How the warning begins that a frame has been compiled too often (``torch/_dynamo/convert_frame.py``, 2.6 to 2.13)."""


def leave_out(*functions: Function) -> None:
    """Let Dynamo never look at calls of these functions and of those defined in them: Python calls them while Dynamo
    watches all calls."""
    pending = [inspect.unwrap(function).__code__ for function in functions]
    while pending:
        code = pending.pop()
        _SKIP.call(code)
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


@contextlib.contextmanager
def wrapping_compilations(wrap: Callable[[GraphModule, CodeType, Callable[[], Function]], Function]) -> Iterator[None]:
    """Let ``wrap`` compile each graph while the block lasts. Raises ImportError if torch has no place for that.

    A hook and not a backend of our own: the backend stays what it is, with its mode and options.

    Args:
        wrap: given a graph that the backend has not seen, the code of its frame, and what lets the backend compile it.
    """
    original = _COMPILE.need()

    def call_user_compiler(self: Any, graph: GraphModule, *args: Any, **kwargs: Any) -> Function:
        return wrap(graph, self.root_tx.f_code, lambda: original(self, graph, *args, **kwargs))

    with _COMPILE.replaced(call_user_compiler):
        yield


@contextlib.contextmanager
def logging_breaks() -> Iterator[None]:
    """Turn the log of breaks on: on 2.6 the trace holds some breaks that end a whole frame only then."""
    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, _BREAKS_LOGS):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.DEBUG)
        yield


@contextlib.contextmanager
def hearing_limits(note: Callable[[Any, Any, Any, Any], object]) -> Iterator[None]:
    """Give ``note`` each hit of a limit while the block lasts: the flag, its value, the frame in words, the reason."""

    def emit(record: logging.LogRecord) -> None:
        arguments = record.args
        if str(record.msg).startswith(_LIMIT_HIT) and isinstance(arguments, tuple) and len(arguments) >= 4:
            note(*arguments[:4])

    listener = logging.Handler(logging.WARNING)
    listener.emit = emit  # type: ignore[method-assign]
    warnings = logging.getLogger(_LIMITS_LOG)
    warnings.addHandler(listener)
    try:
        yield
    finally:
        warnings.removeHandler(listener)


def compilation_limits() -> tuple[str, str]:
    """Return the names of the flags that limit compilations of a frame, which torch 2.6 has under other names."""
    kind = "cache_size_limit" if _RECOMPILE_LIMIT.now() is None else "recompile_limit"
    return f"torch._dynamo.config.{kind}", f"torch._dynamo.config.accumulated_{kind}"


class CompileWatch:
    """While the block lasts, says when torch begins to compile and how many seconds it has compiled.

    ``torch._dynamo.reset()`` forgets the callbacks, so a block begins after it. torch 2.6 and 2.7 call them for each
    frame that is compiled within another one.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        """Keep ``send``, which is given ``{"compiling": None}`` and ``{"compiling": seconds}`` in turn."""
        self.seconds = 0.0
        self._send, self._depth, self._since = send, 0, 0.0

    def __enter__(self) -> CompileWatch:
        """Register with torch."""
        torch._dynamo.callback_handler.register_start_callback(self._start)
        torch._dynamo.callback_handler.register_end_callback(self._end)
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave torch's lists, as far as it has not forgotten them."""
        handler = torch._dynamo.callback_handler
        if self._start in handler.start_callbacks:
            handler.remove_start_callback(self._start)
        if self._end in handler.end_callbacks:
            handler.remove_end_callback(self._end)

    def _start(self, *_: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = monotonic()  # bound early: the case may have replaced it, and its code runs now
            self._send({"compiling": None})

    def _end(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += monotonic() - self._since
            self._send({"compiling": self.seconds})


_GRAPH_BREAK = "a graph break where none is allowed is a failure of the compiler"
_RUNTIME = Door(
    "torch._dynamo.exc:TorchRuntimeError", "an error of the model that Dynamo wraps is a failure of the compiler"
)
_UNSUPPORTED = Door("torch._dynamo.exc:Unsupported", _GRAPH_BREAK)
_LIMIT = Door("torch._dynamo.exc:FailOnRecompileLimitHit", "a recompilation too many is a failure of the compiler")
_RECOMPILE = Door("torch._dynamo.exc:RecompileError", "a recompilation that is forbidden is a failure of the compiler")

PACKAGES = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")
"""How the names of all that belongs to the compiler begin."""
RUNTIME_ERROR = _RUNTIME.dotted
UNSUPPORTED = _UNSUPPORTED.dotted
RECOMPILE_ERRORS = frozenset({_LIMIT.dotted, _RECOMPILE.dotted})
for _door in (_RUNTIME, _UNSUPPORTED, _LIMIT, _RECOMPILE):
    _door.find()  # what is missing is said where any error is recorded
