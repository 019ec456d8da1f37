"""Every value of a case's ``forward`` in eager: so that a reducer can put an input in its place.

The function's local variables are read when it returns, or when something raises in it: each value has a variable
there.
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
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import LoadedCase, open_source, seed_all
from runner.worker.program.observe import Settings, modes
from runner.worker.run.job import Send

_DEEP = 3
"""How deep lists are looked into."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def run_shapes(job: Job, send: Send) -> dict[str, Any]:
    """Return the record ``{"values": {variable: facts}}`` of the first call, run in eager.

    Facts have a ``kind``: ``tensor`` (shape, dtype, requires_grad, contiguous, low and high of its finite elements or
    None), ``python`` (value), ``list`` (items), ``fields`` (items by name, of a named tuple), or ``other``.
    A case that cannot be loaded has no values.
    """
    send({"phase": "load"})
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
    return {name: describe(value) for name, value in variables.items() if name != "self"}


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


def describe(value: Any, depth: int = 0) -> dict[str, Any]:
    """Return the facts of one value."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        finite = not isinstance(value, float) or math.isfinite(value)
        return {"kind": "python", "value": value} if finite else {"kind": "other"}
    if isinstance(value, (list, tuple)) and depth < _DEEP:
        items = [describe(item, depth + 1) for item in value]
        # Named tuples, and what torch.max(x, 0) and its like return.
        names = getattr(type(value), "_fields", ()) or getattr(type(value), "__match_args__", ())
        if names:
            return {"kind": "fields", "items": dict(zip(names, items))}  # noqa: B905
        return {"kind": "list", "items": items}
    return {"kind": "other"}


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or type(tensor) not in _PLAIN:
        return {"kind": "other"}
    low = high = None
    if tensor.device.type != "meta" and tensor.numel() and not tensor.is_complex():
        wide = tensor.detach().to(torch.float64)
        wide = wide[wide.isfinite()]
        if wide.numel():
            low, high = float(wide.min()), float(wide.max())
    return {
        "kind": "tensor",
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "requires_grad": tensor.requires_grad,
        "contiguous": tensor.is_contiguous(),
        "low": low,
        "high": high,
    }
