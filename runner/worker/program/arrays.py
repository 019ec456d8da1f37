"""NumPy's arrays and scalars: numbers as a tensor, a structure and objects as containers, all else as text."""

from __future__ import annotations

import sys
from typing import Any

import torch


def is_array(cls: type, scalars: bool = True) -> bool:
    """Return whether a class is one of NumPy's arrays or, if asked for, scalars; a ``float64`` is a Python float
    too."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(cls, (numpy.ndarray, numpy.generic) if scalars else numpy.ndarray)


def inside(array: Any) -> list[tuple[str, Any]] | None:
    """Return the fields, the mask or the objects of an array with their steps of the path; None for one of values."""
    numpy = sys.modules["numpy"]
    if isinstance(array, numpy.ma.MaskedArray):
        return [(".data", numpy.ma.getdata(array)), (".mask", numpy.ma.getmaskarray(array))]
    plain = array.view(numpy.ndarray)
    if plain.dtype.names:
        return [(f"[{name!r}]", plain[name]) for name in plain.dtype.names]
    return [(f".flat[{index}]", child) for index, child in enumerate(plain.flat)] if plain.dtype.hasobject else None


def is_masked(cls: type) -> bool:
    """Return whether a class is one of NumPy's masked arrays."""
    return is_array(cls, scalars=False) and issubclass(cls, sys.modules["numpy"].ma.MaskedArray)


def plain(array: Any) -> Any:
    """Return an array of a subclass as one of NumPy's own."""
    return sys.modules["numpy"].asarray(array)


def array_value(array: Any) -> torch.Tensor | tuple[str, tuple[int, ...], Any]:
    """Return a copy of an array or a scalar: a tensor, or else its dtype, shape and values."""
    numpy = sys.modules["numpy"]
    plain = numpy.asarray(array)
    if plain.dtype.kind in "biufc" and plain.dtype.char not in "gG":  # torch has no long double
        return torch.as_tensor(numpy.array(plain, dtype=plain.dtype.newbyteorder("=")))
    values = plain.tobytes() if plain.dtype.kind == "V" else plain
    if plain.dtype.kind != "V":
        values = (plain if plain.dtype.kind in "US" else plain.astype(str)).tolist()
    return str(plain.dtype), plain.shape, values
