"""torch's minifiers: what their scripts are made with and how they try a graph, and mends of their defects.

The mends change torch for the rest of the process. Each and its cause: ``docs/minifying.md``.
"""

from __future__ import annotations

from typing import Any

from runner.worker.torch_private.doors import Door

_INDUCTOR = Door("torch:_TorchCompileInductorWrapper", "mode and options of Inductor do not reach the minifier")
_FLAGS = Door("torch._inductor.config", "mode and options of Inductor do not reach the minifier")
RUN = Door("torch._dynamo.debug_utils:run_fwd_maybe_bwd", "crashes are not minified after Dynamo")
"""Runs what a backend gives as the minifier after Dynamo does: a forward, and a backward where it can be."""
TESTS = Door("torch._dynamo.repro.after_aot:ACCURACY_FAILS", "the minifier after AOT loses the inputs of its graphs")
"""The tests of the minifier after AOT: functions of a graph, inputs and ``check_str``. ``""`` is for errors."""
_LINES = Door("torch._dynamo.debug_utils:InputWriter.lines", "scripts of graphs without inputs are no valid Python")
_METRICS = Door("torch._dynamo.metrics_context:MetricsContext.update", "the minifier after Dynamo runs no backward")


def set_inductor(mode: Any, options: Any, dynamic: Any) -> None:
    """Set what ``torch.compile`` would give to Inductor as flags: scripts know a name alone, and set all flags.

    Raises:
        ImportError: torch lacks a name.
    """
    flags = _FLAGS.need()
    for flag, value in _INDUCTOR.need()(mode, options, dynamic).config.items():
        setattr(flags, flag, value)


def write_bodies() -> None:
    """Make the scripts of a graph without inputs valid Python: their ``load_args`` has no body."""
    lines = _LINES.need()

    def with_body(self: Any) -> list[str]:
        body: list[str] = lines(self)
        return body if any(line.startswith(" ") for line in body) else [body[0], "    pass", *body[1:]]

    _LINES.put(with_body)


def allow_backward() -> None:
    """Allow a backward to be compiled while a forward is.

    The minifier after Dynamo runs both inside the compilation of the forward. Each sets its own ``is_forward``, and
    torch 2.13 takes the second for an error ("have already been set in the current context").
    """
    update = _METRICS.need()

    def overwriting(self: Any, values: dict[str, Any], overwrite: bool = False) -> None:
        try:
            update(self, values, True)
        except TypeError:  # torch 2.6 knows no second argument, and has no such error
            update(self, values)

    _METRICS.put(overwriting)
