"""torch's bisector, which switches off parts of a backend one after the other, and its minifiers.

The mends of the minifiers change torch for the rest of the process. Each and its cause: ``docs/minifying.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch.fx import traceback

from runner.worker.torch_private.doors import Door

_UNASKED = "torch's bisector cannot be asked"
_BISECTOR = Door("torch._inductor.compiler_bisector:CompilerBisector", _UNASKED)
_SETTING = Door("torch._inductor.compiler_bisector:ConfigChange", _UNASKED)
_DISABLE = Door("torch._inductor.compiler_bisector:CompilerBisector.disable_subsystem", _UNASKED)
_LOWER = Door(
    "torch._inductor.graph:GraphLowering.run_node", "operators and lines of what the bisector names are not known"
)
_APPLIED = Door("torch._inductor.compiler_bisector:call_counter_debug_info", "names of applications get lost", ("2.6",))
"""Where torch 2.6 keeps in the process what later versions keep in files."""


class Question(NamedTuple):
    """What the bisector asks about: a subsystem of a backend (None: all as it is) in a state: ``test_disable``."""

    backend: str | None
    subsystem: str | None
    state: str | None


class Setting(NamedTuple):
    """A subsystem that is a setting: of which configuration, the field, and the value that switches it off."""

    config: str
    field: str
    value: Any


def bisect(question: Callable[[], bool]) -> Any:
    """Return what the bisector finds: ``backend``, ``subsystem``, ``bisect_number`` and ``debug_info``; or None.

    ``question`` answers whether all is right at the moment. Raises what it raises, and RuntimeError or AssertionError
    where the bisector gives up.
    """
    return _BISECTOR.need().do_bisect(question)


def current_question() -> Question:
    """Return what the bisector asks now."""
    bisector = _BISECTOR.need()
    backend, subsystem = bisector.get_backend(), bisector.get_subsystem()
    state = bisector.get_run_state(backend, subsystem) if backend and subsystem else None
    return Question(backend, subsystem, state)


def setting_of(backend: str, subsystem: str) -> Setting | None:
    """Return the setting that a subsystem is; None where it is a part of the compiler."""
    part = _BISECTOR.need().get_subsystem_object(backend, subsystem)
    if not isinstance(part, _SETTING.need()):
        return None
    return Setting(part.config_name, part.config_field, part.config_value)


def applied() -> Mapping[int, str]:
    """Return the names of applications that this process keeps, by their numbers."""
    return _APPLIED.now() or {}


def add_applied(names: Mapping[int, str]) -> None:
    """Keep names of applications that another process had."""
    if (known := _APPLIED.now()) is not None:
        known.update(names)


def watch_applications(
    note_operator: Callable[[str, str], object], note_application: Callable[[str, int, str], object]
) -> None:
    """Note graph nodes and applications from now on, in this process, which nothing can undo: call it in a copy.

    Args:
        note_operator: given the name of each node that Inductor lowers, and its operator.
        note_application: given the subsystem, the number (from 0), and the stack that torch keeps with the node or "".
    """
    lower, disable, bisector = _LOWER.need(), _DISABLE.need(), _BISECTOR.need()
    nodes: list[Any] = []  # those that are lowered now, the innermost last

    def run_node(self: Any, node: Any) -> Any:
        if node.op == "call_function":
            note_operator(node.name, str(node.target))
        nodes.append(node)
        try:
            return lower(self, node)
        finally:
            nodes.pop()

    def disable_subsystem(backend: str, subsystem: str, *more: Any, **options: Any) -> bool:
        number = bisector.get_system_counter(subsystem, increment=False)
        answer = bool(disable(backend, subsystem, *more, **options))
        if bisector.get_system_counter(subsystem, increment=False) > number:
            trace = ""
            if subsystem == "lowerings" and nodes:
                trace = nodes[-1].meta.get("stack_trace") or ""
            elif subsystem == "decomposition":  # while AOT traces the graph of Dynamo, node by node
                trace = traceback.get_current_meta().get("stack_trace") or ""
            note_application(subsystem, number, trace)
        return answer

    _LOWER.put(run_node)
    _DISABLE.put(staticmethod(disable_subsystem))


# --- the minifiers ---

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
