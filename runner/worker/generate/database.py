"""torch's own operator database: names of operators, and for each the arguments that torch tests it with.

A sample is a pattern. Its tensors become values of the chain where dtype and rank fit, and new inputs elsewhere; sizes
that the pattern has in several places stay equal. What the format cannot write, or eager refuses, is another step's
turn.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial, reduce
from operator import itemgetter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from runner.worker.generate.chain import DTYPES, WHOLE, Chain, Value, require, values_of
from runner.worker.torch_private.operator_database import entries

SAMPLES = 24
"""Of one operator and dtype, at most: some have thousands."""

FITTING = 0.85
"""How often a dtype and a sample are taken that fit a value of the chain, where there is one."""

LATE = 4
"""Values of the chain, the last ones, whose dtypes are preferred."""

_UNFIT = (
    "empty",
    "resize",
    "jiterator",
    "_like_fn",
    "sparse",
    "nested",
    "chalf",
    "cauchy",
    "ldl_solve",
    "lu_solve",
    "lstsq",
    "ctc_loss",
    "item",
    "tolist",
    "numpy",
)
"""Parts of names: memory that nobody wrote, other layouts, pivots that LAPACK trusts (``lstsq``: those of an array
that nobody wrote), labels that nobody checks (``ctc_loss``), and what gives no tensor."""

_CARELESS = frozenset({"aten.native_group_norm"})
"""Operators of ATen whose kernel reads memory without a look at strides and dimensions.

The functions above them see to that.
"""

_TRUSTING = re.compile(
    r"^aten\.|native_|batch_norm|embedding_bag|unpool|grid_sampler|ctc|segment|fused|backward|lstm|rnn|gru"
)
"""Operators that may trust sizes: several tensors have the sizes of the sample.

Eager would read past the end of others.
"""

_POINTWISE = ("UnaryUfuncInfo", "BinaryUfuncInfo")
"""Classes of the database's entries."""

_SPACES = {"nn.functional": "F", "": "torch"}
_SHARED = ("", "nn.functional")
"""Namespaces that have many functions in common: an entry of one is tried by its name in the other too."""
_DROPPED = ("layout", "pin_memory", "generator")
_WRITTEN = (bool, int, float, str, torch.dtype, torch.memory_format, torch.device)
"""Classes of arguments that the format can write, beside tensors and lists."""


@cache
def operators() -> Mapping[str, tuple[Any, ...]]:
    """Return the names by which the format may call operators of the database, each with its entries there.

    An entry is known as a function, as a method, by its forms in place, by its aliases, and as an operator of ATen.
    Raises ImportError as ``entries`` does.
    """
    pairs = sorted(((name, entry) for entry in entries() for name in names_of(entry)), key=itemgetter(0))
    return {name: tuple(entry for _, entry in group) for name, group in itertools.groupby(pairs, itemgetter(0))}


def names_of(entry: Any) -> list[str]:
    """Return the names by which the format may call the operator of an entry: a function's first, then a method's."""
    if entry.name.rpartition(".")[2].startswith("_") or entry.name.startswith("torch.ops"):
        return []
    names = [name for spelling in (entry.name, *(alias.name for alias in entry.aliases)) for name in _spelt(spelling)]
    for variant in (entry.method_variant, entry.inplace_variant):  # which may be called in another way
        member = getattr(variant, "__name__", "")
        names += [f"Tensor.{member}"] if callable(getattr(torch.Tensor, member, None)) else []
    if hasattr(torch.ops.aten, entry.aten_name) and not entry.aten_name.startswith("_"):
        names.append(f"aten.{entry.aten_name}")
    is_unfit = any(part in entry.name for part in _UNFIT)
    return [] if is_unfit else [name for name in dict.fromkeys(names) if name not in _CARELESS]


def _spelt(name: str) -> Iterator[str]:
    """Yield the names of public functions and methods for a name of the database, with their forms in place."""
    space, _, member = name.rpartition(".")
    for each in _SHARED if space in _SHARED else (space,):
        holder = reduce(lambda module, part: getattr(module, part, None), filter(None, each.split(".")), torch)
        for form in (member, f"{member}_"):
            if callable(getattr(holder, form, None)):
                yield f"{_SPACES.get(each, f'torch.{each}')}.{form}"
    for form in (member, f"{member}_") if space in _SHARED else ():
        if callable(getattr(torch.Tensor, form, None)):
            yield f"Tensor.{form}"


def add_step(chain: Chain, name: str) -> bool:
    """Add a step of this operator, on values of the chain if it takes them, else on new inputs.

    Return whether it stays.
    """
    try:
        sample = _sample(chain, name)
    except Exception:  # noqa: BLE001  an entry of the database raises what it likes
        return False
    return any(chain.attempt(partial(_bind, chain, name, sample, fresh)) for fresh in (False, False, True))


def _sample(chain: Chain, name: str) -> Any:
    entry = chain.one(*operators()[name])
    supported = entry.supported_dtypes("cpu")
    kinds = [kind for kind in DTYPES if kind in supported]
    late = [value.data.dtype for value in chain.values[-LATE:] if isinstance(value.data, torch.Tensor)]
    usual = [kind for kind in (*late, chain.dtype) if kind in kinds]
    kind = chain.one(*(usual if usual and chain.chance(FITTING) else kinds))
    samples = list(itertools.islice(entry.sample_inputs("cpu", kind), SAMPLES))
    fitting = [sample for sample in samples if any(_fits(name, sample, value.data) for value in chain.values)]
    return chain.one(*(fitting if fitting and chain.chance(FITTING) else samples))


