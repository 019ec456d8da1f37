"""Sample inputs of torch's operator database, as the calls of a case: operators, arguments, and how each input is made."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

Spec = dict[str, Any]
"""An input as the format writes it."""

LONG = [3, 37]
"""The shape of a pointwise operator's input: odd, and beyond the vectors of every processor."""
ODD: tuple[Spec, ...] = (
    {"shape": [2, 3, 2, 3, 2]},
    {"shape": []},
    {"shape": [0, 3]},
    {"shape": [2, 3, 4, 5], "layout": [{"Tensor.contiguous": {"*": ["$_"], "memory_format": "torch.channels_last"}}]},
    {"shape": [1]},
    {"shape": [6, 5], "layout": ["Tensor.t", {"operator.getitem": ["$_", "[::2, 1:]"]}]},
    {"shape": [3, 1], "layout": [{"Tensor.expand": ["$_", [3, 7]]}]},
)
"""Shapes and layouts that compilers have paths of their own for. Cases take turns."""
TURN = "turn"
POINTWISE = ("UnaryUfuncInfo", "BinaryUfuncInfo")
"""Classes of the database's entries that work element by element."""
SPECIAL: Spec = {"shape": [32], "init": "special"}
LITERAL = 24
"""Elements of an index that is written out, at most."""
SAMPLES = 80
"""Of one operator, at most: some have thousands."""
ELEMENTS = 3000
ODD_ONES = 9
"""How dull an empty or a scalar tensor is."""
DEFINITE = [[4.0, 1.0, -1.0], [1.0, 5.0, 0.5], [-1.0, 0.5, 3.0]]
"""Symmetric, positive definite, and well conditioned."""


class UnfitSampleError(Exception):
    """The format has no words for a sample."""


@dataclass
class Given:
    """An input of a call. Two of one call are two inputs, ``place`` counts them; calls share those that are alike."""

    spec: Spec
    place: int = 0


@dataclass
class CallDraft:
    """One step: an operator of the format with arguments, which may be calls themselves."""

    operator: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Taste:
    """What is wished of samples: how many, and whether sizes grow, layouts change and an empty or scalar one is added."""

    count: int = 1
    grown: bool = False
    strided: bool = False
    odd: bool = False


TASTES = (
    Taste(2, True, True, True), Taste(2, True, True), Taste(2, True, False, True), Taste(2, False, False, True),
    Taste(2, True), Taste(2), Taste(),
)  # fmt: skip
"""The first of which eager takes all in all dtypes is drafted."""


def sample_calls(entries: Sequence[Any], operator: str, dtype: torch.dtype, grad: bool) -> list[tuple[int, CallDraft]]:
    """Return the samples of the entries of one name as calls, each beside how little it says."""
    calls = []
    for entry in entries:
        kinds = entry.supported_backward_dtypes("cpu") if grad else entry.supported_dtypes("cpu")
        if dtype not in kinds:
            continue
        for sample in itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES):
            try:
                calls.append((_dullness(sample), call_of(operator, sample, dtype)))
            except UnfitSampleError:
                continue
    return calls


def chosen(calls: Sequence[tuple[int, CallDraft]], taste: Taste) -> list[CallDraft]:
    """Return the calls that say most: one, others with other arguments, and one of an empty or scalar tensor."""
    least = min((dull for dull, _ in calls), default=0)
    plain = [call for dull, call in calls if dull == least]
    picked = plain[:1]
    forms = {_form(call) for call in picked}
    for call in sorted(plain[1:], key=lambda call: (-len(call.kwargs), -len(call.args))):
        if len(picked) < taste.count and _form(call) not in forms:
            picked.append(call)
            forms.add(_form(call))
    if taste.strided and picked:
        last = picked[-1]
        picked = [*picked[:-1], replace(last, args=[_strided(last.args[0]), *last.args[1:]])]
    if taste.grown:
        picked = [_grown(call) for call in picked]
    if taste.odd and least < ODD_ONES:
        picked += [call for dull, call in calls if dull == ODD_ONES][-1:]
    return picked


def _form(call: CallDraft) -> str:
    """Return what makes two calls alike: the number of arguments and the names of keywords."""
    return repr((len(call.args), sorted(call.kwargs)))


def _strided(value: Any) -> Any:
    """Return an input with another layout."""
    spec = value.spec if isinstance(value, Given) else {}
    shape = spec.get("shape", [])
    if len(shape) == 4:
        return Given({**spec, "layout": ODD[3]["layout"]}, value.place)
    if len(shape) == 2:
        return Given({**spec, "shape": shape[::-1], "layout": ["Tensor.t"]}, value.place)
    return value


