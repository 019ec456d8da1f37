"""The applications that torch's bisector counts: the operator of each graph node, and the line of the case that each
came from.

The bisector names an application by a node or an operator alone. Its number is the place in the order of calls of
``CompilerBisector.disable_subsystem``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field

from runner.worker.program.load import MODULE
from runner.worker.torch_private.bisector import watch_applications

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
    record = Applications()

    def note_line(subsystem: str, number: int, trace: str) -> None:
        line = line_of(trace)
        if line is not None:
            record.lines[key_of(subsystem, number)] = line

    watch_applications(record.operators.__setitem__, note_line)
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
