"""Triton's interpreter with checked accesses: every load, store and atomic operation, before it touches memory.

The interpreter runs the programs of a grid one after the other in numpy and takes addresses as they come. While
``check_accesses`` lasts,

* an access outside the arguments' memory is noted and left out, so that it cannot crash or change anything. Such a
  load reads poison;
* lanes that a mask leaves out of a load without ``other=`` read poison. Triton does not say what they hold (the
  interpreter alone would say 0);
* an element that one program writes and another writes otherwise, or reads, is a race, since nothing orders programs. A
  launch with atomic compare-and-swap or exchange may order them itself and is not judged so.

Only the interpreter's builder is touched: its methods for masked loads and stores and for atomic operations, through
which all memory goes (3.2 to 3.7). Where a Triton has no such builder nothing is checked, and the red zones of
``launches.py`` say less.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.contract.finding import Finding
from runner.worker.kernels.redzones import INPUT, Region, pattern

NOBODY, SEVERAL = -1, -2
LARGEST = 1 << 22
"""Bytes of an argument beyond which it is not checked for races: two numbers are kept for each."""


@dataclass
class _Outside:
    """Accesses of one kind that reach no argument; the first stands for them."""

    count: int
    element: int  # counted from the first of the nearest argument, as its addresses go
    last: int
    program: tuple[int, ...]
    line: int | None

    def trespass(self, kind: str, name: str) -> Finding:
        """Return them as one trespass beside the argument ``name``."""
        message = (
            f"{self.count} {kind}{'s' if self.count > 1 else ''} outside all arguments, the first at element "
            f"{self.element} of {name}, which has elements 0 to {self.last}, in program {self.program}"
        )
        numbers = {"count": self.count, "element": self.element, "program": list(self.program), "access": kind}
        return Finding("out-of-bounds", message, name, numbers, line=self.line)


@dataclass
class _Memory:
    """One argument's memory and who has touched it: by byte, the last program that wrote and read it plainly."""

    region: Region
    elements: Any  # numpy bool, or None
    wrote: Any = None
    read: Any = None


@dataclass
class AccessLog:
    """What was recorded of a launch."""

    outside: dict[tuple[str, str], _Outside] = field(default_factory=dict)
    races: dict[str, Finding] = field(default_factory=dict)
    synchronized: bool = False
    note: str = ""

    def trespasses(self) -> list[Finding]:
        """Return everything that should not have been done."""
        outside = [access.trespass(kind, name) for (kind, name), access in self.outside.items()]
        return outside + ([] if self.synchronized else list(self.races.values()))


def interprets(kernel: Any) -> bool:
    """Return whether Triton runs this kernel in its interpreter."""
    module = sys.modules.get("triton.runtime.interpreter")
    while module is not None and kernel is not None:
        if isinstance(kernel, module.InterpretedFunction):
            return True
        kernel = getattr(kernel, "fn", None)  # an autotuner's, a heuristic's
        if not hasattr(kernel, "run"):
            return False
    return False


@contextlib.contextmanager
def check_accesses(regions: Sequence[Region], path: str) -> Iterator[AccessLog]:
    """Check what runs in the interpreter while the block lasts.

    ``path`` is the case's source, for lines of accesses.
    """
    log = AccessLog()
    builder = getattr(sys.modules.get("triton.runtime.interpreter"), "interpreter_builder", None)
    names = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    if builder is None or not all(hasattr(builder, name) for name in names):
        log.note = "this Triton's interpreter cannot be watched: reads out of bounds and races are not looked for"
        yield log
        return
    checker = _AccessChecker(builder, log, regions, path)
    import numpy

    try:
        for name in names:
            setattr(builder, name, getattr(checker, name.removeprefix("create_")))
        with numpy.errstate(all="ignore"):  # poison overflows, as it should
            yield log
    finally:
        for name in names:
            vars(builder).pop(name, None)


