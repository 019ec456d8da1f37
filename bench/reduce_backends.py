"""Backends that are wrong about one operator each: what ``bench/reduce.py`` plants into long chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule as Graph

Function = Callable[..., Any]
Backend = Callable[[Graph, list[Any]], Function]


def replaced(name: str, target: Any) -> Backend:
    """Return a backend that calls ``target`` in place of the operators of this name; None: it leaves them out."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        for node in [*graph.graph.nodes]:
            if node.op.startswith("call") and getattr(node.target, "__name__", node.target) == name:
                if target is None:
                    graph.graph.erase_node(node)
                else:
                    node.op, node.target = "call_function" if callable(target) else node.op, target
        graph.recompile()
        forward: Function = graph.forward
        return forward

    return backend


def scaled_gradient(name: str) -> Backend:
    """Return a backend that scales every gradient where the backward graph holds the operator."""

    def compile_backward(graph: Graph, inputs: list[Any]) -> Any:
        factor = 1.5 if any(name in str(node.target) for node in graph.graph.nodes) else 1.0

        def run(*args: Any) -> Any:
            return [out * factor if isinstance(out, torch.Tensor) else out for out in graph.forward(*args)]

        return make_boxed_func(run)

    backend: Backend = aot_autograd(
        fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward), bw_compiler=compile_backward
    )
    return backend


wrong_gradient_of_sigmoid = scaled_gradient("sigmoid_backward")
wrong_gradient_of_cumsum = scaled_gradient("cumsum")
lost_add = replaced("add_", "add")  # x.add_(y) changes a copy
lost_setitem = replaced("setitem", None)
dense_permute = replaced("permute", lambda x, dims: x.permute(dims).contiguous())  # the strides are others
lazy_contiguous = replaced("contiguous", "clone")  # keeps the layout
