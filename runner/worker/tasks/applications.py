"""The applications that torch's bisector counts: the operator of each graph node, and the line of the case that each came from.

The bisector names an application by a node or an operator alone. Its number is the place in the order of calls of
``CompilerBisector.disable_subsystem``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any

from torch.fx import traceback

from runner.worker.program.load import MODULE

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


@dataclass
class Applications:
    """``operators``: of graph nodes, by name. ``lines``: of the generated source, by ``key_of`` an application."""

    operators: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def key_of(subsystem: str, number: int) -> str:
    """Return the key of the ``number``-th application (from 0) of a subsystem."""
    return f"{subsystem} {number}"


def record_applications() -> Applications:
    """Record them from now on, in this process, which nothing can undo: call it in a copy."""
    from torch._inductor.compiler_bisector import CompilerBisector
    from torch._inductor.graph import GraphLowering

    record = Applications()
    lower, disable = GraphLowering.run_node, CompilerBisector.disable_subsystem
    nodes: list[Any] = []  # those that are lowered now, the innermost last

    def run_node(self: Any, node: Any) -> Any:
        if node.op == "call_function":
            record.operators[node.name] = str(node.target)
        nodes.append(node)
        try:
            return lower(self, node)
        finally:
            nodes.pop()

    def disable_subsystem(backend: str, subsystem: str, *more: Any, **options: Any) -> bool:
        number = CompilerBisector.get_system_counter(subsystem, increment=False)
        answer = bool(disable(backend, subsystem, *more, **options))
        if CompilerBisector.get_system_counter(subsystem, increment=False) > number:
            trace = ""
            if subsystem == "lowerings" and nodes:
                trace = nodes[-1].meta.get("stack_trace") or ""
            elif subsystem == "decomposition":  # while AOT traces the graph of Dynamo, node by node
                trace = traceback.get_current_meta().get("stack_trace") or ""
            line = line_of(trace)
            if line is not None:
                record.lines[key_of(subsystem, number)] = line
        return answer

    GraphLowering.run_node = run_node
    CompilerBisector.disable_subsystem = staticmethod(disable_subsystem)
    return record


def line_of(trace: str) -> int | None:
    """Return the innermost line of the case's own source in a stack that torch keeps with a node; None without one."""
    frames = _FRAME.findall(trace)
    if not frames:
        return None
    modules = [module for name, module in [*sys.modules.items()] if name.startswith(MODULE)]
    files = {getattr(module, "__file__", None) for module in modules}
    lines = [int(line) for file, line in frames if file in files]
    return lines[-1] if lines else None