def _grown(value: Any) -> Any:
    """Return a call with sizes that vectors do not divide."""
    if isinstance(value, CallDraft):
        args = [_grown(arg) for arg in value.args]
        return replace(value, args=args, kwargs={key: _grown(arg) for key, arg in value.kwargs.items()})
    if isinstance(value, list) and any(isinstance(item, Given) for item in value):
        return [_grown(item) for item in value]
    if isinstance(value, Given) and "shape" in value.spec:
        sizes = {5: 17, 10: 19} if len(value.spec["shape"]) < 3 else {5: 9, 10: 11}
        return Given({**value.spec, "shape": [sizes.get(size, size) for size in value.spec["shape"]]}, value.place)
    return value


def _dullness(sample: Any) -> int:
    """Return 0 for a sample of some size and non-zero arguments, more for less."""
    tensors = list(_tensors((sample.input, sample.args, sample.kwargs)))
    sizes = [tensor.numel() for tensor in tensors]
    if any(size > ELEMENTS for size in sizes):
        return ODD_ONES + 1
    if sizes and (sizes[0] < 2 or 0 in sizes):
        return ODD_ONES
    plain = [item for item in tree_leaves((sample.args, sample.kwargs, () if tensors else sample.input))]
    zeros = any(isinstance(item, float) and item == 0 for item in plain)
    zeros |= not tensors and any(type(item) is int and item in (0, -1) for item in plain)
    return 2 * (bool(sizes) and sizes[0] < 6) + zeros


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def call_of(operator: str, sample: Any, dtype: torch.dtype) -> CallDraft:
    """Return a sample as a call. Raises UnfitSampleError for what the format lacks."""
    reader = _Reader(dtype)
    args = [reader.argument(arg) for arg in (sample.input, *sample.args)]
    kwargs = {
        key: reader.argument(arg)
        for key, arg in sample.kwargs.items()
        if key not in ("layout", "pin_memory", "generator", "requires_grad") and not (key == "device" and arg is None)
    }
    if operator == "operator.getitem":
        args = [args[0], _index(sample.args[0])]
    elif operator.startswith("operator."):
        args = [3, args[0]]
    return CallDraft(operator, args, kwargs)