def _fits(name: str, sample: Any, value: Any) -> bool:
    """Return whether a value of the chain may take the place of the first tensor of a sample: of any rank if all have
    one shape."""
    tensors = [leaf for leaf in tree_leaves((sample.input, sample.args)) if isinstance(leaf, torch.Tensor)]
    if not tensors or not isinstance(value, torch.Tensor) or value.dtype != tensors[0].dtype:
        return False
    alike = all(tensor.shape == tensors[0].shape for tensor in tensors)
    if _TRUSTING.search(name) and not (alike and name.startswith("aten.")):
        return bool(value.shape == tensors[0].shape)
    return alike or value.ndim == tensors[0].ndim


def _bind(chain: Chain, name: str, sample: Any, fresh: bool) -> None:
    pattern = _Pattern(chain, name, sample, fresh)
    args = [pattern.argument(arg) for arg in (sample.input, *sample.args)]
    kwargs = {key: pattern.argument(arg) for key, arg in sample.kwargs.items() if key not in _DROPPED}
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    if not name.endswith("_") or name.startswith("aten."):
        chain.call_any(name, *args, **kwargs)
        return
    target = args.pop(0)
    require(isinstance(target, Value), "nothing to write into")
    leaf = target.data.requires_grad and target.data.is_leaf
    if leaf or chain.chance(0.3) or _reads_what_it_writes(name, target, [*args, *kwargs.values()]):
        target = chain.call("torch.clone", target)
    chain.do(name, target, *args, **kwargs)


def _reads_what_it_writes(name: str, target: Value, others: Sequence[Any]) -> bool:
    """Return whether another argument shares the target's memory.

    Only pointwise operators define what they then leave.
    """
    are_pointwise = all(type(entry).__name__ in _POINTWISE for entry in operators()[name])
    return not are_pointwise and any(map(target.shares_memory, values_of(list(others))))


class _Pattern:
    """The arguments of one sample, on their way to those of a step."""

    def __init__(self, chain: Chain, name: str, sample: Any, fresh: bool) -> None:
        self._chain, self._name, self._sample, self._fresh = chain, name, sample, fresh
        self._sizes: dict[int, int] = {}  # of the sample, to those of the step
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._indexed: tuple[int, ...] = ()  # sizes of the value that whole numbers may index

    def argument(self, value: Any) -> Any:
        """Return what stands for one argument of the sample. Raises RefusedStepError for what the format lacks."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        require(value is None or isinstance(value, _WRITTEN), f"a {type(value).__name__}")
        return value

    def _tensor(self, tensor: torch.Tensor) -> Value:
        is_usual = tensor.layout == torch.strided and not tensor.is_quantized and tensor.dtype in DTYPES
        require(is_usual, f"{tensor.layout}, {tensor.dtype}")
        shape = tuple(tensor.shape)
        if not self._shapes and not self._fresh:
            value = self._chain.pick(lambda t: _fits(self._name, self._sample, t), 0.05) or self._of_rank(tensor)
            if value is not None:
                self._shapes[shape] = value.shape
                self._indexed = () if tensor.dtype in WHOLE else tuple(filter(None, value.shape))
                pairs = [*zip(reversed(shape), reversed(value.shape), strict=False)]
                self._sizes = dict(self._chain.numbers.sample(pairs, len(pairs)))  # any of those that were equal
                return self._within(tensor, value)
        wanted = self._shapes.setdefault(shape, tuple(self._sizes.get(size, size) for size in shape))
        value = None
        if self._chain.chance(0.25 if self._fresh else 0.6):
            value = self._chain.pick(lambda t: t.dtype == tensor.dtype and tuple(t.shape) == wanted, 0.0)
        return value or self._chain.input(wanted, tensor.dtype, self._init(tensor))

    def _of_rank(self, tensor: torch.Tensor) -> Value | None:
        """Return a view of a value, with as many dimensions as the tensor; None for one that must have its sizes."""
        rank = tensor.ndim
        if _TRUSTING.search(self._name) or not rank:
            return None
        value = self._chain.pick(
            lambda t: t.dtype == tensor.dtype and t.numel() > 0 and 1 <= abs(t.ndim - rank) <= 2, 0.1
        )
        while value is not None and value.ndim != rank:
            if value.ndim < rank:
                value = self._chain.call("torch.unsqueeze", value, self._chain.integer(0, value.ndim))
            elif self._chain.chance(0.5):
                value = self._chain.call("torch.select", value, self._chain.dim(value), 0)
            else:
                value = self._chain.call("torch.flatten", value, 0, 1)
        return value

    def _within(self, tensor: torch.Tensor, value: Value) -> Value:
        """Return the value, clamped to the numbers of the sample where these seem to be the operator's domain."""
        if not tensor.is_floating_point() or not tensor.numel() or self._chain.chance(0.1):
            return value
        low, high = float(tensor.min()), float(tensor.max())
        if (low < -1 < 1 < high) or not math.isfinite(low) or not math.isfinite(high):
            return value
        return self._chain.call("torch.clamp", value, _rounded(low), _rounded(high))  # type: ignore[no-any-return]

    def _init(self, tensor: torch.Tensor) -> Any:
        """How a new input is filled: within the bounds of the sample's numbers, which lie in the operator's domain."""
        if not tensor.numel() or tensor.dtype == torch.bool or tensor.is_complex():
            return None
        low, high = float(tensor.min()), float(tensor.max())
        if tensor.dtype in WHOLE:
            return {"randint": [int(low), max(int(low) + 1, min(int(high) + 1, *self._indexed, sys.maxsize))]}
        if not math.isfinite(low) or not math.isfinite(high) or (low < -1 < 1 < high and self._chain.chance(0.6)):
            return None
        return {"uniform": [_rounded(low), _rounded(high)]} if low < high else {"full": _rounded(low)}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
