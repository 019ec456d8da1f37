"""An FX graph of Dynamo as calls of the YAML format: names, arguments, contexts, functions. Nothing runs here."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from runner.contract.graphs import UnsayableError, arguments_of
from runner.worker.capture.names import operator_of, torch_name, without_private
from runner.worker.capture.plain import Arguments
from runner.worker.torch_private import graphs

TAKEN = frozenset(
    ["self", "torch", "nn", "F", "numpy", "operator", "dtype", "device", "super", *dir(torch.nn.Module())]
)
"""Names that neither inputs nor results may have."""

_GETITEM = ("operator.getitem", "operator.setitem", "operator.delitem")
_INDEX = re.compile(r"\._(?:modules|parameters|buffers)\[['\"]?(\w+)['\"]?\]|\[['\"]?(\w+)['\"]?\]|\.(\w+)")
_CALLS = ("call_function", "call_method", "call_module")


@dataclass(frozen=True, slots=True)
class ReadCall:
    """What the graph itself says of a call. ``operands`` are the nodes that it takes."""

    name: str
    operator: str
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    operands: tuple[Node, ...] = ()
    contexts: tuple[Any, ...] = ()
    module: tuple[str, ...] = ()
    source: str = ""
    fault: str = ""


class GraphReader:
    """Reads one graph. ``calls`` has the calls by node, ``names`` what inputs and results are called.

    ``sizes`` are inputs that are sizes of tensors, and ``unused`` those that nothing reads.
    """

    def __init__(self, graph: GraphModule, device: torch.device | None) -> None:
        """Read all of it."""
        self.graph = graph
        self.names: dict[Node, str] = {}
        self.sizes: dict[Node, str] = {}
        self.calls: dict[Node, ReadCall] = {}
        self._taken: set[str] = set()
        self._written: dict[Node, Any] = {}
        self._device = device
        nodes = list(graph.graph.nodes)
        self.inputs = [node for node in nodes if node.op == "placeholder"]
        self.constants = [node for node in nodes if node.op == "get_attr" and self._is_tensor(node)]
        for node in (*self.inputs, *self.constants):
            self._name(node, input_name(node))
        self._find_sizes()
        contexts: list[Any] = []
        for node in nodes:
            is_call = node.op in _CALLS and not graphs.is_without_effect(node.target)
            if is_call and not self._changes(node, contexts):
                self.calls[node] = self._read(node, tuple(entry for _, entry in contexts))
        output = next(node for node in nodes if node.op == "output")
        self.result = self._arguments().value(output.args[0])

    def is_used(self, node: Node) -> bool:
        """Return whether an input or a constant stands in the case."""
        return bool(node.users) and node not in self.sizes

    def constant(self, node: Node) -> Any:
        """Return what a node of the kind ``get_attr`` reads."""
        value: Any = self.graph
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value

    def _is_tensor(self, node: Node) -> bool:
        return isinstance(self.constant(node), torch.Tensor)

    def _name(self, node: Node, wish: str) -> str:
        name = wish if wish.isascii() and wish.isidentifier() else "x"
        name = name.strip("_") if name.startswith("__") or name == "_" else name
        if name in TAKEN or keyword.iskeyword(name) or not name or not name.isidentifier():
            name = f"{name}_" if name and f"{name}_".isidentifier() else "x"
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        self.names[node] = free
        self._written[node] = f"${free}"
        return free

    def _find_sizes(self) -> None:
        """Let each symbol that is the size of a tensor be written as that size."""
        tensors = {
            str(size): f"${{{self.names[node]}.shape[{place}]}}"
            for node in reversed(self.inputs)
            if isinstance(value := node.meta.get("example_value"), torch.Tensor)
            for place, size in reversed(list(enumerate(value.shape)))
            if isinstance(size, torch.SymInt)
        }
        for node in self.inputs:
            value = node.meta.get("example_value")
            if isinstance(value, torch.SymInt) and str(value) in tensors:
                self.sizes[node] = self._written[node] = tensors[str(value)]

    def _changes(self, node: Node, contexts: list[Any]) -> bool:
        """Return whether a call enters or leaves a context, which is kept."""
        target = node.target
        if graphs.is_grad_switch(target):
            contexts[:] = [pair for pair in contexts if pair[0] is not None]
            contexts.append((None, {"torch.set_grad_enabled": [node.args[0]]}))
        elif graphs.is_autocast_start(target):
            device, dtype, enabled, cache = (*node.args, None, None)[:4]
            keywords = {"device_type": device, "dtype": None if dtype is None else str(dtype), "enabled": enabled}
            if device == (self._device.type if self._device else None):
                keywords["device_type"] = "$device"
            if cache is not None:
                keywords["cache_enabled"] = cache
            contexts.append((node, {"torch.autocast": {k: v for k, v in keywords.items() if v not in (None, True)}}))
        elif graphs.is_autocast_end(target):
            contexts[:] = [pair for pair in contexts if pair[0] is not node.args[0]]
        else:
            return False
        return True

    def _arguments(self) -> Arguments:
        return Arguments(self._write, lambda: self._taken, self._device)  # type: ignore[arg-type,return-value]

    def _write(self, node: Node) -> Any:
        if node not in self._written:
            raise UnsayableError(f"it takes {node.name}, which is no tensor")
        return self._written[node]

    def _read(self, node: Node, contexts: tuple[Any, ...]) -> ReadCall:
        name, source, module = node.name, source_line(node), modules_of(node)
        try:
            operator, positional, keywords = self._call(node)
            fault = ""
        except UnsayableError as error:
            operator, positional, keywords, fault = torch_name(node), (), {}, str(error)
        operands = tuple(dict.fromkeys(n for n in node.all_input_nodes if n in self.names))
        return ReadCall(
            self._name(node, name), operator, positional, keywords, operands, contexts, module, source, fault
        )

    def _call(self, node: Node) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        if graphs.is_higher_order(node.target):
            return self._higher_order(node)
        operator, write = operator_of(node), self._arguments()
        args, kwargs = without_private(node.target, node.args, dict(node.kwargs))
        if node.target is getattr:
            args = args[:1]
        if operator in _GETITEM:
            first, index, *more = args
            is_tuple = isinstance(index, int) and not isinstance(index, bool)
            positional = (write.value(first), index if is_tuple else write.index(index), *map(write.value, more))
        else:
            positional = tuple(map(write.value, args))
        return operator, positional, {key: write.value(value) for key, value in kwargs.items()}

    def _higher_order(self, node: Node) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        write = self._arguments()
        if not graphs.is_checkpoint(node.target):
            raise UnsayableError("it takes a graph as an argument")
        body, *operands = node.args
        function, kept = self._function(body, operands)
        keywords = {key: write.value(value) for key, value in node.kwargs.items()}
        return "torch.utils.checkpoint.checkpoint", (function, *map(write.value, kept)), keywords

    def _function(self, body: Any, operands: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """Return a subgraph as a function over those operands that are no sizes, and these."""
        graph = self.constant(body) if isinstance(body, Node) and body.op == "get_attr" else None
        if not isinstance(graph, GraphModule):
            raise UnsayableError("its function is no graph")
        nodes = list(graph.graph.nodes)
        parameters = [node for node in nodes if node.op == "placeholder"]
        kept = []
        for node, operand in zip(parameters, operands, strict=True):
            written = self._arguments().value(operand)
            if isinstance(written, str) and written.startswith("${"):
                self._written[node] = written
            else:
                name = self.names.get(operand) if isinstance(operand, Node) else None
                kept.append((self._name(node, f"{name or node.name}_"), operand))
        steps: list[Any] = []
        for node in nodes:
            if node.op in _CALLS:
                operator, positional, keywords = self._call(node)
                step = {operator: arguments_of(positional, keywords)}
                steps.append({**step, "out": self._name(node, f"{node.name}_")} if node.users else step)
            elif node.op not in ("placeholder", "output"):
                raise UnsayableError("its function holds constants")
        output = next(node for node in nodes if node.op == "output")
        result = self._arguments().value(output.args[0])
        return {"$fn": {"args": [name for name, _ in kept], "chain": steps, "return": result}}, [v for _, v in kept]


def input_name(node: Node) -> str:
    """Return what an input is called: the last parts of what the model calls it."""
    parts = [part for part in re.split(r"\W+", origin_of(node)) if part]
    if (
        len(parts) > 1 and "]._" in f"{graphs.source_of(node)}"
    ):  # an attribute of the model, whose own name says nothing
        parts = parts[1:]
    short = [part for part in parts if part.isascii() and part != "self"]
    name = "_".join(short[-3:]) or node.name.strip("_")
    return name if name[0].isalpha() else f"x_{name}"


def origin_of(node: Node) -> str:
    """Return an input as the model names it: ``self.layer.weight``, or an argument."""
    text = graphs.source_of(node)
    match = re.match(r"[LG]\[['\"](\w+)['\"]\]", text)
    if match is None:
        return text
    parts = [next(filter(None, part)) for part in _INDEX.findall(text[match.end() :])]
    return ".".join([match[1], *parts])


def modules_of(node: Node) -> tuple[str, ...]:
    """Return the submodules around a call, from the outside: their path and class."""
    stack = node.meta.get("nn_module_stack") or {}
    return tuple(_module(path, kind) for path, kind in stack.values())


def _module(path: str, kind: Any) -> str:
    root = re.sub(r"^L\[['\"]\w+['\"]\]\.?", "", path)
    clean = ".".join(next(filter(None, part)) for part in _INDEX.findall(f".{root}"))
    return f"{clean} {getattr(kind, '__name__', str(kind).rpartition('.')[2])}".strip()


def source_line(node: Node) -> str:
    """Return where the model calls a node: file, line, and the line itself."""
    frames = list(_frames(node.meta.get("stack_trace") or ""))
    return frames[-1] if frames else ""


def _frames(trace: str) -> Iterator[str]:
    lines = trace.splitlines()
    for place, line in enumerate(lines):
        match = re.match(r'\s*File "(.+)", line (\d+), in ', line)
        if match:
            code = lines[place + 1].strip() if place + 1 < len(lines) else ""
            yield f"{os.path.basename(match[1])}:{match[2]}: {code}"
