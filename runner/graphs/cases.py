"""One graph as one case, in plain data.

A call that the format cannot write is left out: what it gives becomes an input, and what it takes an output. So the
calls before and after it are still compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.builder.chain import STATEMENTS
from runner.builder.operators import Refusal, is_plain, resolve
from runner.cases.operator_names import without_overload
from runner.cases.torch_names import flag_refusal
from runner.contract.graphs import LOST, Call, Graph, GraphInput, Tensor, arguments_of
from runner.graphs.inputs import main_dtype, plain_input, shared_inputs
from runner.graphs.names import references, renamed, replaced
from runner.session.plan import TIMEOUT

_STATE = ("parameter", "buffer", "constant")
_IN_PLACE = "operator.i"
_BY_DATA = (
    "nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "unique_dim", "_unique2", "bincount",
    "ctc_loss",
)  # fmt: skip
"""Operators of which the result's shape depends on elements. Dynamo traces them if a flag says so."""
_INDEX = ("index", "getitem")
_UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
_REASON = "the memory is uninitialised"
SECONDS_PER_CALL = 2
"""Seconds for each call that a case of many calls may take: compilers take time in proportion to the calls."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A call, or an input, that a case cannot hold, and why."""

    operator: str
    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class WrittenGraph:
    """A case in plain data, and what it lacks of its graph. ``case`` is None where nothing is left of it.

    ``sources`` says for the name of each step's value where the model calls it.
    """

    case: dict[str, Any] | None
    faults: tuple[Fault, ...] = ()
    sources: tuple[str, ...] = ()


def fault_of(call: Call) -> str:
    """Return why a case may not hold a call; an empty text if it may."""
    if call.fault:
        return call.fault
    names = [call.operator, *_operators_within([call.positional, call.keywords])]
    refusals = (answer for answer in map(resolve, names) if isinstance(answer, Refusal))
    return next((refusal.message for refusal in refusals), "")


def write_graph(graph: Graph, name: str, doc: str = "", tags: Sequence[str] = ()) -> WrittenGraph:
    """Return a graph as a case of this name."""
    faults = [Fault(item.name, item.fault) for item in graph.inputs if item.fault]
    inputs = {item.name: item for item in graph.inputs if not item.fault}
    calls: list[Call] = []
    cut: list[str] = []
    missing = {fault.operator for fault in faults}
    for call in graph.calls:
        reason = fault_of(call)
        if not reason and (lost := missing.intersection(references([call.positional, call.keywords]))):
            reason = f"it takes {min(lost)}, which cannot be written"
        if not reason:
            calls.append(call)
            continue
        if fault_of(call) or call.operator != "operator.getitem":  # a part of what is missing is not missing twice
            faults.append(Fault(call.operator, reason, call.source))
        cut += [operand.name for operand in call.operands if operand.name not in missing]
        replacement = _replacement(graph, call)
        if replacement is None:
            missing.add(call.name)
        else:
            inputs[call.name] = replacement
    result = [value for value in _results(graph.result) if not missing.intersection(references(value))]
    result += [f"${name}" for name in dict.fromkeys(cut) if f"${name}" not in result] if faults else []
    calls = _without_unread(calls, result)
    if not calls:
        return WrittenGraph(None, tuple(faults))
    return _Writer(graph, inputs, calls, result).write(name, doc, tags, tuple(faults))


def lost_flags(graphs: Iterable[Graph]) -> list[str]:
    """Return a note for each flag that a graph was compiled with, and that no case may set."""
    flags = {(name, value): flag_refusal(name, value) for graph in graphs for name, value in graph.config.items()}
    return [f"{LOST}{name} = {value}: {reason}" for (name, value), reason in flags.items() if reason]


