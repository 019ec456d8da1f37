"""A value as it was at one moment: a tree of leaves, each with its metadata and a copy of its elements or its value."""

from __future__ import annotations

import array
import datetime
import decimal
import enum
import fractions
import pickle
import random
import sys
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from runner.worker.guarded import Refusal, ask, describe
from runner.worker.program.walk import PLAIN, Unread, class_name, flatten, is_array
from runner.worker.tensors import as_integers, has_numbers
from runner.worker.torch_private.dispatch import plain_functions, refuses_writes

FIXED = (
    *PLAIN,
    *(torch.Size, range, slice, decimal.Decimal, fractions.Fraction),
    *(datetime.date, datetime.time, datetime.timedelta, enum.Enum),
)
"""Values that nothing can change."""

_NUMPYS = frozenset({"Generator", "RandomState", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"})
_NUMBERS = frozenset({bool, int, float, complex, bytes, type(None)})

NOTHING = object()
"""Stands for the value of a leaf that has none."""


def python_value(leaf: Any, module: str) -> Any:
    """Return a value that is the same in every run, and that no later call changes; ``NOTHING`` for other leaves.

    An enumeration's member has its name, a class its full name, and a text that of the module under which the case's
    source was loaded only as ``source``.
    """
    cls = type(leaf)
    if cls in _NUMBERS:  # as most leaves are
        return leaf
    if issubclass(cls, enum.Enum):
        return leaf._name_ or repr(leaf._value_)
    if issubclass(cls, str):
        return str.replace(leaf, module, "source") if module and str.find(leaf, module) >= 0 else leaf
    if issubclass(cls, FIXED):
        return leaf
    if issubclass(cls, bytearray):
        return bytes(leaf)
    if issubclass(cls, array.array):
        return leaf.typecode, leaf.tobytes()
    if issubclass(cls, type):
        return class_name(leaf, module)
    if is_generator(cls):
        return _generator_state(leaf)
    return _set_value(leaf, module) if issubclass(cls, (set, frozenset)) else NOTHING


def is_generator(cls: type) -> bool:
    """Return whether objects of a class draw random numbers: torch's, Python's and NumPy's own."""
    is_numpys = cls.__name__ in _NUMPYS and cls is getattr(sys.modules.get("numpy.random"), cls.__name__, None)
    return is_numpys or cls is torch.Generator or cls is random.Random


def _generator_state(leaf: Any) -> str:
    """Return a few digits of the state of a generator, which decides the next random number."""
    if type(leaf) is torch.Generator:
        state = leaf.get_state().tolist()
    elif type(leaf) is random.Random:
        state = leaf.getstate()
    else:
        state = leaf.get_state() if hasattr(leaf, "get_state") else getattr(leaf, "bit_generator", leaf).state
    return f"the state {zlib.crc32(pickle.dumps(state)):08x}"


def _set_value(leaf: Any, module: str) -> Any:
    """Return a set of the values of its elements, ``NOTHING`` if one has none."""
    base = set if isinstance(leaf, set) else frozenset
    try:
        elements = [_element(element, module) for element in base.__iter__(leaf)]
        return NOTHING if any(element is NOTHING for element in elements) else frozenset(elements)
    except Exception:  # noqa: BLE001  a class of the case may have no hash
        return NOTHING


def _element(element: Any, module: str) -> Any:
    if type(element) is tuple:
        parts = tuple(_element(part, module) for part in element)
        return NOTHING if any(part is NOTHING for part in parts) else parts
    value = python_value(element, module)
    return "nan" if isinstance(value, float) and value != value else value


_LAZY, _META = WITHOUT_ELEMENTS = ("it has no elements yet", "a meta tensor has no elements")
"""Problems of tensors of which no more than metadata exists."""


@dataclass(frozen=True)
class TensorMetadata:
    """What a user can see of a tensor besides its elements. ``stride`` and ``offset`` (in elements) are None where
    the layout has none. ``parts`` are the shapes of those of a nested tensor, ``dims`` are the sparse and the dense
    dimensions of a sparse one, and whether it is coalesced. ``indices`` are the dtype of the indices of a compressed
    sparse tensor, and the sizes of its blocks. ``quantizer`` is how a quantized one maps numbers to integers.
    ``is_leaf`` holds for one that requires a gradient. ``hooks`` is how many autograd calls of a leaf.
    ``refuses_writes`` tells of a view that autograd lets nobody write into."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    layout: str
    stride: tuple[int, ...] | None
    offset: int | None
    requires_grad: bool
    is_conj: bool
    is_neg: bool
    parts: tuple[tuple[int, ...], ...] = ()
    dims: tuple[int, ...] = ()
    indices: tuple[Any, ...] = ()
    quantizer: tuple[Any, ...] = ()
    is_leaf: bool = False
    is_inference: bool = False
    hooks: int = 0
    refuses_writes: bool = False


@dataclass(frozen=True)
class Leaf:
    """One leaf. ``kind`` is ``tensor``, ``python`` (``value`` is the object) or ``opaque`` (its elements cannot be
    had, ``problem`` says why). A tensor's ``value`` is a dense copy on the CPU, or None with a ``problem``.
    ``as_loaded`` says of a Python value in a variable of the case's file that no call has changed it."""

    path: str
    kind: str
    type: str
    value: Any
    metadata: TensorMetadata | None = None
    problem: str | None = None
    as_loaded: bool = False


@dataclass(frozen=True)
class Tree:
    """``structure`` is a text: equal texts mean equal containers, keys and order.

    ``replaced`` names, by path, what a call has put in place of an object that stood there before it.
    """

    structure: str
    leaves: tuple[Leaf, ...]
    replaced: Mapping[str, str] = field(default_factory=dict)

    def parts(self) -> dict[str, Tree]:
        """Return the parts of a tree that was joined from named ones, as state is."""
        named = [part.partition(": ") for part in self.structure.split("; ")]
        leaves: dict[str, list[Leaf]] = {name: [] for name, *_ in named}
        for leaf in self.leaves:
            leaves.setdefault(owner(leaf.path, leaves), []).append(leaf)
        replaced: dict[str, dict[str, str]] = {name: {} for name in leaves}
        for path, remark in self.replaced.items():
            replaced.setdefault(owner(path, leaves), {})[path] = remark
        return {name: Tree(structure, tuple(leaves[name]), replaced[name]) for name, _, structure in named}

    def without(self, names: Collection[str]) -> Tree:
        """Return the tree without some of its ``parts``."""
        parts = self.parts()
        kept = "; ".join(f"{name}: {part.structure}" for name, part in parts.items() if name not in names)
        dropped = {leaf.path for name in names if name in parts for leaf in parts[name].leaves}
        replaced = {path: remark for path, remark in self.replaced.items() if not owner(path, names)}
        return Tree(kept, tuple(leaf for leaf in self.leaves if leaf.path not in dropped), replaced)


def owner(path: str, names: Iterable[str]) -> str:
    """Return the name of the part of a tree in which a path lies; empty for none of ``names``."""
    owners = (name for name in names if path == name or path.startswith((f"{name}[", f"{name}.")))
    return max(owners, key=len, default="")


def elements(leaf: Leaf) -> torch.Tensor | None:
    """Return a tensor's copy, or a Python float or complex number in float64 or complex128, without dimensions.

    Any other leaf gives None.
    """
    if leaf.metadata is not None:
        return leaf.value
    if not isinstance(leaf.value, (float, complex)):
        return None
    return torch.tensor(leaf.value, dtype=torch.complex128 if isinstance(leaf.value, complex) else torch.float64)


def snapshot(value: Any, root: str, module: str = "", copy: bool = True) -> Tree:
    """Copy a nest of containers, tensors and Python values.

    Args:
        value: what a model returned, took or holds.
        root: how paths begin, such as ``output``.
        module: the name that the case's source was loaded under. It differs every run, so class names lose it.
        copy: False where nothing will write to the tensors any more: then large ones need not be held twice.
    """
    structure, leaves = flatten(value, root, module)
    return Tree(structure, tuple(snapshot_leaf(leaf, path, module, copy) for path, leaf in leaves))


def snapshot_leaf(leaf: Any, path: str, module: str = "", copy: bool = True) -> Leaf:
    """Copy one leaf. A tensor's copy is detached, dense, on the CPU, with lazy conjugation and negation carried out."""
    if isinstance(leaf, Unread):
        return Leaf(path, "opaque", leaf.type, None, problem=leaf.problem)
    kind = class_name(type(leaf), module)
    if isinstance(leaf, torch.Tensor):
        if is_lazy(leaf):
            return Leaf(path, "opaque", kind, None, problem=_LAZY)
        metadata = metadata_of(leaf)
        if metadata.device.startswith("meta"):
            return Leaf(path, "tensor", kind, None, metadata, _META)
        try:
            return Leaf(path, "tensor", kind, _elements(leaf, copy), metadata)
        except Exception as error:  # noqa: BLE001  tensor subclasses and layouts may refuse any of it
            problem = f"its elements cannot be had: {type(error).__name__}: {error}"
            return Leaf(path, "tensor", kind, None, metadata, problem)
    value = python_value(leaf, module)
    if value is NOTHING and is_array(type(leaf)):
        try:
            value = _array_value(leaf)
        except Exception as error:  # noqa: BLE001  of a dtype that another package adds
            return Leaf(path, "opaque", kind, None, problem=f"its values cannot be had: {describe(error)}")
    if isinstance(value, torch.Tensor):
        return Leaf(path, "tensor", kind, value, metadata_of(value))
    value = _copy_with_equality(leaf) if value is NOTHING else value
    if value is NOTHING:
        return Leaf(path, "opaque", kind, None, problem=f"a {kind} cannot be compared")
    return Leaf(path, "python", kind, value)


def _array_value(array: Any) -> torch.Tensor | tuple[str, tuple[int, ...], Any]:
    """Return a copy of an array of NumPy or a scalar: a tensor, or else its dtype, shape and values."""
    numpy = sys.modules["numpy"]
    plain = numpy.asarray(array)
    if plain.dtype.kind in "biufc" and plain.dtype.char not in "gG":  # torch has no long double
        return torch.as_tensor(numpy.array(plain, dtype=plain.dtype.newbyteorder("=")))
    if plain.dtype.kind == "V":
        return str(plain.dtype), plain.shape, plain.tobytes()
    return str(plain.dtype), plain.shape, (plain if plain.dtype.kind in "US" else plain.astype(str)).tolist()


def _copy_with_equality(leaf: Any) -> Any:
    """Return a copy of an object that compares by value, so that it equals its copy; ``NOTHING`` for another one.

    Such as a set of tensors compares by identity, which no two runs share. So does a reference to an object.
    """
    if "__eq__" not in {name for base in type(leaf).__mro__[:-1] for name in vars(base)} or type(leaf) is weakref.ref:
        return NOTHING
    try:
        copied = ask(lambda: deepcopy(leaf))
        return copied if ask(lambda: bool(copied == leaf)) else NOTHING
    except Refusal:
        return NOTHING


def metadata_of(tensor: torch.Tensor) -> TensorMetadata:
    """Return the metadata of a tensor."""
    strided = tensor.layout == torch.strided and not tensor.is_nested
    is_sparse = tensor.layout == torch.sparse_coo
    is_leaf = tensor.requires_grad and tensor.is_leaf
    hooks = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)) if is_leaf else ()
    return TensorMetadata(
        shape=() if tensor.is_nested else tuple(int(size) for size in tensor.shape),
        dtype=tensor.dtype,
        device=str(tensor.device),
        layout=str(tensor.layout),
        stride=tuple(int(step) for step in tensor.stride()) if strided else None,
        offset=int(tensor.storage_offset()) if strided else None,
        requires_grad=tensor.requires_grad,
        is_conj=tensor.is_conj(),
        is_neg=tensor.is_neg(),
        parts=tuple(tuple(part.shape) for part in tensor.detach().unbind()) if tensor.is_nested else (),
        dims=(tensor.sparse_dim(), tensor.dense_dim(), int(tensor.is_coalesced())) if is_sparse else (),
        indices=_indices(tensor) if tensor.layout in _COMPRESSED else (),
        quantizer=_quantizer(tensor) if tensor.is_quantized else (),
        is_leaf=is_leaf,
        is_inference=tensor.is_inference(),
        hooks=sum(len(table or ()) for table in hooks),
        refuses_writes=refuses_writes(tensor),
    )


