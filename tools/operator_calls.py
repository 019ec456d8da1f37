"""Calls for ``operator_sweep.py``: base calls of each operator, and wrong arguments in place of one or two of its arguments.

A base call is a sample of torch's operator database, a call that ATen received while those samples ran, or a draw from the schema.
"""

from __future__ import annotations

import itertools
import math
import pickle
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from runner.builder.operators import CHECKED, Operator, resolve
from runner.cases.operator_names import SUBNAMESPACES
from runner.cases.torch_names import inventory
from runner.worker.torch_private.operator_database import entries

SAMPLES = 8  # of an entry of the database and a dtype
KEPT_CALLS = 4  # that ATen received, of an overload

NUMBERS = (0, 1, -1, 2, 3, 7, 64, 1000, 2**31 - 1, 2**31, -(2**31), 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 1e-30, 0.5)
TEXTS = ("mean", "sum", "none", "bilinear", "nearest", "max", "zeros", "reduce", "amax", "prod", "i", "ij,jk->ik", "")
CODES: Mapping[str, Sequence[Any]] = {
    "ScalarType": (
        torch.float32,
        torch.float32,
        torch.float64,
        torch.int64,
        torch.bool,
        torch.complex64,
        torch.float16,
    ),
    "Layout": (torch.strided, torch.strided, torch.sparse_coo, torch.sparse_csr),
    "MemoryFormat": (torch.preserve_format, torch.contiguous_format, torch.channels_last),
}
"""What the schema shows as numbers. The format takes only names for these: ``runner/cases/torch_names.py``."""
SHAPES = ((16,), (4, 16), (2, 16, 16), (2, 16, 4, 4), (1, 16, 4, 4, 16), (16, 16), (64, 16))


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments, and how it is written."""

    function: Callable[..., Any]
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        arguments = [describe(arg) for arg in self.args] + [f"{k}={describe(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(arguments)})"


def describe(value: Any) -> str:
    """Return a short text: ``float32[4, 16]``, ``int64[2]{-1..7}``, or what Python writes."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(describe, value)) + "]"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    text = f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
    if value.layout != torch.strided or value.is_quantized:
        return f"{text} {value.layout if not value.is_quantized else 'quantized'}"
    if not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    if value.numel() and value.dtype in (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16):
        text += f"{{{int(value.min())}..{int(value.max())}}}"
    return text


def allowed_names() -> list[str]:
    """Return the names that the format allows and that this torch has."""
    lists = inventory()
    names = [f"{space}.{name}" for space in ("aten", "prims", "torch", "F", "Tensor") for name in lists[space]]
    spaces = [space for space in SUBNAMESPACES if space not in ("distributions", "func")]
    names += [f"torch.{space}.{name}" for space in spaces for name in lists[space]]
    return [name for name in names if isinstance(resolve(name), Operator) and function_of(name) is not None]


def function_of(name: str) -> Callable[..., Any] | None:
    """Return what a name of the format calls, or None."""
    space, *parts = name.split(".")
    holder = {
        "aten": torch.ops.aten,
        "prims": torch.ops.prims,
        "torch": torch,
        "F": torch.nn.functional,
        "Tensor": torch.Tensor,
    }[space]
    for part in parts:
        holder = getattr(holder, part, None)
    return holder if callable(holder) else None


def schemas_of(name: str) -> list[Any]:
    """Return the overloads of ATen (or prims) behind a name."""
    space, *parts = name.split(".")
    packets = torch.ops.prims if space == "prims" else torch.ops.aten
    packet = getattr(packets, "_".join(parts if space == "torch" else parts[:1]), None)
    if packet is None or not hasattr(packet, "overloads"):
        return []
    chosen = parts[1:] if space in ("aten", "prims") else []
    return [getattr(packet, overload) for overload in chosen or packet.overloads()]


@cache
def entries_by_name() -> dict[str, list[Any]]:
    """Return entries of the database by the names under which the format calls them."""
    named_entries: dict[str, list[Any]] = {}
    for entry in entries():
        path = entry.name.replace("nn.functional.", "F.") if entry.name.startswith("nn.") else f"torch.{entry.name}"
        variants = [entry.method_variant, entry.inplace_variant]
        methods = [f"Tensor.{variant.__name__}" for variant in variants if hasattr(variant, "__name__")]
        for name in {path, f"aten.{entry.aten_name}", *methods}:
            named_entries.setdefault(name, []).append(entry)
    return named_entries


def calls_of_aten(minutes: float) -> dict[str, list[bytes]]:
    """Return pickled arguments by overload: what ATen receives while the database's samples run, forward and backward."""
    pickles: dict[str, list[bytes]] = {}

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls = pickles.setdefault(f"{function.namespace}.{function.__name__}", [])
            if len(calls) < KEPT_CALLS:
                calls.append(pickle.dumps(tree_map(copy_of, (args, kwargs or {}))))
            return function(*args, **(kwargs or {}))

    deadline = time.monotonic() + 60 * minutes
    for entry in entries():
        for dtype in {torch.float32, torch.int64, torch.complex64} & set(entry.supported_dtypes("cpu")):
            if time.monotonic() > deadline:
                return pickles
            torch.manual_seed(0)
            try:
                samples = entry.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point)
                for sample in itertools.islice(samples, 4):
                    with Recorder():
                        differentiate(entry(sample.input, *sample.args, **sample.kwargs))
            except Exception:  # noqa: BLE001  an entry of the database raises what it likes
                continue
    return pickles


