"""Arguments of foreign calls, and the same as plain data of the YAML format.

A reader makes Python's own values of them, the contract's ``Tensor``, and the three classes here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.builder.operators import constants
from runner.contract.graphs import UnsayableError, index_text

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c32": "complex32", "c64": "complex64",
    "c128": "complex128", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "b8": "bool", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
"""Short names of dtypes in logs and printed graphs."""

LARGEST = 1 << 63
_COMPLEX = re.compile(r"[-+0-9.einfa]*j")
_PYTHON = ("None", "inf", "-inf", "nan")
_TEXT = re.compile(r"[A-Za-z0-9 .,:>$_-]*", re.ASCII)
_HOST = ("cpu", "meta")


@dataclass(frozen=True, slots=True)
class Name:
    """A value of the graph, as the format writes it without ``$``; or ``${...}`` for a number."""

    text: str

    @property
    def reference(self) -> str:
        """Return it as the format writes it."""
        return self.text if self.text.startswith("${") else f"${self.text}"


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of torch, by its name without ``torch.``."""

    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its kind, such as ``cuda``."""

    kind: str


def constant(name: str) -> Constant | None:
    """Return a dtype, a layout or a memory format by its name without ``torch.``; None for another name."""
    return Constant(name) if name in constants() else None


def plain(value: Any) -> Any:
    """Return a value as plain data of the format.

    Raises:
        UnsayableError: the format has no such value.
    """
    match value:
        case None | bool() | float():
            return value
        case int():
            if abs(value) >= LARGEST:
                raise UnsayableError("an integer has more than 64 bits")
            return value
        case str():
            return _text(value)
        case Name():
            return value.reference
        case Constant():
            return f"torch.{value.name}"
        case Device():
            return value.kind if value.kind in _HOST else "$device"
        case list() | tuple():
            return [plain(item) for item in value]
        case Mapping() if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: plain(item) for key, item in value.items()}
    raise UnsayableError(f"an argument is a {type(value).__name__}")


def plain_index(value: Any) -> Any:
    """Return an index as the second argument of ``operator.getitem``.

    Raises:
        UnsayableError: the format has no such index.
    """
    if isinstance(value, str | int) and not isinstance(value, bool):
        return plain(value)
    return index_text(value, lambda part: part.reference if isinstance(part, Name) else None)


def _text(text: str) -> Any:
    if not _TEXT.fullmatch(text):
        raise UnsayableError("a text has letters that no text of a case may have")
    is_special = text.startswith(("$", "torch.", "[")) or "${" in text or _COMPLEX.fullmatch(text) is not None
    return {"$text": text} if is_special or text in _PYTHON or text in constants() else text
