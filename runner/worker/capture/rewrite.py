"""Calls of a graph that no case can hold, as public calls that compute the same."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

import torch
from torch.fx import GraphModule, Node

from runner.worker.torch_private import graphs

ELEMENTWISE = frozenset(
    [
        operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.eq, operator.ne, operator.lt,
        operator.le, operator.gt, operator.ge, operator.and_, operator.or_, operator.invert, torch.add, torch.sub,
        torch.mul, torch.div, torch.exp, torch.log, torch.sigmoid, torch.tanh, torch.maximum, torch.minimum,
    ]
)  # fmt: skip
"""Functions that compute each element of a batch from the same elements of their arguments."""


def make_public(graph: GraphModule) -> list[str]:
    """Rewrite nodes of the graph, whose ``forward`` stays as it was. Return what was rewritten, for people."""
    nodes = list(graph.graph.nodes)
    norms = [node for node in nodes if graphs.is_weight_norm(node.target)]
    regions = [region for region in _regions(nodes) if _is_elementwise(region)]
    if norms or regions:
        _ = graph.code  # a lazy module writes its forward now, and not after the nodes are others
    for node in norms:
        _write_norm(graph, node)
    for region in regions:
        _write_region(graph, region)
    notes = ["torch._weight_norm is written by torch.norm_except_dim: roundings may differ"] if norms else []
    count = f"{len(regions)} call{'s' if len(regions) > 1 else ''}"
    return notes + ([f"{count} of vmap: written as operators over the whole batch"] if regions else [])


def _write_norm(graph: GraphModule, node: Node) -> None:
    """Write ``v * (g / norm_except_dim(v, 2, dim))``, as torch itself computes it where it has no kernel."""
    value, scale, dim = (*node.args, node.kwargs.get("dim", 0))[:3]
    with graph.graph.inserting_before(node):
        norm = graph.graph.call_function(torch.norm_except_dim, (value, 2, dim))
        quotient = graph.graph.call_function(operator.truediv, (scale, norm))
        product = graph.graph.call_function(operator.mul, (value, quotient))
    for new in (norm, quotient, product):
        new.meta = {key: item for key, item in node.meta.items() if key != "example_value"}
    node.replace_all_uses_with(product)
    graph.graph.erase_node(node)


def _regions(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield the calls from the start of each outermost vmap to its end."""
    starts = []
    for place, node in enumerate(nodes):
        if graphs.is_vmap_start(node.target):
            starts.append(place)
        elif graphs.is_vmap_end(node.target) and starts:
            start = starts.pop()
            if not starts:
                yield list(nodes[start : place + 1])


def _is_elementwise(region: Sequence[Node]) -> bool:
    """Return whether the same calls over whole batches compute the same.

    So it is if each works element by element on tensors of one dtype, and those with a batch have as many dimensions.
    """
    batched: set[Node] = set()
    for node in region[1:-1]:
        tensors = [item for item in node.all_input_nodes if isinstance(_example(item), torch.Tensor)]
        if graphs.is_batch_end(node.target):
            if node.args[0] not in batched:
                return False
        elif graphs.is_batch_start(node.target):
            batched.add(node)
        elif node.target in ELEMENTWISE and len(tensors) == len(node.all_input_nodes) and tensors:
            own = {_example(item).dim() for item in tensors if item in batched}
            dims, dtypes = {_example(item).dim() for item in tensors}, {_example(item).dtype for item in tensors}
            if len(dtypes) > 1 or len(own) > 1 or (own and max(dims) > max(own)):
                return False
            batched.update([node] if own else [])
        else:
            return False
    return True


def _write_region(graph: GraphModule, region: Sequence[Node]) -> None:
    """Put the batch first where it begins, and where it belongs where it ends."""
    for node in (region[0], region[-1]):
        graph.graph.erase_node(node)
    for node in region[1:-1]:
        if graphs.is_batch_start(node.target):
            _move(graph, node, int(node.args[1]), 0)  # type: ignore[arg-type,unused-ignore]
        elif graphs.is_batch_end(node.target):
            _move(graph, node, 0, int(node.args[3]))  # type: ignore[arg-type,unused-ignore]


def _move(graph: GraphModule, node: Node, source: int, destination: int) -> None:
    value = node.args[0]
    if source != destination:
        with graph.graph.inserting_before(node):
            value = graph.graph.call_function(torch.movedim, (value, source, destination))
        value.meta = {key: item for key, item in node.meta.items() if key != "example_value"}
    node.replace_all_uses_with(value)  # type: ignore[arg-type,unused-ignore]
    graph.graph.erase_node(node)


def _example(node: Node) -> torch.Tensor:
    return node.meta.get("example_value")  # type: ignore[no-any-return,unused-ignore]