class _Writer:
    """Writes one graph, of which all calls can be written."""

    def __init__(self, graph: Graph, inputs: dict[str, GraphInput], calls: list[Call], result: list[Any]) -> None:
        used = {*references([[call.positional, call.keywords] for call in calls]), *references(result)}
        self.graph, self.calls, self.result = graph, calls, result
        self.inputs = [item for item in inputs.values() if item.name in used]
        self.names: dict[str, str] = {}

    def write(self, name: str, doc: str, tags: Sequence[str], faults: tuple[Fault, ...]) -> WrittenGraph:
        """Return the case."""
        tensors = [item.tensor for item in self.inputs if item.tensor is not None]
        dtype = main_dtype(tensors)
        inputs, state = self._tensors(dtype)
        chain = self._chain()
        result = renamed(self.result, self.names)
        case: dict[str, Any] = {"name": name}
        if doc:
            case["doc"] = doc
        if tags:
            case["tags"] = list(tags)
        if self.graph.dynamic is not None:
            case["dynamic"] = self._dynamic(inputs, has_replacements=bool(faults))
        if self.graph.grad and self._has_gradients():
            case["grad"] = "backward"
        if self.graph.autocast:
            case["autocast"] = self.graph.autocast
        if self.graph.compile:
            case["compile"] = {**self.graph.compile}
        flags = {name: value for name, value in self.graph.config.items() if not flag_refusal(name, value)}
        if any(map(_has_shape_by_data, self.calls)):
            flags["torch._dynamo.config.capture_dynamic_output_shape_ops"] = True
        if flags:
            case["config"] = flags
        if all(_member(call) in _UNINITIALISED for call in self.calls):
            case["ignore"] = {"value": _REASON, "nonfinite": _REASON}
        case["inputs"] = inputs
        if state:
            case["state"] = state
        if dtype != "float32":
            case["dtypes"] = [dtype]
        if (seconds := SECONDS_PER_CALL * len(self.calls)) > TIMEOUT:
            case["timeout"] = f"{seconds}s"
        case["chain"] = chain
        case["return"] = result[0] if len(result) == 1 else result
        _shorten(case)
        return WrittenGraph(case, faults, tuple(call.source for call in self.calls))

    def _tensors(self, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return inputs and state. What shares a storage with another one is an input, since views are."""
        groups: dict[int, list[GraphInput]] = {}
        for item in self.inputs:
            if item.tensor is not None and item.tensor.storage is not None:
                groups.setdefault(item.tensor.storage, []).append(item)
        shared = {item.name for group in groups.values() if _is_one_storage(group) for item in group}
        taken = {item.name for item in self.inputs} | {call.name for call in self.calls}
        inputs: dict[str, Any] = {}
        state: dict[str, Any] = {}
        for group in groups.values():
            if _is_one_storage(group):
                inputs |= shared_inputs(group, dtype, taken)
        has_input = bool(inputs) or any(item.role not in _STATE for item in self.inputs)
        for item in self.inputs:
            if item.name in shared:
                continue
            if item.role in _STATE and has_input and not (item.tensor and item.tensor.dynamic):
                state[item.name] = plain_input(item, dtype)
                self.names[item.name] = f"self.{item.name}"
            else:
                inputs[item.name] = plain_input(item, dtype)
                has_input = True
        return inputs, state

    def _has_gradients(self) -> bool:
        """Return whether a tensor that requires a gradient is returned, and one that is given."""
        grads = {call.name for call in self.calls if any(result.requires_grad for result in call.results)}
        given = any(item.tensor is not None and item.tensor.requires_grad for item in self.inputs)
        return given and bool(grads.intersection(references(self.result)))

    def _dynamic(self, inputs: Mapping[str, Any], has_replacements: bool) -> Any:
        """Return ``dynamic:``: the dimensions whose sizes vary, or True where all do or it is not known which.

        A compiler may take them for constants, as it may what Dynamo finds to vary. A size of 0 or 1 never varies.
        """
        tensors = {item.name: item.tensor for item in self.inputs if item.tensor is not None and item.name in inputs}
        vary = {name: list(tensor.dynamic) for name, tensor in tensors.items() if tensor.dynamic}
        can = {name: [n for n, size in enumerate(tensor.shape) if size > 1] for name, tensor in tensors.items()}
        if not self.graph.dynamic or not vary or has_replacements or all(vary.get(n, []) == d for n, d in can.items()):
            return self.graph.dynamic
        return {name: {"maybe": dimensions} for name, dimensions in vary.items()}

    def _chain(self) -> list[Any]:
        chain: list[Any] = []
        within: tuple[Any, ...] = ()
        read = Counter(references([[call.positional, call.keywords] for call in self.calls]))
        read.update(references(self.result))
        for call in self.calls:
            step = self._step(call, bool(read[call.name]))
            if call.contexts and call.contexts == within:
                chain[-1]["chain"].append(step)
            elif call.contexts:
                chain.append({"with": list(renamed(call.contexts, self.names)), "chain": [step]})
            else:
                chain.append(step)
            within = call.contexts
        return chain

    def _step(self, call: Call, is_read: bool) -> Any:
        arguments = renamed([list(call.positional), dict(call.keywords)], self.names)
        step = {call.operator: arguments_of(*arguments)}
        if call.operator.startswith(_IN_PLACE) and call.operator not in ("operator.inv", "operator.invert",
                                                                        "operator.is_", "operator.is_not",
                                                                        "operator.index"):  # fmt: skip
            self.names[call.name] = str(arguments[0][0])[1:]  # the same tensor, under the name that it has
            return step
        if call.operator in STATEMENTS or not is_read:
            return step
        return {**step, "out": call.name}


def _member(call: Call) -> str:
    return without_overload(call.operator).rpartition(".")[2]


def _has_shape_by_data(call: Call) -> bool:
    is_masked = _member(call) in _INDEX and any(operand.tensor.dtype == "bool" for operand in call.operands[1:])
    is_repeated = _member(call) == "repeat_interleave" and len(call.operands) > 1
    return is_masked or is_repeated or _member(call) in _BY_DATA


def _is_one_storage(group: Sequence[GraphInput]) -> bool:
    dtypes = {item.tensor.dtype for item in group if item.tensor is not None}
    return len(group) > 1 and len(dtypes) == 1 and not any(item.file or item.values is not None for item in group)


def _operators_within(data: Any) -> Iterable[str]:
    """Yield the operators of functions among arguments."""
    if isinstance(data, dict):
        for key, value in data.items():
            if "." in str(key):
                yield str(key)
            yield from _operators_within(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _operators_within(value)


def _replacement(graph: Graph, call: Call) -> GraphInput | None:
    """Return what a call gave as an input; None for a value that is no single tensor."""
    if len(call.results) != 1 or call.several:
        return None
    measured = next((o for c in graph.calls for o in c.operands if o.name == call.name), None)
    tensor: Tensor = replace(call.results[0], storage=None, dynamic=())
    return GraphInput(
        call.name, tensor, statistics=measured.statistics if measured else None,
        values=measured.values if measured else None,
    )  # fmt: skip


def _results(result: Any) -> list[Any]:
    """Return what a graph gives, in order and flat."""
    if isinstance(result, list | tuple):
        return [item for value in result for item in _results(value)]
    return [] if result is None else [result]


def _without_unread(calls: Sequence[Call], result: Sequence[Any]) -> list[Call]:
    """Return the calls whose value is read, or that may do more than give one."""
    read = set(references(list(result)))
    kept = []
    for call in reversed(calls):
        if call.name in read or not is_plain(call.operator):
            kept.append(call)
            read.update(references([call.positional, call.keywords, list(call.contexts)]))
    return kept[::-1]


def _shorten(case: dict[str, Any]) -> None:
    """Let a step read ``$_`` where it alone reads the value of the step before."""
    read = Counter(references([case["chain"], case["return"]]))
    last = case["chain"][-1]
    if case["return"] == f"${last.get('out')}" and read[last["out"]] == 1:
        del last["out"], case["return"]
    _shorten_chain(case["chain"], read)


def _shorten_chain(chain: list[Any], read: Counter[str]) -> None:
    for place, step in enumerate(chain):
        if "chain" in step:
            _shorten_chain(step["chain"], read)
        name = step.get("out")
        following = chain[place + 1] if place + 1 < len(chain) else None
        if name is None or read[name] != 1 or following is None or "chain" in following:
            continue
        key = next(iter(following))
        changed = replaced(following[key], f"${name}", "$_")
        if changed != following[key]:
            following[key] = changed
            del step["out"]
    for place, step in enumerate(chain):
        key = next(iter(step))
        if step[key] == ["$_"] and place and not key.startswith(("aten.", "prims.", "custom.")):
            chain[place] = key if len(step) == 1 else {**step, key: "$_"}
