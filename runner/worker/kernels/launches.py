"""Launches of a case's Triton kernels: plain ones between red zones, or operators of a graph.

The case's source sends each launch through its function ``launch(kernel, grid, arguments, new)``, which is replaced
here.

A plain launch gives the kernel copies. Each storage among the arguments is copied into a buffer with a red zone on
either side. Red zones, gaps between strided elements and new outputs hold poison, which no computation gives by itself.
After the launch a changed red zone is a write out of bounds, and poison left in a new output an element that was not
written. A read from a red zone has made NaN, or a huge integer, of the result. Then the copies go back into the case's
own tensors.

In Triton's interpreter every load, store and atomic operation is checked before it touches memory. The interpreter runs
the programs of a grid one after the other in numpy and takes addresses as they come. While ``check_accesses`` lasts,

* an access outside the arguments' memory is noted and left out, so that it cannot crash or change anything. Such a
  load reads poison;
* lanes that a mask leaves out of a load without ``other=`` read poison. Triton does not say what they hold (the
  interpreter alone would say 0);
* an element that one program writes and another writes otherwise, or reads, is a race, since nothing orders programs. A
  launch with atomic compare-and-swap or exchange may order them itself and is not judged so.

Only the interpreter's builder is touched: its methods for masked loads and stores and for atomic operations, through
which all memory goes (3.2 to 3.7). Where a Triton has no such builder nothing is checked, and the red zones say less.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.worker.kernels.redzones import INPUT, RedZoneCopies, Region, copy_with_red_zones, pattern

_numbers = itertools.count()

UNINTERPRETABLE = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"})
"""Dtypes whose bits Triton's interpreter keeps in integers: it adds those, and not the numbers (``_get_np_dtype``)."""

_LACKING = re.compile(
    r"not supported in interpreter mode|NotImplementedError|'InterpreterBuilder' object has no attribute|"
    r"unsupported (semantic|rmwOp)|[Uu]nsupported (data ?type|dtype)|KeyError\(triton\.language\.|"
    r"only 0-dimensional arrays can be converted to Python scalars"
)
"""What the interpreter says where it cannot do what the compiler can (3.2 and 3.7). The last is of 3.2 beside numpy
2.4, where a loop up to an argument, which 3.2 makes an array of one element, has no end that numpy would make a number
of."""


@dataclass
class Launches:
    """What was recorded of a run's launches."""

    count: int = 0
    trespasses: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unable: str = ""
    """Why the interpreter could not run a kernel; then the run says nothing about it."""


class Unable(Exception):
    """Triton's interpreter cannot run this kernel on these arguments."""


def launch_plainly(module: ModuleType) -> Launches:
    """Give every launch of a case's module red zones. The result records what the launches do."""
    launches = Launches()
    setattr(module, "launch", _Launcher(launches, module.__file__ or ""))  # noqa: B010  not the module's own for mypy
    return launches


def launch_as_operators(module: ModuleType) -> None:
    """Make each function of a case's module that launches a kernel a ``torch.library.triton_op``."""
    from torch.library import triton_op, wrap_triton

    def launch(kernel: Any, grid: Any, arguments: Mapping[str, Any], new: Sequence[str]) -> None:
        wrap_triton(kernel)[grid](**arguments)

    setattr(module, "launch", launch)  # noqa: B010
    space = f"runner_kernels_{os.getpid()}_{next(_numbers)}"  # an operator can be defined once
    for name in module.KERNELS:
        setattr(module, name, triton_op(f"{space}::{name}", getattr(module, name), mutates_args=()))


