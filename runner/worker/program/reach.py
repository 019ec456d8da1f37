"""Which parts of the compiler one compiled run reaches: decompositions, lowerings, calls of kernels made elsewhere,
constructs of generated code, passes, and lines.

torch says so itself: its structured trace has the graphs and the code, and its counters name the passes that changed
something. Of decompositions neither has a record, so that the function of ``torch.fx`` that applies them is watched.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator

from runner.worker.program.generated_code import constructs_of
from runner.worker.program.lines import Sources, recording, texts_of
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


class Reach:
    """What was reached so far. ``names`` are ``KIND NAME``: ``lowering aten.relu``."""

    def __init__(self, has_lines: bool = False, packages: Collection[str] = ()) -> None:
        """Nothing yet. Lines are recorded where asked for, those of the backend's ``packages`` too."""
        self.names: set[str] = set()
        self._sources = Sources.of(packages) if has_lines else None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note what compilations reach while the context lasts. It changes nothing that is compiled."""
        trace = Trace(lambda name: name in (LOWERED, CODE, *TRACED), self._read)
        with (
            tracing(trace),
            noting_decompositions(lambda name: self.names.add(f"decomposition {name}")),
            self._recording(),
        ):
            yield
        self.names |= {f"pass {name}" for name, count in (counters.of("inductor") or {}).items() if count}

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        if self._sources is None:
            yield
            return
        with recording(self._sources) as lines:
            yield
        self.names |= texts_of(self._sources, lines)

    def _read(self, event: Event) -> None:
        if event.name == CODE:
            self.names |= {f"fallback {name.removeprefix('torch.ops.')}" for name in _CALLED.findall(event.payload)}
            self.names |= {f"construct {name}" for name in constructs_of(event.payload)}
            return
        kind = "lowering" if event.name == LOWERED else "operator"
        self.names |= {f"{kind} {name}" for name in _OPERATOR.findall(event.payload)}
