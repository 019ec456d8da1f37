"""Tensors in safetensors files, as their headers describe them. No tensor is made here.

A file has 8 bytes of length, a header in JSON, and the data: https://github.com/huggingface/safetensors#format.
Files come from strangers: each size is checked before it is believed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from dataclasses import dataclass
from typing import Any

from runner.files import open_regular

ENDING = ".safetensors"
LONGEST_HEADER = 16 << 20
"""Bytes of a header that is read."""
DTYPES = {
    "BOOL": ("bool", 1), "U8": ("uint8", 1), "I8": ("int8", 1), "U16": ("uint16", 2), "I16": ("int16", 2),
    "U32": ("uint32", 4), "I32": ("int32", 4), "U64": ("uint64", 8), "I64": ("int64", 8), "F16": ("float16", 2),
    "BF16": ("bfloat16", 2), "F32": ("float32", 4), "F64": ("float64", 8), "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1),
}  # fmt: skip
"""The dtypes of the format: what torch calls each, and the bytes of an element."""

_PREFIX = 8
_MOST_DIMENSIONS = 64
_LARGEST = 1 << 60


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file: ``start`` and ``size`` are its place there, in bytes."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


def find_tensor(file: str, name: str) -> StoredTensor:
    """Return the tensor of a file that has this name.

    Raises:
        ValueError: the file is no safetensors file, or has no such tensor.
        OSError: it cannot be read.
    """
    status = os.stat(file)
    entries = _entries(file, status.st_mtime_ns, status.st_size)
    if name not in entries:
        raise ValueError(f"it has no tensor {name[:60]!r}")
    dtype, shape, start, size = entries[name]
    return StoredTensor(file, name, dtype, shape, start, size)


def digest_of(tensor: StoredTensor) -> str:
    """Return the SHA-256 of a tensor's bytes. Raises OSError where they cannot be read."""
    return _digest(tensor, os.stat(tensor.file).st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _digest(tensor: StoredTensor, stamp: int) -> str:
    digest, missing = hashlib.sha256(), tensor.size
    with open_regular(tensor.file) as file:
        file.seek(tensor.start)
        while missing and (piece := file.read(min(missing, 1 << 20))):
            digest.update(piece)
            missing -= len(piece)
    return digest.hexdigest()


@functools.lru_cache(maxsize=64)
def _entries(file: str, stamp: int, size: int) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    with open_regular(file) as stream:
        length = int.from_bytes(stream.read(_PREFIX), "little")
        if size < _PREFIX or length > min(LONGEST_HEADER, size - _PREFIX):
            raise ValueError("it is no safetensors file: its header is longer than the file, or than 16 MiB")
        text = stream.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is no safetensors file: its header is no JSON") from None
    if not isinstance(header, dict):
        raise ValueError("it is no safetensors file: its header is no mapping")
    return {name: _entry(name, data, _PREFIX + length, size) for name, data in header.items() if name != "__metadata__"}


def _entry(name: str, data: Any, start: int, end: int) -> tuple[str, tuple[int, ...], int, int]:
    """Return a tensor's dtype, shape, start and size. Raises ValueError for what does not fit the file."""
    table = data if isinstance(data, dict) else {}
    shape, place = _sizes(table.get("shape")), _sizes(table.get("data_offsets"))
    dtype, width = DTYPES.get(str(table.get("dtype")), ("", 0))
    if not dtype or shape is None or place is None or len(place) != 2:
        raise ValueError(f"its tensor {name[:60]!r} has no dtype, shape and place")
    first, last = place
    if not first <= last <= end - start or last - first != width * math.prod(shape):
        raise ValueError(f"the place of its tensor {name[:60]!r} does not fit its shape, or the file")
    return dtype, tuple(shape), start + first, last - first


def _sizes(value: Any) -> list[int] | None:
    is_fit = isinstance(value, list) and len(value) <= _MOST_DIMENSIONS
    return value if is_fit and all(type(n) is int and 0 <= n < _LARGEST for n in value) else None
