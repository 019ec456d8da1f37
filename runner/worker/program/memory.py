"""Which objects and which memory inputs, state and results share, and what a call or a write changes there.

Whoever holds an object, or memory of it, sees what is written into it later.
"""

from __future__ import annotations

import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from runner.worker.program.snapshot import Leaf, snapshot_leaf, storage_key
from runner.worker.program.walk import is_array
from runner.worker.tensors import as_integers
from runner.worker.torch_private.dispatch import disable_modes

BEFORE = " before the call"
"""How the name of an object ends that no longer stands at its place."""
_IS, _SHARES = "is ", "shares memory with "
"""How relations begin."""
_LARGEST_WRITE = 1 << 20
"""Elements of inputs and state together beyond which nothing is tried: each write compares them all."""
_LARGEST_STORAGE = 1 << 26
"""Bytes of a storage beyond which its gaps are not looked at: they are copied twice."""

Gaps = tuple[torch.Tensor, torch.Tensor]
"""What the gaps of a storage hold before a call and after it, each as one row."""
Relations = dict[str, frozenset[str]]
"""What objects *are*, and with what they share memory, by their paths."""
Pairs = Iterable[tuple[str, Any]]
"""Objects with their paths."""

# --- addresses ---


def reach(tensor: torch.Tensor) -> range:
    """Return the addresses from the first element's to the last one's: none where it has no elements."""
    size = tensor.element_size()
    return _reach_of(tensor.data_ptr(), tensor.shape, [step * size for step in tensor.stride()], size)


