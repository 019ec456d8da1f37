"""Which parts of the compiler one compiled run reaches: decompositions, lowerings, calls of kernels made elsewhere, and passes.

torch says so itself: its structured trace has the graphs and the code, and its counters name the passes that changed something.
Of decompositions neither has a record, so that the function of ``torch.fx`` that applies them is watched.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.utils import counters
from torch.fx.experimental import proxy_tensor

from runner.worker.case.structured_trace import Event, Trace, tracing

LOWERED = "inductor_post_grad_graph"
"""The graph whose operators Inductor lowers."""
CODE = "inductor_output_code"
TRACED = ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
"""Graphs of ATen operators, where Dynamo and AOTAutograd have done their part."""

_OPERATOR = re.compile(r"\btorch\.ops\.(\w+\.\w+)")
_CALLED = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.(?!inductor_prims)\w+\.\w+)(?=\(|\.\w+\()")
_APPLY = "maybe_handle_decomp"


class Reach:
    """What was reached so far. ``names`` are ``KIND NAME``: ``lowering aten.relu``."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.names: set[str] = set()

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note what compilations reach while the context lasts. It changes nothing that is compiled."""
        trace = Trace(lambda name: name in (LOWERED, CODE, *TRACED), self._read)
        with tracing(trace), _decompositions(lambda name: self.names.add(f"decomposition {name}")):
            yield
        self.names |= {f"pass {name}" for name, count in counters["inductor"].items() if count}

    def _read(self, event: Event) -> None:
        if event.name == CODE:
            self.names |= {f"fallback {name.removeprefix('torch.ops.')}" for name in _CALLED.findall(event.payload)}
            return
        kind = "lowering" if event.name == LOWERED else "operator"
        self.names |= {f"{kind} {name}" for name in _OPERATOR.findall(event.payload)}


@contextlib.contextmanager
def _decompositions(note: Callable[[str], object]) -> Iterator[None]:
    """Give ``note`` the name of each operator that is decomposed, such as ``aten.gelu``."""
    apply: Callable[..., Any] = getattr(proxy_tensor, _APPLY)

    def watched(mode: Any, op: Any, *rest: Any) -> Any:
        result = apply(mode, op, *rest)
        if result is not NotImplemented:
            note(_name(op))
        return result

    setattr(proxy_tensor, _APPLY, watched)
    try:
        yield
    finally:
        setattr(proxy_tensor, _APPLY, apply)


def _name(op: Any) -> str:
    return str(op).rpartition(".")[0]  # without the overload


def tables() -> dict[str, list[str]]:
    """Return the names of all decompositions that Inductor asks for, and of all operators that it lowers."""
    decompositions = importlib.import_module("torch._inductor.decomposition").select_decomp_table()
    lowerings = importlib.import_module("torch._inductor.lowering").lowerings
    return {
        "decomposition": sorted({_name(op) for op in decompositions}),
        "lowering": sorted({_name(op) for op in lowerings if hasattr(op, "_schema")}),
    }