def copy_of(leaf: Any) -> Any:
    """Return a tensor that shares no memory."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def differentiate(result: Any) -> None:
    """Run the backward of what a call returned, and read sparse and quantized results."""
    for leaf in tree_leaves(result):
        if not isinstance(leaf, torch.Tensor):
            continue
        if leaf.is_quantized:
            leaf.dequantize()
        elif leaf.layout != torch.strided:
            leaf.to_dense()
        elif leaf.requires_grad and leaf.grad_fn is not None:
            leaf.sum().abs().backward(retain_graph=True)


class Bases:
    """Base calls of one operator: from the database, from ATen, from schemas."""

    def __init__(self, name: str, recorded: Mapping[str, list[bytes]], draw: random.Random) -> None:
        self._name, self._draw = name, draw
        self._function = function_of(name)
        self._schemas = schemas_of(name)
        self._recorded = [
            (overload, arguments)
            for overload in self._schemas
            if str(overload).rpartition(".")[0] not in inventory()["codes"]  # a recorded dtype is a number
            for arguments in recorded.get(f"{overload.namespace}.{overload.__name__}", ())
        ]
        self._samples = list(self._of_database())

    def _of_database(self) -> Iterator[Any]:
        entries = entries_by_name().get(self._name, [])
        if not entries:
            return
        entry = self._draw.choice(entries)
        dtypes = sorted(entry.supported_dtypes("cpu"), key=str)
        dtype = torch.float32 if torch.float32 in dtypes and self._draw.random() < 0.5 else self._draw.choice(dtypes)
        try:
            yield from itertools.islice(entry.sample_inputs("cpu", dtype), SAMPLES)
        except Exception:  # noqa: BLE001
            return

    def call(self) -> Call | None:
        """Return a base call; None if the operator has none."""
        ways = [way for way in (self._sample, self._record, self._schema) if way()]
        return self._draw.choice(ways)() if ways else None

    def _sample(self) -> Call | None:
        if not self._samples or self._function is None:
            return None
        sample = self._draw.choice(self._samples)
        arguments = tree_map(copy_of, ((sample.input, *sample.args), dict(sample.kwargs)))
        return Call(self._function, self._name, *arguments)

    def _record(self) -> Call | None:
        if not self._recorded:
            return None
        overload, arguments = self._draw.choice(self._recorded)
        return Call(overload, f"torch.ops.{overload}", *pickle.loads(arguments))

    def _schema(self) -> Call | None:
        if not self._schemas:
            return None
        overload = self._draw.choice(self._schemas)
        arguments = Drawing(self._draw).arguments(overload._schema)
        if self._name.startswith(("aten.", "prims.")):
            return Call(overload, f"torch.ops.{overload}", *arguments)
        return Call(self._function or overload, self._name, *arguments)


class Drawing:
    """Arguments that fit a schema and, roughly, each other."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._shape = draw.choice(SHAPES)
        self._dtype = draw.choice((torch.float32,) * 6 + (torch.float64, torch.int64, torch.complex64, torch.bool))

    def arguments(self, schema: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments."""
        args, kwargs = [], {}
        for argument in schema.arguments:
            value = self._value(argument.name, str(argument.real_type))
            if argument.kwarg_only:
                if value is not None:
                    kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _value(self, name: str, kind: str) -> Any:
        if kind.startswith("Optional["):
            return None if self._draw.random() < 0.4 else self._value(name, kind[9:-1])
        if kind.startswith("List["):
            inner = kind[5:-1]
            if inner == "bool":
                return [True] * self._draw.choice((3, 3, 2, 4))
            length = self._draw.choice((1, 2, 2, 3, 4))
            if inner == "int" and any(word in name for word in ("size", "shape")) and self._draw.random() < 0.6:
                return list(self._shape)
            return [self._value(name, inner) for _ in range(length)]
        if kind == "Tensor":
            return self._tensor(name)
        if kind in ("int", "SymInt"):
            return self._draw.choice((0, 0, 1, 1, -1, 2, 4, 16))
        if kind in ("float", "number", "Scalar"):
            return 1e-5 if "eps" in name else self._draw.choice((0.5, 1.0, 2.0, 0.0, 2))
        if kind == "bool":
            return self._draw.random() < 0.5
        if kind == "str":
            return self._draw.choice(TEXTS)
        if kind in CODES:
            return self._draw.choice(CODES[kind])
        return None

    def _tensor(self, name: str) -> Any:
        whole = any(
            word in name
            for word in ("ind", "offset", "target", "lengths", "pivot", "batch_sizes", "bag", "seqlen", "count")
        )
        small = any(word in name for word in ("weight", "bias", "mean", "var", "std", "scale", "zero_point", "inv"))
        channels = self._shape[min(1, len(self._shape) - 1)]
        shape = (channels,) if small and self._draw.random() < 0.8 else self._shape
        if name == "out" or name.startswith("out"):
            shape = self._draw.choice((self._shape, (0,), (16,)))
        if whole and self._draw.random() < 0.9:
            return torch.arange(math.prod(shape)).reshape(shape) % self._draw.choice((1, 2, 4, 16))
        value = torch.ones(shape).mul_(self._draw.choice((1.0, 2.0, 0.5))).to(self._dtype)
        return value


class Changes:
    """Changes of one argument."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def apply(self, call: Call) -> Call:
        """Return the call with none, one or two of its arguments changed."""
        leaves, structure = tree_flatten((list(call.args), dict(call.kwargs)))
        for _ in range(self._draw.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))):
            if leaves:
                position = self._draw.randrange(len(leaves))
                leaves[position] = self._changed(leaves[position])
        args, kwargs = tree_unflatten(leaves, structure)
        chance = self._draw.random()
        if chance < 0.05 and args:
            args.pop()
        elif chance < 0.12:
            kwargs = {**kwargs, "out": torch.ones(self._draw.choice(((0,), (1,), (16,))))}
        elif chance < 0.18:
            args = [self._with_length(arg) if isinstance(arg, (list, tuple)) else arg for arg in args]
        if call.name in CHECKED:  # the builder writes it
            kwargs = {**kwargs, "check_invariants": True}
        if self._draw.random() < 0.3:
            args, kwargs = tree_map(self._with_gradient, (args, kwargs))
        return Call(call.function, call.name, args, kwargs)

    def _with_length(self, items: Sequence[Any]) -> list[Any]:
        return self._draw.choice((list(items)[:-1], [*items, *items], [], [*items, *list(items)[:1]]))

    def _with_gradient(self, leaf: Any) -> Any:
        floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not leaf.is_quantized
        return leaf.detach().requires_grad_() if floating else leaf

    def _changed(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            try:
                return self._changed_tensor(value)
            except (RuntimeError, NotImplementedError):
                return torch.ones(16)
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._draw.choice((*NUMBERS, value + 1, value - 1, -value, value * 16))
        if isinstance(value, float):
            return self._draw.choice(FLOATS)
        if isinstance(value, str):
            return self._draw.choice(TEXTS)
        return self._draw.choice((None, torch.ones(16), torch.ones(1), torch.zeros(16, dtype=torch.int64), 1))

    def _changed_tensor(self, tensor: Any) -> Any:
        shape = list(tensor.shape)
        whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
        if self._draw.random() < (0.5 if whole else 0.1):
            return self._with_values(tensor, whole)
        way = self._draw.choice(("empty", "one", "short", "long", "long", "rank", "dtype", "strides", "none", "swap"))
        axis = self._draw.randrange(len(shape)) if shape else 0
        if way == "none":
            return None
        if way == "dtype":
            return tensor.to(self._draw.choice((torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)))
        if way == "strides":
            return self._with_strides(tensor)
        if way == "rank":
            shape = self._draw.choice(([], [1, *shape], shape[1:], shape[:-1], [*shape, 1], [math.prod(shape)]))
        elif way == "swap":
            self._draw.shuffle(shape)
        elif shape:
            size = shape[axis]
            shape[axis] = {"empty": 0, "one": 1, "short": max(size - 1, 0), "long": size * self._draw.choice((2, 16))}[
                way
            ]
        if math.prod(shape) > 1 << 22:
            shape = [16]
        return self._of_shape(tensor, shape)

    def _of_shape(self, tensor: Any, shape: Sequence[int]) -> Any:
        values = tensor.detach().reshape(-1)
        if not values.numel():
            return torch.ones(shape).to(tensor.dtype)
        return values.repeat(math.prod(shape) // values.numel() + 1)[: math.prod(shape)].clone().reshape(shape)

    def _with_values(self, tensor: Any, whole: bool) -> Any:
        fresh = tensor.detach().clone()
        if not fresh.numel():
            return torch.ones(16).to(fresh.dtype)
        bounds = torch.iinfo(fresh.dtype) if whole else None
        number = self._draw.choice(NUMBERS) if bounds else self._draw.choice(FLOATS)
        if bounds:
            number = self._draw.choice((number, fresh.numel(), fresh.shape[0] if fresh.ndim else 1, -2))
            number = min(max(number, bounds.min), bounds.max)
        if self._draw.random() < 0.5:
            return fresh.fill_(number)
        fresh.view(-1)[self._draw.randrange(fresh.numel())] = number
        return fresh

    def _with_strides(self, tensor: Any) -> Any:
        ways = (
            lambda t: t.transpose(0, -1),
            lambda t: t[..., :1].expand(t.shape),
            lambda t: t.flip(0)[::2],
            lambda t: torch.stack([t, t], -1)[..., 0],
            lambda t: t[:1].expand(t.shape),
        )
        return self._draw.choice(ways)(tensor.detach().clone())