class _Launcher:
    """Stands in for the source's ``launch``."""

    def __init__(self, launches: Launches, path: str) -> None:
        self._launches, self._path = launches, path

    def __call__(self, kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any], new: Sequence[str]) -> None:
        """Launch on copies between red zones. Launch again, with other poison, if elements look unwritten."""
        self._launches.count += 1
        name = str(getattr(kernel, "__name__", "kernel"))
        tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
        for key, tensor in tensors.items() if interprets(kernel) else ():
            if (dtype := str(tensor.dtype).removeprefix("torch.")) in UNINTERPRETABLE:
                self._give_up(f"Triton's interpreter does not calculate in {dtype} ({key})")
        copies = self._run(kernel, grid, arguments, tensors, new, 0)
        unwritten = {key: copies.unwritten(key) for key in new if key in tensors and tensors[key].numel()}
        if any(bool(mask.any()) for mask in unwritten.values()):
            second_run = self._run(kernel, grid, arguments, tensors, new, 1)
            # Poison that is left only once is a value by chance.
            unwritten = {key: mask & second_run.unwritten(key) for key, mask in unwritten.items()}
        for key, mask in unwritten.items():
            places = mask.nonzero().tolist()
            if places:
                message = f"{len(places)} of {mask.numel()} elements are as they were before the launch"
                numbers = {"elements": len(places), "of": mask.numel(), "first": places[0]}
                self._tell(name, Finding("unwritten", f"{message}, the first at {places[0]}", key, numbers))
        for write in copies.writes_outside():
            known = [(trespass.oracle, trespass.numbers.get("argument")) for trespass in self._launches.trespasses]
            if ("out-of-bounds", write.path) not in known:
                self._tell(name, write)
        copies.put_back()

    def _run(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        arguments: Mapping[str, Any],
        tensors: Mapping[str, torch.Tensor],
        new: Sequence[str],
        number: int,
    ) -> RedZoneCopies:
        """Launch on copies. The second launch, of ``number`` 1, has other poison, and tells nothing."""
        copies = copy_with_red_zones(tensors, new, number)
        given = {**arguments, **copies.views}
        devices = {tensor.device for tensor in tensors.values() if tensor.device.type != "cpu"}
        if devices or not interprets(kernel):
            kernel[grid](**given)
            for device in devices:
                getattr(torch, device.type).synchronize(device)
            return copies
        with check_accesses(copies.regions(), self._path) as log:
            try:
                kernel[grid](**given)
            except Exception as error:
                if _LACKING.search(f"{error!r} {error.__cause__!r}"):
                    cause = str(error.__cause__ or error).split("\n")[0]
                    self._give_up(f"Triton's interpreter cannot run {kernel.__name__}: {cause}")
                raise
            finally:
                for trespass in log.trespasses() if number == 0 else ():
                    self._tell(kernel.__name__, trespass)
                if log.note and log.note not in self._launches.notes:
                    self._launches.notes.append(log.note)
        return copies

    def _give_up(self, reason: str) -> None:
        self._launches.unable = self._launches.unable or reason
        raise Unable(reason)

    def _tell(self, kernel: str, trespass: Finding) -> None:
        path = f"{kernel}, {trespass.path}" if trespass.path else kernel
        if not any((known.oracle, known.path) == (trespass.oracle, path) for known in self._launches.trespasses):
            numbers = {**trespass.numbers, "argument": trespass.path, "kernel": kernel}
            self._launches.trespasses.append(replace(trespass, path=path, numbers=numbers))


NOBODY, SEVERAL = -1, -2
LARGEST = 1 << 22
"""Bytes of an argument beyond which it is not checked for races: two numbers are kept for each."""


@dataclass
class _Memory:
    """One argument's memory and who has touched it: by byte, the last program that wrote and read it plainly."""

    region: Region
    elements: Any  # numpy bool, or None
    wrote: Any
    read: Any


@dataclass
class AccessLog:
    """What was recorded of a launch.

    ``outside`` holds, by the kind of access and the nearest argument, the first access that reached no argument: its
    element (counted from the argument's first, as its addresses go), the argument's last one, its program and line.
    ``counts`` say how many there were.
    """

    outside: dict[tuple[str, str], tuple[int, int, tuple[int, ...], int | None]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    races: dict[str, Finding] = field(default_factory=dict)
    synchronized: bool = False
    note: str = ""

    def trespasses(self) -> list[Finding]:
        """Return everything that should not have been done."""
        findings = []
        for (kind, name), (element, last, program, line) in self.outside.items():
            count = self.counts[kind, name]
            message = (
                f"{count} {kind}{'s' if count > 1 else ''} outside all arguments, the first at element {element} of "
                f"{name}, which has elements 0 to {last}, in program {program}"
            )
            numbers = {"count": count, "element": element, "program": list(program), "access": kind}
            findings.append(Finding("out-of-bounds", message, name, numbers, line=line))
        return findings + ([] if self.synchronized else list(self.races.values()))


def interprets(kernel: Any) -> bool:
    """Return whether Triton runs this kernel in its interpreter."""
    module = sys.modules.get("triton.runtime.interpreter")
    while module is not None and hasattr(kernel, "run"):
        if isinstance(kernel, module.InterpretedFunction):
            return True
        kernel = getattr(kernel, "fn", None)  # an autotuner's, a heuristic's
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

        def nobody(region: Region) -> Any:
            return numpy.full(region.size, NOBODY, dtype=numpy.int64) if region.size <= LARGEST else None

        self._np, self._builder, self._log, self._path = numpy, builder, log, path
        self._memories = [
            _Memory(
                region,
                None if region.elements is None else region.elements.cpu().numpy(),
                nobody(region),
                nobody(region),
            )
            for region in regions
        ]
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

        def distance(region: Region) -> int:
            return max(region.start - first, first - region.start - region.size, 0)

        regions = [memory.region for memory in self._memories] or [Region("no argument", 0, 0, 1, None)]
        region = min(regions, key=distance)
        element, last = (first - region.start) // region.itemsize, region.size // region.itemsize - 1
        self._log.outside.setdefault((kind, region.name), (element, last, self._program(), self._line()))
        self._log.counts[kind, region.name] += addresses.size

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
        byte, program = int(places[conflict][0]), self._program()
        message = f"programs {deed}, without an atomic operation: first at byte {byte} of {name}, in program {program}"
        numbers = {"byte": byte, "program": list(program)}
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
