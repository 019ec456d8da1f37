"""A backend for ``torch.compile`` that runs each graph as it is, and keeps what it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Interpreter, Node

from runner.contract.graphs import Break, Call, Capture, Graph, GraphInput, Operand, Role
from runner.worker.capture import measure
from runner.worker.capture.reader import GraphReader, ReadCall, origin_of
from runner.worker.capture.rewrite import make_public
from runner.worker.torch_private import graphs
from runner.worker.torch_private.doors import absences

Keep = Callable[[str, torch.Tensor, Role], tuple[str, str]]
"""Keeps the values of an input: given its name, returns the file and the key that hold them, or empty texts."""


def keep_nothing(name: str, value: torch.Tensor, role: Role) -> tuple[str, str]:
    """Keep no values."""
    return "", ""


@dataclass(frozen=True)
class CompilerSettings:
    """What the compiler of a model is given: ``compile`` and ``config`` as a case has them, and what no case keeps."""

    compile: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


class Recorder:
    """Records the graphs of one model. ``torch.compile(model, backend=recorder)`` and a call of it fill it.

    The first call of a graph is also what measures its tensors; later calls run the graph as it is.
    """

    counted: ClassVar[dict[str, int]] = {}
    """The graph breaks of this process that a recorder has taken for its own: torch counts them for all of them."""

    def __init__(
        self, model: str, keep: Keep = keep_nothing, settings: Callable[[], CompilerSettings] = CompilerSettings
    ) -> None:
        """Record nothing yet.

        Args:
            model: what people call it.
            keep: keeps values of inputs.
            settings: returns what the compiler of the model is given.
        """
        self.seconds = 0.0
        self.model, self._keep, self._settings = model, keep, settings
        self._graphs: list[Graph] = []
        self._breaks: dict[tuple[str, str], None] = {}
        self._notes: dict[str, None] = {}
        self._count = 0
        self._count_breaks(keep=False)

    def __call__(self, graph: GraphModule, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """Return what runs a graph. Its first call is recorded."""
        start = time.perf_counter()
        reason, place = graphs.end_of(graph)
        if reason:
            self._breaks[reason, place] = None
        self._count_breaks()
        name = f"graph_{self._count}"
        self._count += 1
        self._notes.update(dict.fromkeys(make_public(graph)))
        reader = GraphReader(graph, _device(examples))
        self.seconds += time.perf_counter() - start
        is_recorded = False

        def run(*arguments: Any) -> Any:
            nonlocal is_recorded
            if is_recorded:
                return graph.forward(*arguments)
            is_recorded = True
            return self._record(name, reader, arguments)

        return run

    def capture(self) -> Capture:
        """Return all that was recorded so far."""
        told = {reason.split("\n")[0] for reason, place in self._breaks if place}
        breaks = tuple(Break(*pair) for pair in self._breaks if pair[1] or pair[0].split("\n")[0] not in told)
        notes = (*self._notes, *absences())
        return Capture(self.model, tuple(self._graphs), breaks, notes, torch.__version__, self.seconds)

    def take_refusals(self) -> None:
        """Without a graph, take the breaks that no recorder has taken: Dynamo refuses a frame before any graph."""
        if not self._count:
            counts = graphs.counted_breaks().items()
            self._breaks |= {(reason, ""): None for reason, n in counts if n > Recorder.counted.get(reason, 0)}

    def _count_breaks(self, keep: bool = True) -> None:
        """Take the breaks since any recorder was last asked for those of this model: some end a frame, not a graph."""
        for reason, count in graphs.counted_breaks().items():
            if keep and count > Recorder.counted.get(reason, 0):
                self._breaks[reason, ""] = None
            Recorder.counted[reason] = count

    def _record(self, name: str, reader: GraphReader, arguments: Sequence[Any]) -> Any:
        start = time.perf_counter()
        constants = [reader.constant(node) for node in reader.constants]
        inputs = self._inputs(reader, [*arguments, *constants])
        run = _MeasuredRun(reader)
        has_gradients = torch.is_grad_enabled() and any(i.tensor and i.tensor.requires_grad for i in inputs)
        kind = _device_type(arguments)
        autocast = measure.name_of(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None
        before = torch.is_grad_enabled()
        result = run.run(*arguments)
        self._count_breaks()
        no_change = {"torch.set_grad_enabled": [before]}
        calls = tuple(
            replace(call, contexts=tuple(entry for entry in call.contexts if entry != no_change)) for call in run.calls
        )
        is_dynamic = any(item.tensor and item.tensor.dynamic for item in inputs)
        compiler = self._settings()
        self._notes.update(dict.fromkeys(compiler.lost))
        self._graphs.append(
            Graph(
                name, self.model, inputs, calls, reader.result, grad=has_gradients, autocast=autocast,
                dynamic=True if is_dynamic else None, compile=compiler.compile, config=compiler.config,
            )
        )  # fmt: skip
        self.seconds += time.perf_counter() - start
        return result

    def _inputs(self, reader: GraphReader, values: Sequence[Any]) -> tuple[GraphInput, ...]:
        nodes = [*reader.inputs, *reader.constants]
        pairs = [(node, value) for node, value in zip(nodes, values, strict=True) if reader.is_used(node)]
        shared = _shared_storages([value for _, value in pairs])
        return tuple(self._input(reader, node, value, shared) for node, value in pairs)

    def _input(self, reader: GraphReader, node: Node, value: Any, shared: dict[int, int]) -> GraphInput:
        name, origin = reader.names[node], origin_of(node)
        if not isinstance(value, torch.Tensor):
            is_plain = value is None or type(value) in (bool, int, float, str)
            fault = "" if is_plain else f"it is a {type(value).__name__}"
            return GraphInput(name, python=value if is_plain else None, origin=origin, fault=fault)
        role = _role(node, value)
        fault, measured = measure.fault_of(value), measure.statistics(value)
        tensor = replace(measure.metadata(value), dynamic=_dynamic(node), storage=shared.get(_storage(value)))
        file, key = ("", "") if fault else self._keep(name, value, role)
        values = None if file else measure.deciding_values(value, measured, role)
        return GraphInput(name, tensor, None, role, origin, measured, values, file, key, fault)


class _MeasuredRun(Interpreter):  # type: ignore[misc,unused-ignore]
    """Runs a graph call by call, and measures what each call takes and gives."""

    def __init__(self, reader: GraphReader) -> None:
        super().__init__(reader.graph)
        self.calls: list[Call] = []
        self._reader = reader
        self._measured: dict[int, tuple[int, torch.Tensor, Operand]] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node."""
        read = self._reader.calls.get(n)
        if read is None:
            return super().run_node(n)
        operands, numbers = [], {}
        for node in read.operands:
            value = None if node in self._reader.sizes else self.env.get(node)
            if isinstance(value, torch.Tensor):
                operands.append(self._operand(self._reader.names[node], value))
            elif type(value) in (bool, int, float):
                numbers[self._reader.names[node]] = value
        for node in n.all_input_nodes:
            if node in self._reader.sizes:
                numbers[self._reader.sizes[node]] = int(self.env[node])
        result = super().run_node(n)
        self.calls.append(_call(read, operands, numbers, result))
        return result

    def _operand(self, name: str, value: torch.Tensor) -> Operand:
        version = 0 if value.is_inference() else value._version
        kept = self._measured.get(id(value))
        if kept is not None and kept[0] == version and kept[2].name == name:
            return kept[2]
        measured = measure.statistics(value)
        operand = Operand(name, measure.metadata(value), measured, measure.deciding_values(value, measured))
        self._measured[id(value)] = (version, value, operand)  # the tensor is kept, so that no other gets its id
        return operand