_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _indices(tensor: torch.Tensor) -> tuple[Any, ...]:
    by_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    dtype = (tensor.crow_indices() if by_rows else tensor.ccol_indices()).dtype
    dense = tensor.dim() - tensor.dense_dim()  # plain dimensions, batches among them
    sizes = tensor.values().shape
    return dtype, tuple(sizes[dense - 1 : dense + 1]) if tensor.layout in _COMPRESSED[2:] else ()


def _quantizer(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the scheme, the scales and zero points, and the axis of a quantized tensor."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return tensor.qscheme(), tensor.q_scale(), tensor.q_zero_point()
    scales, points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return tensor.qscheme(), scales.tolist(), points.tolist(), tensor.q_per_channel_axis()


def storage_key(tensor: torch.Tensor) -> int | None:
    """Return a key that is equal for tensors that share a storage; None for an empty tensor or one without a storage.

    ``_cdata`` is the address of the storage object itself, so that two storages never look alike while both live.
    """
    try:
        return int(tensor.untyped_storage()._cdata) if tensor.numel() else None
    except (RuntimeError, NotImplementedError, AttributeError):
        return None


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Return ``value`` with every tensor in it replaced, in the containers that torch's pytree knows."""
    return pytree.tree_map(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def _elements(tensor: torch.Tensor, copy: bool) -> torch.Tensor:
    """Return the elements, dense, on the CPU; the bytes as integers where torch has no numbers.

    Of a subclass that computes with parts of its own, those of all parts stand in one row.

    Raises:
        TypeError: such a subclass does not name its parts.
    """
    with plain_functions():
        if not tensor.is_nested and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            names = getattr(tensor, "__tensor_flatten__", None)
            if names is None:
                raise TypeError("a subclass with __torch_dispatch__ and without __tensor_flatten__")
            return torch.cat([_elements(getattr(tensor, name), copy=False).reshape(-1) for name in names()[0]])
        dense = tensor.detach()
        if dense.is_nested:
            dense = torch.cat([part.reshape(-1) for part in dense.unbind()])
        elif dense.is_quantized:
            dense = dense.dequantize()
        elif dense.layout != torch.strided:
            dense = dense.to_dense()
        dense = dense.as_subclass(torch.Tensor)
        dense = dense.resolve_conj().resolve_neg() if has_numbers(dense.dtype) else as_integers(dense)
        if dense.device.type != "cpu":
            return dense.cpu()
        return dense.clone() if copy else dense
