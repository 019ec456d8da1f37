"""Backends that are wrong about one operator each: what ``bench/reduce.py`` plants into long chains."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule as Graph
from torch.fx import Node

Function = Callable[..., Any]


def _changed(graph: Graph, change: Callable[[Graph, Node], None]) -> Function:
    for node in list(graph.graph.nodes):
        change(graph, node)
    graph.recompile()
    forward: Function = graph.forward
    return forward


def _named(node: Node, name: str) -> bool:
    return getattr(node.target, "__name__", node.target) == name


def _scaled_if(name: str) -> Function:
    """A compiler of backward graphs that scales every gradient where the graph holds the operator."""

    def compile_backward(graph: Graph, inputs: list[Any]) -> Any:
        wrong = any(name in str(node.target) for node in graph.graph.nodes)

        def run(*args: Any) -> Any:
            return [out * 1.5 if wrong and isinstance(out, torch.Tensor) else out for out in graph.forward(*args)]

        return make_boxed_func(run)

    return compile_backward


def _forward(graph: Graph, inputs: list[Any]) -> Any:
    return make_boxed_func(graph.forward)


wrong_gradient_of_sigmoid = aot_autograd(fw_compiler=_forward, bw_compiler=_scaled_if("sigmoid_backward"))
wrong_gradient_of_cumsum = aot_autograd(fw_compiler=_forward, bw_compiler=_scaled_if("cumsum"))


def lost_add(graph: Graph, inputs: list[Any]) -> Function:
    """``x.add_(y)`` changes a copy."""

    def change(_: Graph, node: Node) -> None:
        if node.op == "call_method" and node.target == "add_":
            node.target = "add"

    return _changed(graph, change)


def lost_setitem(graph: Graph, inputs: list[Any]) -> Function:
    """``x[i] = v`` does nothing."""

    def change(graph: Graph, node: Node) -> None:
        if node.target is operator.setitem:
            graph.graph.erase_node(node)

    return _changed(graph, change)


def dense_permute(graph: Graph, inputs: list[Any]) -> Function:
    """``torch.permute`` copies, so that its strides are others."""

    def permute(x: torch.Tensor, dims: Any) -> torch.Tensor:
        return x.permute(dims).contiguous()

    def change(_: Graph, node: Node) -> None:
        if node.op == "call_function" and _named(node, "permute"):
            node.target = permute

    return _changed(graph, change)


def lazy_contiguous(graph: Graph, inputs: list[Any]) -> Function:
    """``x.contiguous()`` copies nothing of the layout."""

    def change(_: Graph, node: Node) -> None:
        if node.op == "call_method" and node.target == "contiguous":
            node.target = "clone"

    return _changed(graph, change)