def _call(read: ReadCall, operands: Iterable[Operand], numbers: dict[str, Any], result: Any) -> Call:
    operator = read.operator
    if operator.startswith("operator.i") and not isinstance(result, torch.Tensor):
        operator = f"operator.{operator.removeprefix('operator.i')}"  # of numbers it is no write
    is_several = isinstance(result, list | tuple)
    values = result if is_several else [result]
    results = tuple(measure.metadata(value) for value in values if isinstance(value, torch.Tensor))
    return Call(
        read.name, operator, read.positional, read.keywords, tuple(operands), results, is_several, numbers,
        read.contexts, read.module, read.source, fault=read.fault,
    )  # fmt: skip


def _role(node: Node, value: torch.Tensor) -> Role:
    source = graphs.source_of(node)
    if node.op == "get_attr" or source.startswith("G["):
        return "constant"
    if isinstance(value, torch.nn.Parameter) or "_parameters[" in source:
        return "parameter"
    return "buffer" if "_buffers[" in source else "input"


def _dynamic(node: Node) -> tuple[int, ...]:
    value = node.meta.get("example_value")
    sizes = value.shape if isinstance(value, torch.Tensor) else ()
    return tuple(place for place, size in enumerate(sizes) if isinstance(size, torch.SymInt))


def _storage(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.layout == torch.strided else 0


def _shared_storages(values: Iterable[Any]) -> dict[int, int]:
    """Return a number for each storage that several tensors share, by its address."""
    addresses = [_storage(v) for v in values if isinstance(v, torch.Tensor) and v.device.type != "meta"]
    shared = dict.fromkeys(address for address in addresses if address and addresses.count(address) > 1)
    return {address: number for number, address in enumerate(shared)}


def _device(values: Iterable[Any]) -> torch.device | None:
    return next((value.device for value in values if isinstance(value, torch.Tensor)), None)


def _device_type(values: Iterable[Any]) -> str:
    device = _device(values)
    return "cpu" if device is None else device.type