def _array_reach(array: Any) -> range:
    """Return the addresses of an array of NumPy, as ``reach`` does of a tensor's."""
    return _reach_of(array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


def _reach_of(first: int, shape: Sequence[int], steps: Sequence[int], size: int) -> range:
    """Return the addresses from the first byte of elements to the last, by their ``steps`` and ``size`` in bytes."""
    ends = [(count - 1) * step for count, step in zip(shape, steps, strict=True)]
    below, above = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return range(first + below, first + above + size) if 0 not in shape else range(0)


def _meet(first: range, second: range) -> bool:
    return max(first.start, second.start) < min(first.stop, second.stop)


def element_bytes(row: torch.Tensor, start: int, tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of ``row``, one element for each byte from the address ``start`` on, that belongs to those of
    ``tensor``."""
    size = tensor.element_size()
    steps = (*(step * size for step in tensor.stride()), 1)
    return row.as_strided((*tensor.shape, size), steps, tensor.data_ptr() - start)


def have_common_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors that are alive, and on one device, have an element in the same place."""
    one, another = reach(first), reach(second)
    if not _meet(one, another) or (_is_dense(first) and _is_dense(second)):
        return _meet(one, another)
    start = min(one.start, another.start)
    row = torch.zeros(max(one.stop, another.stop) - start, dtype=torch.bool)
    element_bytes(row, start, first).fill_(True)
    return bool(element_bytes(row, start, second).any())


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor surely has an element in each byte that it reaches over."""
    return tensor.is_contiguous() or bool(tensor.dim() == 2 and tensor.t().is_contiguous())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements at strides in memory that anybody may write to."""
    kind = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    strided = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return kind and strided and tensor.numel() > 0 and tensor.device.type != "meta" and not tensor.is_inference()


# --- relations between objects ---


def _is_array(value: Any) -> bool:
    return is_array(type(value), scalars=False)


@dataclass(frozen=True)
class _Memory:
    """An object, and the memory in which it lies."""

    path: str
    value: Any

    @cached_property
    def is_tensor(self) -> bool:
        """Return whether it is a tensor, and not a parameter of a lazy module that has not run yet."""
        return issubclass(type(self.value), torch.Tensor) and not is_lazy(self.value)

    @cached_property
    def key(self) -> int | None:
        """Return the key of a tensor's storage."""
        return storage_key(self.value) if self.is_tensor else None

    @cached_property
    def place(self) -> range:
        """Return the addresses that an array or a plain tensor reaches over."""
        if _is_array(self.value):
            return _array_reach(self.value)
        return reach(self.value) if self.is_tensor and _is_plain(self.value) else range(0)

    @cached_property
    def storage(self) -> range:
        """Return the addresses of an array, or of a tensor's storage on the CPU."""
        if not self.is_tensor:
            return self.place
        if self.key is None or self.value.device.type != "cpu":
            return range(0)
        storage = self.value.untyped_storage()
        try:
            first = storage.data_ptr()
        except RuntimeError:  # of a subclass that has no elements of its own
            return range(0)
        return range(first, first + storage.nbytes())

    def shares_storage(self, other: _Memory) -> bool:
        """Return whether both lie in one storage, or in the same memory if one is an array."""
        if self.is_tensor and other.is_tensor:
            return self.key is not None and self.key == other.key
        return _meet(self.storage, other.storage)

    def shares_elements(self, other: _Memory) -> bool:
        """Return whether both have an element in common, as far as their memory can be told; else as above."""
        if not (self.place and other.place):
            return self.key is not None and self.key == other.key
        if not _meet(self.place, other.place):
            return False
        if self.is_tensor and other.is_tensor:
            return self.value.device == other.value.device and have_common_elements(self.value, other.value)
        return all(one.value.device.type != "cuda" for one in (self, other) if one.is_tensor)


def _alias(one: _Memory, another: _Memory) -> str:
    """Return how an output belongs to another object; empty where they share nothing."""
    if one.is_tensor and one.value is another.value and one.value.numel():
        return f"{_IS}{another.path}"
    return f"{_SHARES}{another.path}" if one.shares_storage(another) else ""


def _common(one: _Memory, another: _Memory) -> str:
    """Return how one object belongs to another one; empty where a write into either shows in itself alone.

    Of two tensors over the same memory nobody sees whether they are one, unless these are parameters.
    """
    is_same, cls = one.value is another.value, type(one.value)
    if is_same and (not issubclass(cls, torch.Tensor) or issubclass(cls, torch.nn.Parameter)):
        return f"{_IS}{another.path}"
    return f"{_SHARES}{another.path}" if is_same or one.shares_elements(another) else ""


def _relations(
    values: Pairs,
    sources: Pairs,
    relate: Callable[[_Memory, _Memory], str],
    addresses: Callable[[_Memory], range],
) -> Relations:
    """Return the relations of values to sources and to earlier values, of which ``addresses`` says where they lie."""
    known = [_Memory(path, value) for path, value in sources]
    memories = [_Memory(path, value) for path, value in values]
    groups = _groups([*known, *memories], addresses)
    near: defaultdict[int, list[_Memory]] = defaultdict(list)
    for memory, group in zip(known, groups):  # noqa: B905  those of the values follow
        near[group].append(memory)
    relations = {}
    for memory, group in zip(memories, groups[len(known) :], strict=True):
        relations[memory.path] = frozenset(filter(None, (relate(memory, one) for one in near[group])))
        near[group].append(memory)
    return relations


def _groups(memories: Sequence[_Memory], addresses: Callable[[_Memory], range]) -> list[int]:
    """Return a number for each object: only those with one number can be related.

    A thousand parameters have half a million pairs, nearly all of them far apart. Objects are near one another where
    their addresses meet, or where they have one storage.
    """
    reaches = {n: part for n, one in enumerate(memories) if (part := addresses(one))}
    groups, group, end = [*range(len(memories))], 0, 0
    for n, part in sorted(reaches.items(), key=lambda item: item[1].start):
        group, end = (group, max(end, part.stop)) if part.start < end else (n, part.stop)
        groups[n] = group
    joined: dict[int, int] = {}  # of objects that nobody knows the addresses of, and of one storage at several

    def root(number: int) -> int:
        while number in joined:
            number = joined[number]
        return number

    first: dict[tuple[str, int], int] = {}
    for n, one in enumerate(memories):
        for name, key in (("object", id(one.value)), ("storage", one.key)):
            if key is not None and (other := root(first.setdefault((name, key), groups[n]))) != root(groups[n]):
                joined[root(groups[n])] = other
    return [root(number) for number in groups]


def find_relations(outputs: Pairs, sources: Pairs) -> Relations:
    """Return for every tensor or array among outputs what it *is* and what it shares memory with.

    These are ``sources``, the inputs and the state, and earlier outputs. An array only shares: who gives it makes it
    anew.
    """
    return _relations(_with_memory(outputs), _with_memory(sources), _alias, attrgetter("storage"))


def _with_memory(values: Pairs) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and tensors, without the parameters of lazy modules that have not run yet."""
    return ((path, value) for path, value in values if _is_array(value) or _Memory(path, value).is_tensor)


def find_common(values: Pairs, sources: Pairs) -> Relations:
    """Return what each of ``values`` *is* among ``sources`` and earlier values, and with what it has an element in
    common."""
    with disable_modes():
        return _relations(values, sources, _common, attrgetter("place"))


def find_sharing(before: Places, results: Pairs, after: Places, keeps: bool = True) -> Relations:
    """Return for all that a call has put into inputs and state what it *is*, and with what it has an element in common.

    These are the objects ``before`` the call, ``results`` of this call and of earlier ones, and what else it has put
    there. An object that it has removed counts where the device ``keeps`` its memory: a CUDA graph may use it again.
    """
    changed = after.changed(before)
    sources = []
    for path, (value, _) in before.objects.items() if changed else ():
        now = after.objects[path][0] if path in after.objects else None
        if path not in changed and now is value:
            sources.append((path, value))
        elif keeps and now is not value and not _is_array(value):
            sources.append((path + BEFORE, value))
    return find_common([(path, after.objects[path][0]) for path in changed], [*sources, *results])


def memory_of(relations: frozenset[str]) -> frozenset[str]:
    """Return the tensors whose memory an output shares, whether it *is* one of them or not."""
    return frozenset(map(source_of, relations))


def source_of(relation: str) -> str:
    """Return what a relation is about."""
    return relation.removeprefix(_IS).removeprefix(_SHARES)


# --- which objects stand where ---


@dataclass(frozen=True)
class Places:
    """Objects that can change, by their paths, each with its storage. Both are held, so that their addresses stay
    theirs."""

    objects: Mapping[str, tuple[Any, Any]]

    @staticmethod
    def of(leaves: Pairs, containers: Mapping[str, Any]) -> Places:
        """Return the places of containers, and of the tensors, arrays, sets and bytearrays among leaves."""
        tensors = {path: (leaf, _storage(leaf)) for path, leaf in leaves if issubclass(type(leaf), torch.Tensor)}
        others = {
            path: leaf
            for path, leaf in leaves
            if issubclass(type(leaf), (set, bytearray, array.array)) or _is_array(leaf)
        }
        return Places({**{path: (value, None) for path, value in {**containers, **others}.items()}, **tensors})

    def joined(self, others: Places) -> Places:
        """Return these places and others."""
        return Places({**self.objects, **others.objects})

    def changed(self, before: Places) -> list[str]:
        """Return the paths at which another object stood ``before``, or none, or the same one with other memory."""
        return [
            path
            for path, (value, storage) in self.objects.items()
            if path not in before.objects
            or before.objects[path][0] is not value
            or _key(before.objects[path][1]) != _key(storage)
        ]

    def replaced(self, after: Places) -> dict[str, str]:
        """Return what stands ``after`` a call in place of another object, by its path.

        NumPy's arrays do not count: Dynamo puts another array in the place of one that ``+=`` writes into.
        """
        pairs = {path: (self.objects[path][0], after.objects[path][0])
                 for path in after.changed(self) if path in self.objects}  # fmt: skip
        return {
            path: "other memory" if now is value else f"another {type(now).__name__}"
            for path, (value, now) in pairs.items()
            if not _is_array(value)
        }

    def relations(self, *sources: Places) -> Relations:
        """Return which containers *are* containers of ``sources``, as ``find_relations`` says it of tensors."""
        known = {id(value): path for places in reversed(sources) for path, (value, _) in places.objects.items()}
        return {
            path: frozenset({f"{_IS}{known[id(value)]}"})
            for path, (value, _) in self.objects.items()
            if id(value) in known and not (issubclass(type(value), torch.Tensor) or _is_array(value))
        }


def _storage(tensor: torch.Tensor) -> Any:
    return None if is_lazy(tensor) or storage_key(tensor) is None else tensor.untyped_storage()


def _key(storage: Any) -> int | None:
    return None if storage is None else int(storage._cdata)


# --- what a caller keeps from call to call ---


@dataclass(frozen=True)
class KeptTensors:
    """Tensors and arrays of one call, mostly detached so that no autograd graph is kept, and their elements right after
    it. A backend that reuses its memory writes into them, or gives their memory out again."""

    values: Mapping[str, Any]
    elements: Mapping[str, torch.Tensor]

    @staticmethod
    def of(values: Pairs, leaves: Iterable[Leaf]) -> KeptTensors:
        """Return what can be compared later: tensors and arrays by their paths, and the copies that a snapshot
        holds."""
        copies = {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)}
        kept = {
            path: value.detach() if isinstance(value, torch.Tensor) else value
            for path, value in values
            if path in copies
        }
        return KeptTensors(kept, {path: copies[path] for path in kept})

    def overwritten(self) -> dict[str, torch.Tensor]:
        """Return copies of what holds other bits than right after the call, by their paths."""
        with disable_modes():  # memory that is read as bytes has no float64 shadow any more
            now = ((path, snapshot_leaf(value, path, copy=False).value) for path, value in self.values.items())
            return {
                path: value.clone()
                for path, value in now
                if isinstance(value, torch.Tensor) and not torch.equal(_bytes(value), _bytes(self.elements[path]))
            }

    def named(self, call: int) -> Iterator[tuple[str, Any]]:
        """Yield the values with paths that name the call."""
        return ((f"{path} of call {call}", value) for path, value in self.values.items())

    def repeated(self, calls: Iterable[KeptTensors]) -> frozenset[tuple[str, int, str]]:
        """Return what is shared with earlier ``calls``, in their order: a path, a call's number and a path of that
        call."""
        return frozenset((path, call, same) for call, one in enumerate(calls) for path, same in self.shared_with(one))

    def shared_with(self, earlier: KeptTensors) -> list[tuple[str, str]]:
        """Return a path and one of ``earlier`` for all plain dense tensors that have an element in common.

        They may have storages of their own over the same memory. All are alive, so that no allocator has given it
        twice.
        """
        with disable_modes():
            places = earlier._places()
            return [
                (path, earlier_path)
                for path, tensor, memory in self._places()
                for earlier_path, earlier_tensor, place in places
                if _meet(memory, place) and tensor.device == earlier_tensor.device
                if have_common_elements(tensor, earlier_tensor)
            ]

    def _places(self) -> list[tuple[str, torch.Tensor, range]]:
        types = (torch.Tensor, torch.nn.Parameter)  # a subclass may refuse to have its memory read
        plain = ((path, value) for path, value in self.values.items() if type(value) in types)
        return [(p, t, reach(t)) for p, t in plain if t.layout == torch.strided and not t.is_nested]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor: a NaN equals itself there.

    A lone element counts as contiguous with any stride, and only one of stride 1 can be viewed as bytes.
    """
    dense = tensor.contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


# --- aliases by their effect ---


def add_writes(
    relations: Relations, outputs: list[tuple[str, torch.Tensor]], tensors: list[tuple[str, torch.Tensor]]
) -> Relations:
    """Return the relations and those that only a write shows. A user cannot tell shared storage from shared memory.

    Storage identity finds most of them. But memory can be shared below the storage (NumPy's arrays, tensors made over
    foreign memory), and then only a write shows it.
    """
    extended = dict(relations)
    for (path, _), paths in zip(outputs, paths_written([tensor for _, tensor in outputs], tensors)):  # noqa: B905
        by_write = {f"{_SHARES}{target}" for target in paths if f"{_IS}{target}" not in relations[path]}
        extended[path] = relations[path] | by_write
    return extended


def paths_written(outputs: Sequence[torch.Tensor], tensors: Sequence[tuple[str, torch.Tensor]]) -> list[frozenset[str]]:
    """Return for each output the paths of ``tensors`` that a write into its first element changes. All is put back.

    No write is tried into an output that is empty, not strided, overlapping itself, on the meta device, or an inference
    tensor. Its set is empty.
    """
    writable = [(path, tensor) for path, tensor in tensors if _is_plain(tensor)]
    if sum(tensor.numel() for _, tensor in writable) > _LARGEST_WRITE:
        return [frozenset() for _ in outputs]
    with disable_modes():  # the write that is put back and the comparison of bits are not the program's
        snapshots = [_bits(tensor.detach().clone()) for _, tensor in writable]  # each write is put back
        return [_paths_changed(output, writable, snapshots) for output in outputs]


def _paths_changed(
    output: torch.Tensor, writable: Sequence[tuple[str, torch.Tensor]], snapshots: Sequence[torch.Tensor]
) -> frozenset[str]:
    if not _is_plain(output) or _overlaps(output):
        return frozenset()
    first = output.detach()[(0,) * output.dim()]
    if first.is_floating_point() and first.element_size() == 1:
        first = as_integers(first)  # float8 dtypes have no operator that chooses between two values
    original = first.clone()
    try:
        first.copy_(~original if original.dtype == torch.bool else torch.where(original == 1, 0, 1))
    except RuntimeError:  # memory that may not be written to, such as an expanded or read-only one
        return frozenset()
    changed = [
        path
        for (path, tensor), snapshot in zip(writable, snapshots, strict=True)
        if not torch.equal(_bits(tensor.detach()), snapshot)
    ]
    first.copy_(original)
    return frozenset(changed)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether two of its elements may be one place in memory: then a write would be counted twice."""
    reach = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step < reach:
                return True
            reach = step * (size - 1) + reach
    return False


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits as integers: a NaN would never equal itself, and of float8 dtypes no comparison is to be had."""
    return as_integers(tensor.resolve_conj().resolve_neg())


# --- memory in which inputs and state have no element, such as what lies between those of ``base[::2]`` ---


@dataclass(frozen=True)
class _Storage:
    """A storage with gaps: the elements of ``dtype`` at ``places``, counted from its beginning."""

    storage: torch.UntypedStorage
    dtype: torch.dtype
    places: torch.Tensor

    @staticmethod
    def of(tensors: Sequence[torch.Tensor]) -> _Storage | None:
        """Return the storage of these if it has gaps, and is small enough."""
        storage = tensors[0].untyped_storage()
        length = storage.nbytes()
        if length > _LARGEST_STORAGE or any(tensor.numel() * tensor.element_size() >= length for tensor in tensors):
            return None
        row = torch.zeros(length, dtype=torch.bool)
        for tensor in tensors:
            element_bytes(row, storage.data_ptr(), tensor).fill_(True)
        size = tensors[0].element_size()
        places = row[: length // size * size].view(-1, size).any(1).logical_not().nonzero().flatten()
        dtype = tensors[0].dtype if size > 1 else torch.uint8  # of float8 dtypes and of bool the bits
        return _Storage(storage, dtype, places) if len(places) else None

    def read(self) -> torch.Tensor | None:
        """Return what the gaps hold, on the CPU; None where the storage has become smaller."""
        count = int(self.places[-1]) + 1
        if self.storage.nbytes() < count * self.dtype.itemsize:
            return None
        row = torch.empty(0, dtype=self.dtype, device=self.storage.device)
        row.set_(self.storage, 0, (count,), (1,))
        return row[self.places.to(row.device)].cpu()


class GapWatch:
    """Gaps as they are before a call."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy what the gaps behind these hold now. Each storage has the path of its first tensor."""
        groups: dict[int | None, list[tuple[str, torch.Tensor]]] = {}
        with disable_modes():
            for path, tensor in tensors:
                if _is_plain(tensor):
                    groups.setdefault(storage_key(tensor), []).append((path, tensor))
            named = {group[0][0]: _Storage.of([tensor for _, tensor in group]) for group in groups.values()}
            self._before = {path: (one, one.read()) for path, one in named.items() if one is not None}

    def read(self) -> dict[str, Gaps]:
        """Return what they held and what they hold now, by the paths."""
        with disable_modes():
            rows = {path: (before, storage.read()) for path, (storage, before) in self._before.items()}
        return {path: (before, now) for path, (before, now) in rows.items() if before is not None and now is not None}
