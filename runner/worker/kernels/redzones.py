"""Copies of tensors in memory between red zones, poisoned wherever no element lies (as AddressSanitizer does).

Bytes are compared as bytes: NaNs keep their payloads, and every dtype is treated alike.

What a launch did to memory that it should not have is a finding. Its path is the argument's name, after the kernel's
where that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from runner.contract.finding import Finding

RED_ZONE = 1 << 16
"""Bytes before and after a storage, at least: more than a block of any usual kernel writes."""
LARGEST_RED_ZONE = 1 << 20
ALIGNMENT = 256
"""A copy begins at the same place modulo this as the original: Triton compiles for what pointers are divisible by."""
FILLED = 1 << 28
"""Bytes beyond which the gaps between elements are not poisoned: a huge view of few elements would use up the
memory."""

# Poison by the bytes of an element: what inputs' surroundings hold, and two for what is new. For floats they are quiet
# NaNs with payloads that no operation makes, each another, so that a copied poison differs from the one that was there;
# for integers large numbers.
_FLOATS: dict[torch.dtype, tuple[int, int, int]] = {
    torch.float16: (0x7FA1, 0x7ED5, 0x7FB3),
    torch.bfloat16: (0x7FE1, 0x7FD5, 0x7FF3),
    torch.float32: (0x7FE1A1A1, 0x7FD5D5D5, 0x7FF3B3B3),
    torch.float64: (0x7FF8A1A1A1A1A1A1, 0x7FF9D5D5D5D5D5D5, 0x7FFAB3B3B3B3B3B3),
    torch.complex64: (0x7FE1A1A1, 0x7FD5D5D5, 0x7FF3B3B3),
    torch.complex128: (0x7FF8A1A1A1A1A1A1, 0x7FF9D5D5D5D5D5D5, 0x7FFAB3B3B3B3B3B3),
}
_BYTES = (0x61, 0x55, 0x73)
INPUT = 0


def pattern(dtype: torch.dtype, poison: int) -> list[int]:
    """Return the bytes of one poisoned element: ``poison`` 0 for what surrounds inputs, 1 and 2 for what is new."""
    size: int = torch.empty((), dtype=dtype).element_size()
    if dtype not in _FLOATS:
        return [_BYTES[poison]] * size
    width = size // 2 if dtype.is_complex else size
    return list(_FLOATS[dtype][poison].to_bytes(width, "little")) * (size // width)


@dataclass(frozen=True)
class Region:
    """Memory that a kernel was given: its address, its bytes, and which of them are elements (None: all)."""

    name: str
    start: int
    size: int
    itemsize: int
    elements: torch.Tensor | None


class _Storage:
    """One storage of the case and its copy. ``low`` and ``high`` bound, in bytes, what its tensors reach."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], new: Sequence[str], poison: int) -> None:
        self.tensors = dict(tensors)
        reached = [_extent(tensor) for tensor in tensors.values()]
        self.low, self.high = min(low for low, _ in reached), max(high for _, high in reached)
        first = next(iter(tensors.values()))
        self.size = self.high - self.low
        self.zone_size = min(max(RED_ZONE, -(-self.size // ALIGNMENT) * ALIGNMENT), LARGEST_RED_ZONE)
        self.buffer = torch.empty(self.zone_size * 2 + self.size + ALIGNMENT, dtype=torch.uint8, device=first.device)
        remainder = (first.untyped_storage().data_ptr() + self.low) % ALIGNMENT
        self.begin = self.zone_size + (remainder - self.buffer.data_ptr() - self.zone_size) % ALIGNMENT
        self.begin -= (self.begin - self.low) % first.element_size()  # for storages at odd places
        is_new = all(name in new for name in tensors)
        self.pattern = pattern(first.dtype, 1 + poison if is_new else INPUT)
        self.covered: torch.Tensor | None = None
        self._fill()
        for name, tensor in tensors.items():
            if not (is_new and name in new) and tensor.numel():
                self.bytes_of(tensor).copy_(_bytes(tensor.detach()))
        self.originals = {name: self.bytes_of(tensor).clone() for name, tensor in tensors.items() if name not in new}

    def _fill(self) -> None:
        parts = [(0, self.begin), (self.begin + self.size, self.buffer.numel())]
        if self.size <= FILLED:
            self.covered = torch.zeros(self.size, dtype=torch.bool, device=self.buffer.device)
            for tensor in self.tensors.values():
                if tensor.numel():
                    _strided(self.covered, tensor, -self.low).fill_(True)
            parts = [(0, self.buffer.numel())]
        for start, stop in parts:
            self.buffer[start:stop] = self._poison(start, stop)

    def _poison(self, start: int, stop: int) -> torch.Tensor:
        """Return the initial bytes ``start`` to ``stop`` of the buffer, in step with the elements."""
        poison = torch.tensor(self.pattern, dtype=torch.uint8, device=self.buffer.device).roll(self.begin - start)
        return poison.repeat(-(-(stop - start) // len(self.pattern)))[: stop - start]

    def bytes_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the elements of the copy of ``tensor``, with a last dimension of their bytes."""
        return _strided(self.buffer, tensor, self.begin - self.low)

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the copy of ``tensor``: the same shape, strides and dtype."""
        offset = self.begin - self.low + tensor.storage_offset() * tensor.element_size()
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return copy.set_(self.buffer.untyped_storage(), offset // tensor.element_size(), tensor.shape, tensor.stride())

    def writes_outside(self) -> Iterator[Finding]:
        """Yield the writes that hit no element. Bytes are counted from the tensor's beginning, negative before it."""
        end, last = self.begin + self.size, self.buffer.numel()
        name = " and ".join(self.tensors)
        for start, stop in ((0, self.begin), (end, last)) if self.covered is None else ((0, last),):
            wrong = self.buffer[start:stop] != self._poison(start, stop)
            if self.covered is not None:
                wrong[self.begin : end] &= ~self.covered
            places = wrong.nonzero()[:, 0] + start - self.begin
            if not len(places):
                continue
            elements = torch.unique(torch.div(places, len(self.pattern), rounding_mode="floor"))
            below, above, first = int((places < 0).sum()), int((places >= self.size).sum()), int(places[0])
            where = [f"{count} {word} it" for count, word in ((below, "before"), (above, "after")) if count]
            where += [f"{len(places) - below - above} between its elements"] * (below + above < len(places))
            message = f"{len(elements)} elements were written outside {name}: bytes {', '.join(where)}"
            numbers = {"first": first, "bytes": len(places)}
            yield Finding("out-of-bounds", f"{message}, the first at byte {first}", name, numbers)

    def put_back(self) -> None:
        """Write what the kernel has made of the copies into the case's own tensors."""
        for name, tensor in self.tensors.items():
            original = self.originals.get(name)
            if tensor.numel() and (original is None or not torch.equal(original, self.bytes_of(tensor))):
                _bytes(tensor).copy_(self.bytes_of(tensor))
                if original is not None:
                    torch.autograd.graph.increment_version(tensor)


class RedZoneCopies:
    """The copies of a launch's tensors; ``views`` are what the kernel gets."""

    def __init__(self, storages: Sequence[_Storage]) -> None:
        self._storages = storages
        self.views = {name: storage.view(tensor) for storage in storages for name, tensor in storage.tensors.items()}

    def regions(self) -> list[Region]:
        """Return the memory of the copies, for a check of accesses."""
        return [
            Region(
                " and ".join(storage.tensors),
                storage.buffer.data_ptr() + storage.begin,
                storage.size,
                len(storage.pattern),
                None if storage.covered is None or bool(storage.covered.all()) else storage.covered,
            )
            for storage in self._storages
        ]

    def unwritten(self, name: str) -> torch.Tensor:
        """Return which elements of a new output still hold its poison, on the CPU."""
        storage = next(storage for storage in self._storages if name in storage.tensors)
        poison = torch.tensor(storage.pattern, dtype=torch.uint8, device=storage.buffer.device)
        return (storage.bytes_of(storage.tensors[name]) == poison).all(-1).cpu()

    def writes_outside(self) -> list[Finding]:
        """Return every write into a red zone."""
        return [write for storage in self._storages for write in storage.writes_outside()]

    def put_back(self) -> None:
        """Write the results into the case's own tensors."""
        for storage in self._storages:
            storage.put_back()


def copy_with_red_zones(tensors: Mapping[str, torch.Tensor], new: Sequence[str], poison: int = 0) -> RedZoneCopies:
    """Copy ``tensors`` between red zones; those that share a storage share the copy's.

    ``poison`` 0 or 1 chooses what the new ones hold.
    """
    groups: dict[object, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        groups.setdefault(address if address and tensor.numel() else name, {})[name] = tensor
    return RedZoneCopies([_Storage(group, new, poison) for group in groups.values()])


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of the storage that a tensor's elements reach, and the one after the last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if not tensor.numel():
        return start, start
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))  # noqa: B905
    return start, start + (last + 1) * size


def _strided(holder: torch.Tensor, tensor: torch.Tensor, shift: int) -> torch.Tensor:
    """Return the bytes of ``tensor``'s elements in a holder of bytes, each once.

    Its storage begins in the holder at byte ``shift``.
    """
    size = tensor.element_size()
    shape = [count if step or not count else 1 for count, step in zip(tensor.shape, tensor.stride())]  # noqa: B905
    steps = [step * size for step in tensor.stride()]
    return holder.as_strided((*shape, size), (*steps, 1), shift + tensor.storage_offset() * size)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    return _strided(storage, tensor, 0)