class _AccessChecker:
    """The builder's methods, with a check of the addresses first."""

    def __init__(self, builder: Any, log: AccessLog, regions: Sequence[Region], path: str) -> None:
        import numpy

        self._np, self._builder, self._log, self._path = numpy, builder, log, path
        self._memories = []
        for region in regions:
            memory = _Memory(region, None if region.elements is None else region.elements.cpu().numpy())
            if region.size <= LARGEST:
                memory.wrote = numpy.full(region.size, NOBODY, dtype=numpy.int64)
                memory.read = numpy.full(region.size, NOBODY, dtype=numpy.int64)
            self._memories.append(memory)
        self._load, self._store = builder.create_masked_load, builder.create_masked_store
        self._rmw, self._cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def masked_load(self, ptrs: Any, mask: Any, fill: Any, *args: Any, **kwargs: Any) -> Any:
        """Load. Whatever is not an element of an argument reads as poison, unless ``fill`` says otherwise."""
        inside, size = self._check("load", ptrs, mask)
        self._touch(ptrs, inside, size, "load")
        lanes = _plain(mask)
        if fill is None or not bool((inside == lanes).all()):
            fill = self._poisoned(ptrs, fill, lanes)
        return self._load(ptrs, self._masked(mask, inside), fill, *args, **kwargs)

    def masked_store(self, ptrs: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        """Store what hits an element."""
        inside, size = self._check("store", ptrs, mask)
        self._touch(ptrs, inside, size, "store", value)
        return self._store(ptrs, value, self._masked(mask, inside), *args, **kwargs)

    def atomic_rmw(self, operation: Any, ptrs: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        """Do an atomic operation where it hits an element."""
        inside, size = self._check("atomic operation", ptrs, mask)
        if "XCHG" in str(operation):
            self._log.synchronized = True
        self._touch(ptrs, inside, size, "atomic")
        return self._rmw(operation, ptrs, value, self._masked(mask, inside), *args, **kwargs)

    def atomic_cas(self, ptrs: Any, compared: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Compare and swap atomically. Outside of all arguments it cannot be left out.

        Raises:
            IndexError: the address lies in no argument.
        """
        inside, _ = self._check("atomic operation", ptrs, self._np.ones_like(ptrs.data, dtype=bool))
        self._log.synchronized = True
        if not bool(inside.all()):
            raise IndexError("an atomic compare-and-swap outside all arguments")
        return self._cas(ptrs, compared, value, *args, **kwargs)

    def _check(self, kind: str, ptrs: Any, mask: Any) -> tuple[Any, int]:
        """Return which lanes of the mask hit an element, and the bytes of one element. The others are noted."""
        np = self._np
        lanes = np.broadcast_to(np.asarray(_plain(mask), dtype=bool), ptrs.data.shape)
        size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
        inside = np.zeros(ptrs.data.shape, dtype=bool)
        for memory, offset, hit in self._hits(ptrs, size):
            if memory.elements is not None and hit.any():
                hit[hit] = memory.elements[offset[hit]]
            inside |= hit
        stray = lanes & ~inside
        if stray.any():
            self._note(kind, ptrs.data.astype(np.int64)[stray])
        return lanes & inside, size

    def _hits(self, ptrs: Any, size: int) -> Iterator[tuple[_Memory, Any, Any]]:
        """Yield each argument's memory, where in it the addresses lie, and which of them have ``size`` bytes there."""
        address = ptrs.data.astype(self._np.int64)
        for memory in self._memories:
            offset = address - memory.region.start
            yield memory, offset, (offset >= 0) & (offset <= memory.region.size - size)

    def _note(self, kind: str, addresses: Any) -> None:
        """Count accesses that hit nothing, under the argument that is nearest to the first."""
        first = int(addresses.flat[0])

        def distance(memory: _Memory) -> int:
            offset = first - memory.region.start
            return -offset if offset < 0 else max(0, offset - memory.region.size)

        nearest = min(self._memories, key=distance, default=None)
        region = nearest.region if nearest else Region("no argument", 0, 0, 1, None)
        known = self._log.outside.get((kind, region.name))
        if known is not None:
            known.count += addresses.size
            return
        element, last = (first - region.start) // region.itemsize, region.size // region.itemsize - 1
        self._log.outside[kind, region.name] = _Outside(addresses.size, element, last, self._program(), self._line())

    def _touch(self, ptrs: Any, inside: Any, size: int, kind: str, value: Any = None) -> None:
        """Record plain reads and writes by their program, and note conflicts with another program's."""
        np = self._np
        if self._log.synchronized or not inside.any():
            return
        program = self._number()
        for memory, offset, reached in self._hits(ptrs, size):
            hit = inside & reached
            if memory.wrote is None or not hit.any():
                continue
            places = offset[hit]
            if kind == "store":
                changes = self._changes(value, hit, places, memory, size)
                conflict = _of_another(memory.wrote[places], program) | _of_another(memory.read[places], program)
                self._race(memory, places, conflict & changes, "write what another has written or read")
                memory.wrote[places] = program
            else:
                self._race(memory, places, _of_another(memory.wrote[places], program), "read what another has written")
                if kind == "load":
                    readers = memory.read[places]
                    memory.read[places] = np.where((readers == NOBODY) | (readers == program), program, SEVERAL)

    def _changes(self, value: Any, hit: Any, places: Any, memory: _Memory, size: int) -> Any:
        """Return where a store would change memory: writing the same once more harms nobody."""
        import ctypes

        np = self._np
        stored = np.ascontiguousarray(np.broadcast_to(value.data, hit.shape)[hit])
        if stored.dtype.itemsize != size:
            return np.ones(places.shape, dtype=bool)
        memory_bytes = np.ctypeslib.as_array((ctypes.c_uint8 * memory.region.size).from_address(memory.region.start))
        current = memory_bytes[places[:, None] + np.arange(size)]
        return (current != stored.view(np.uint8).reshape(-1, size)).any(axis=1)

    def _race(self, memory: _Memory, places: Any, conflict: Any, deed: str) -> None:
        name = memory.region.name
        if name in self._log.races or not conflict.any():
            return
        byte = int(places[conflict][0])
        message = (
            f"programs {deed}, without an atomic operation: first at byte {byte} of {name}, in program "
            f"{self._program()}"
        )
        numbers = {"byte": byte, "program": list(self._program())}
        self._log.races[name] = Finding("race", message, name, numbers, line=self._line())

    def _poisoned(self, ptrs: Any, fill: Any, lanes: Any) -> Any:
        """Return the data of lanes that hit nothing: ``fill`` for masked lanes if it is given, else poison."""
        import torch

        np = self._np
        element = ptrs.get_element_ty()
        dtype = np.dtype(sys.modules["triton.runtime.interpreter"]._get_np_dtype(element))
        name = {"fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
        poison = bytes(pattern(name.get(str(element), torch.uint8), INPUT)) * dtype.itemsize
        value = np.frombuffer(poison[: dtype.itemsize], dtype=dtype)[0] if dtype != np.bool_ else np.True_
        data = np.full(ptrs.data.shape, value, dtype=dtype)
        if fill is not None:
            active = np.broadcast_to(np.asarray(lanes, dtype=bool), data.shape)
            data = np.where(active, data, np.broadcast_to(fill.data, data.shape)).astype(dtype)
        return _handle(data, element)

    def _masked(self, mask: Any, inside: Any) -> Any:
        return _handle(inside, mask.dtype) if hasattr(mask, "get_element_ty") else inside

    def _program(self) -> tuple[int, ...]:
        return tuple(int(index) for index in getattr(self._builder, "grid_idx", None) or ())

    def _number(self) -> int:
        x, y, z = self._program()
        _, ny, nz = (int(size) for size in self._builder.grid_dim)
        return (x * ny + y) * nz + z

    def _line(self) -> int | None:
        """Return the line of the case's source that is running."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back  # type: ignore[assignment]
        return frame.f_lineno if frame is not None else None


def _plain(mask: Any) -> Any:
    """Return the numpy array of a mask: a handle's, or the array itself."""
    return mask.data if hasattr(mask, "get_element_ty") else mask


def _of_another(programs: Any, program: int) -> Any:
    return (programs != NOBODY) & (programs != program)


def _handle(data: Any, dtype: Any) -> Any:
    return sys.modules["triton.runtime.interpreter"].TensorHandle(data, dtype)
