"""Runs of a case in eager alone: the tasks ``build``, ``eager`` and ``shapes``.

``build`` is for ``validate --build``: does the model exist, and does torch take its operators and arguments? The meta
device answers without computing. It cannot do some things (values read in Python, operators without a meta kernel, odd
layouts). Those are done for real, and only what fails there too is an error.

``eager`` runs many cases in one job, to see which of them eager takes.

``shapes`` tells every value of a case's ``forward``: so that a reducer can put an input in its place. The function's
local variables are read when it returns, or when something raises in it: each value has a variable there.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.load import LoadedCase, Source, open_source, seed_all
from runner.worker.program.observe import Settings, modes, observe
from runner.worker.run.job import Send


def run_build(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of a build: ``built`` is ``meta`` or ``real``, ``error`` as in findings, or null.

    ``expect.raises`` is not looked at: what eager raises is reported, and control decides.
    """
    try:
        with open_source(job) as source:
            send({"phase": "eager"})
            settings = Settings.of(job)
            if _on_meta(source, settings):
                _inputs(source, settings)
                return {"built": "meta", "error": None}
            loaded = source.load(settings.seed)
            error = observe(loaded, loaded.model, settings).error
            return {"built": "real", "error": error.info if error is not None else None}
    except InvalidCase as error:
        return {"built": "real", "error": error.info}


def run_eager(job: Job, send: Send) -> dict[str, Any]:
    """Return ``errors``: for each of ``jobs``, judging jobs as plain dicts, what eager raises, or null."""
    send({"phase": "eager"})
    torch.set_num_threads(1)
    return {"errors": [_error_of(Job.from_json(case)) for case in job.arguments["jobs"]], "error": None}


def _error_of(job: Job) -> dict[str, Any] | None:
    try:
        with open_source(job) as source:
            settings = Settings.of(job)
            loaded = source.load(settings.seed)
            error = observe(loaded, loaded.model, settings).error
            return error.info if error is not None else None
    except InvalidCase as error:
        return error.info


def _inputs(source: Source, settings: Settings) -> None:
    """Make the inputs for real: the meta device takes any dtype for any generator.

    Raises:
        InvalidCase: one cannot be made.
    """
    loaded = source.load(settings.seed)
    for make in loaded.makers:
        try:
            make()
        except Exception as error:
            raised = describe(error, loaded.path, loaded.module.__name__)
            raise InvalidCase(f"making the inputs raised {raised.summary}", raised) from error


def _on_meta(source: Source, settings: Settings) -> bool:
    """Return whether everything worked on the meta device. After any failure there the real device must say."""
    try:
        with torch.device("meta"), torch.no_grad():
            loaded = source.load(settings.seed)
            return observe(loaded, loaded.model, settings).error is None
    except Exception:  # noqa: BLE001  whatever it was, it is tried for real
        return False


_DEEP = 3
"""How deep lists are looked into."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def run_shapes(job: Job, send: Send) -> dict[str, Any]:
    """Return the record ``{"values": {variable: facts}}`` of the first call, run in eager.

    Facts have a ``kind``: ``tensor`` (shape, dtype, requires_grad, contiguous, low and high of its finite elements or
    None), ``python`` (value), ``list`` (items), ``fields`` (items by name, of a named tuple), or ``other``.
    A case that cannot be loaded has no values.
    """
    values: dict[str, Any] = {}
    with contextlib.suppress(InvalidCase), open_source(job) as source:
        send({"phase": "eager"})
        settings = Settings.of(job)
        values = _locals(source.load(settings.seed), settings)
    return {"values": values, "error": None}


def _locals(loaded: LoadedCase, settings: Settings) -> dict[str, Any]:
    args = loaded.make_inputs(0, settings.seed)
    variables: dict[str, Any] = {}
    code = getattr(type(loaded.model).forward, "__code__", None)
    seed_all(settings.seed)
    # What it raises is the case's own affair: what was made until then is there.
    with modes(settings), _capturing_locals(code, variables), contextlib.suppress(Exception):
        loaded.call(loaded.model, args)
    return {name: describe_value(value) for name, value in variables.items() if name != "self"}


@contextlib.contextmanager
def _capturing_locals(code: CodeType | None, variables: dict[str, Any]) -> Iterator[None]:
    """Copy the variables of the function of ``code`` into ``variables`` when it ends, however it ends."""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code is code:
            variables.update(frame.f_locals)

    original = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(original)


def describe_value(value: Any, depth: int = 0) -> dict[str, Any]:
    """Return the facts of one value."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (list, tuple)) and depth < _DEEP:
        items = [describe_value(item, depth + 1) for item in value]
        # Named tuples, and what torch.max(x, 0) and its like return.
        names = getattr(type(value), "_fields", ()) or getattr(type(value), "__match_args__", ())
        fields = {"kind": "fields", "items": dict(zip(names, items))}  # noqa: B905
        return fields if names else {"kind": "list", "items": items}
    is_plain = value is None or isinstance(value, (bool, int, str))
    is_plain = is_plain or (isinstance(value, float) and math.isfinite(value))
    return {"kind": "python", "value": value} if is_plain else {"kind": "other"}


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or type(tensor) not in _PLAIN:
        return {"kind": "other"}
    bounds: tuple[float | None, float | None] = None, None
    if tensor.device.type != "meta" and tensor.numel() and not tensor.is_complex():
        wide = tensor.detach().to(torch.float64)
        wide = wide[wide.isfinite()]
        bounds = (float(wide.min()), float(wide.max())) if wide.numel() else bounds
    return {
        "kind": "tensor",
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "requires_grad": tensor.requires_grad,
        "contiguous": tensor.is_contiguous(),
        "low": bounds[0],
        "high": bounds[1],
    }
