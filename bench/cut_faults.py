"""A backend that runs each graph as it is, but for one operator, or for two operators in one graph.

``bench/cut.py`` writes a module for each fault: ``compile_graph = spoiled("value", ["gelu_3"])``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from runner.worker.program.cut import Cutter

Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def as_it_is(graph: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return what runs a graph in eager."""
    return graph.forward


def listing(path: str) -> Compile:
    """Return a backend that writes to ``path`` the calls of all graphs: name, and what can be spoiled about them."""
    cutter = Cutter(as_it_is, ())

    def compile_graph(graph: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        run = cutter(graph, examples)
        values = {node.name: node.meta.get("example_value") for node in graph.graph.nodes}
        calls = [{"name": call.name, "kinds": _kinds(values.get(call.name))} for call in cutter.calls]
        Path(path).write_text(json.dumps(calls), encoding="utf-8")
        return run

    return compile_graph


def _kinds(value: Any) -> list[str]:
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return ["exception", "hang"]
    is_plane = sum(size > 1 for size in value.shape) > 1
    return ["exception", "hang", "value", "pair", *["gradient"] * value.requires_grad, *["stride"] * is_plane]


def spoiled(kind: str, names: Sequence[str]) -> Compile:
    """Return a backend with a fault of the last of these nodes, in graphs that hold all of them."""

    def compile_graph(graph: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        nodes = {node.name: node for node in graph.graph.nodes if node.op != "placeholder"}
        if not nodes.keys() >= {*names}:
            return graph.forward
        if kind == "exception":
            raise NotImplementedError("this operator is not supported")
        if kind == "hang":
            time.sleep(10_000)
        node = nodes[names[-1]]
        with graph.graph.inserting_after(node):
            wrong = graph.graph.call_function(_CHANGES[kind], (node,))
        node.replace_all_uses_with(wrong, delete_user_cb=lambda user: user is not wrong)
        graph.recompile()
        return graph.forward

    return compile_graph


def _moved(value: torch.Tensor) -> torch.Tensor:
    return value + 0.5 * torch.cos(torch.arange(value.numel(), dtype=value.dtype)).view(value.shape)


def _turned(value: torch.Tensor) -> torch.Tensor:
    """Return the same values, the first dimension fastest."""
    order = [*range(value.dim())][::-1]
    turned = value.permute(order).contiguous().permute(order)
    return value.contiguous() if turned.stride() == value.stride() else turned


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 1.5 + 0.1


def _scaled(value: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _Scaled.apply(value)
    return result


_CHANGES = {"value": _moved, "pair": _moved, "stride": _turned, "gradient": _scaled}
