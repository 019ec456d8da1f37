"""torch's own bisector: the applications that it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import traceback

from runner.worker.torch_private.doors import Door

_UNASKED = "torch's bisector cannot be asked"
_BISECTOR = Door("torch._inductor.compiler_bisector:CompilerBisector", _UNASKED)
_DISABLE = Door("torch._inductor.compiler_bisector:CompilerBisector.disable_subsystem", _UNASKED)
_LOWER = Door(
    "torch._inductor.graph:GraphLowering.run_node", "operators and lines of what the bisector names are not known"
)


def watch_applications(
    note_operator: Callable[[str, str], object], note_application: Callable[[str, int, str], object]
) -> None:
    """Note graph nodes and applications from now on, in this process, which nothing can undo: call it in a copy.

    Args:
        note_operator: given the name of each node that Inductor lowers, and its operator.
        note_application: given the subsystem, the number (from 0) and the stack that torch keeps with the node, or nothing.
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