class _Reader:
    """Arguments of one sample, on their way to those of a step."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._givens: list[tuple[torch.Tensor, Given]] = []

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._given(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        if isinstance(value, torch.dtype):
            return "$dtype" if value == self._dtype else str(value)
        if isinstance(value, (torch.device,)) or value == "cpu":
            return "$device"
        if isinstance(value, torch.memory_format):
            return str(value)
        if isinstance(value, float):
            return value if not math.isfinite(value) else float(f"{value:.4g}")
        if value is None or isinstance(value, (bool, int, str)):
            return value
        raise UnfitSampleError(f"a {type(value).__name__}")

    def _given(self, tensor: torch.Tensor) -> Given:
        for known, given in self._givens:
            if known is tensor:
                return given
        if tensor.layout != torch.strided:
            raise UnfitSampleError(str(tensor.layout))
        spec = _spec(tensor, self._dtype)
        given = Given(spec, sum(_key(earlier_spec.spec) == _key(spec) for _, earlier_spec in self._givens))
        self._givens.append((tensor, given))
        return given


def _key(spec: Spec) -> str:
    return json.dumps(spec, sort_keys=True)


def matrix_call(call: CallDraft) -> CallDraft:
    """Return the call of an operator of linear algebra on matrices that are well conditioned, three by three."""
    args = [_definite(arg, first=not place) for place, arg in enumerate(call.args)]
    return replace(call, args=args)


def _definite(value: Any, first: bool) -> Any:
    if isinstance(value, list):
        return [_definite(item, first) for item in value]
    if not isinstance(value, Given) or "shape" not in value.spec:
        return value
    shape = [3 if size == 5 else size for size in value.spec["shape"]]
    if not first or shape != [3, 3]:
        return Given({**value.spec, "shape": shape}, value.place)
    grad = {"requires_grad": True} if value.spec.get("requires_grad") else {}
    return Given({"values": DEFINITE, **grad}, value.place)


def _spec(tensor: torch.Tensor, dtype: torch.dtype) -> Spec:
    """Return how an input like this one is made: its numbers in words if they are any, and written out if they are an index."""
    own = tensor.dtype == dtype
    spec: Spec = {"shape": list(tensor.shape)}
    if not own and not tensor.dtype.is_floating_point and tensor.dtype != torch.bool and 0 < tensor.numel() <= LITERAL:
        spec = {"values": tensor.tolist()}
        if tensor.dtype != torch.int64:
            spec["dtype"] = str(tensor.dtype).removeprefix("torch.")
        return spec
    if not own:
        spec["dtype"] = str(tensor.dtype).removeprefix("torch.")
    init = _init(tensor, own)
    if init is not None:
        spec["init"] = init
    if tensor.requires_grad:
        spec["requires_grad"] = True
    return spec


def _init(tensor: torch.Tensor, own: bool) -> Any:
    if not tensor.numel() or tensor.dtype == torch.bool or tensor.is_complex():
        return None
    low, high = float(tensor.min()), float(tensor.max())
    if not tensor.is_floating_point():
        if own:
            return None if tensor.numel() < 6 or (tensor == 0).any() else {"randint": [1, 10]}
        return {"randint": [int(low), int(high) + 1]}
    if not math.isfinite(low) or not math.isfinite(high) or low < -1 < 1 < high or tensor.numel() < 3:
        return None if low < 0 or tensor.numel() > 1 else "uniform"
    if low >= 0 and high <= 1:
        return "uniform"
    if low >= 0:
        return {"uniform": [0.5 if low > 0.3 else 0.1, max(2, math.ceil(high))]}
    return {"uniform": [-0.9, 0.9]} if high <= 1 and low >= -1 else None


def _index(index: Any) -> str:
    parts = index if isinstance(index, tuple) else (index,)
    return f"[{', '.join(map(_part, parts))}]"


def _part(part: Any) -> str:
    if isinstance(part, slice):
        bounds = ["" if bound is None else str(bound) for bound in (part.start, part.stop)]
        return ":".join([*bounds, str(part.step)] if part.step is not None else bounds)
    if part is Ellipsis:
        return "..."
    if part is None or (isinstance(part, int) and not isinstance(part, bool)):
        return str(part)
    raise UnfitSampleError("an index of tensors")


def pointwise(entry: Any, operator: str, grad: bool, whole: bool) -> list[CallDraft]:
    """Return the calls of an operator that works element by element: a long input, and an odd shape or one that is broadcast."""
    sample = next(iter(entry.sample_inputs("cpu", torch.float32 if not whole else torch.int32)))
    binary = type(entry).__name__ == "BinaryUfuncInfo"
    if len(sample.args) != binary or sample.kwargs or operator.startswith("operator."):
        return []
    if binary and not isinstance(sample.args[0], torch.Tensor):
        return []
    given = {"requires_grad": True} if grad else {}
    init = {} if whole else _domain(entry)
    if binary:
        right = {"init": {"randint": [1, 10]}} if whole and "shift" not in entry.name else {}
        right = {"init": {"randint": [0, 8]}} if whole and "shift" in entry.name else right
        rows, columns = Given({"shape": [5, 1], **init, **given}), Given({"shape": [1, 6], **init, **right, **given})
        calls = [
            CallDraft(
                operator, [Given({"shape": LONG, **init, **given}), Given({"shape": LONG, **init, **right, **given}, 1)]
            )
        ]
        return calls if whole else [*calls, CallDraft(operator, [rows, columns])]
    calls = [CallDraft(operator, [Given({"shape": LONG, **init, **given})])]
    if not whole:
        calls.append(CallDraft(operator, [Given({"shape": TURN, **init, **given})]))
    return calls


def special_values(entry: Any, operator: str) -> CallDraft:
    """Return the call of an operator that works element by element on NaN, infinities, extremes and zeros of both signs."""
    turned = Given({**SPECIAL, "layout": [{"torch.flip": ["$_", [0]]}]})
    return CallDraft(
        operator, [Given(SPECIAL), turned] if type(entry).__name__ == "BinaryUfuncInfo" else [Given(SPECIAL)]
    )


def _domain(entry: Any) -> Spec:
    low, high = getattr(entry, "domain", None) or (None, None)
    if low is None and high is None:
        return {}
    if low is not None and high is not None and low >= -1 and high <= 1:
        return {"init": {"uniform": [0.05 if low >= 0 else -0.95, 0.95]}}
    return {"init": {"uniform": [(low or 0) + 0.05 if low is not None else -4, 4 if high is None else high - 0.05]}}
