"""Launches of a case's Triton kernels: plain ones between red zones, or operators of a graph.

The case's source sends each launch through its function ``launch(kernel, grid, arguments, new)``, which is replaced
here.

A plain launch gives the kernel copies. Each storage among the arguments is copied into a buffer with a red zone on
either side. Red zones, gaps between strided elements and new outputs hold poison, which no computation gives by itself.
After the launch a changed red zone is a write out of bounds, and poison left in a new output an element that was not
written. A read from a red zone has made NaN, or a huge integer, of the result. In Triton's interpreter every access is
checked besides (``interpreter.py``). Then the copies go back into the case's own tensors.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.worker.kernels import interpreter
from runner.worker.kernels.redzones import RedZoneCopies, copy_with_red_zones

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
        interpreted = interpreter.interprets(kernel)
        if interpreted:
            self._refuse(tensors)
        copies = self._run(kernel, grid, arguments, tensors, new, interpreted, 0)
        unwritten = {key: copies.unwritten(key) for key in new if key in tensors and tensors[key].numel()}
        if any(bool(mask.any()) for mask in unwritten.values()):
            second_run = self._run(kernel, grid, arguments, tensors, new, interpreted, 1, quiet=True)
            # Poison that is left only once is a value by chance.
            unwritten = {key: mask & second_run.unwritten(key) for key, mask in unwritten.items()}
        for key, mask in unwritten.items():
            places = mask.nonzero()
            if len(places):
                first = [int(place) for place in places[0]]
                message = (
                    f"{len(places)} of {mask.numel()} elements are as they were before the launch, the first at {first}"
                )
                numbers = {"elements": len(places), "of": mask.numel(), "first": first}
                self._tell(name, Finding("unwritten", message, key, numbers))
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
        interpreted: bool,
        poison: int,
        quiet: bool = False,
    ) -> RedZoneCopies:
        copies = copy_with_red_zones(tensors, new, poison)
        given = {**arguments, **copies.views}
        if not interpreted or any(tensor.device.type != "cpu" for tensor in tensors.values()):
            kernel[grid](**given)
            for device in {tensor.device for tensor in tensors.values() if tensor.device.type != "cpu"}:
                getattr(torch, device.type).synchronize(device)
            return copies
        with interpreter.check_accesses(copies.regions(), self._path) as log:
            try:
                kernel[grid](**given)
            except Exception as error:
                if _LACKING.search(f"{error!r} {error.__cause__!r}"):
                    cause = str(error.__cause__ or error).split("\n")[0]
                    self._give_up(f"Triton's interpreter cannot run {kernel.__name__}: {cause}")
                raise
            finally:
                for trespass in log.trespasses() if not quiet else ():
                    self._tell(kernel.__name__, trespass)
                if log.note and log.note not in self._launches.notes:
                    self._launches.notes.append(log.note)
        return copies

    def _refuse(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            if dtype in UNINTERPRETABLE:
                self._give_up(f"Triton's interpreter does not calculate in {dtype} ({name})")

    def _give_up(self, reason: str) -> None:
        self._launches.unable = self._launches.unable or reason
        raise Unable(reason)

    def _tell(self, kernel: str, trespass: Finding) -> None:
        path = f"{kernel}, {trespass.path}" if trespass.path else kernel
        if not any((known.oracle, known.path) == (trespass.oracle, path) for known in self._launches.trespasses):
            numbers = {**trespass.numbers, "argument": trespass.path, "kernel": kernel}
            self._launches.trespasses.append(replace(trespass, path=path, numbers=numbers))
