"""Settings of torch that hold for the whole process: how one reads them, as a person writes it, and how they are put back.

Both halves use the table, so torch is imported by the functions alone. The settings are those that Dynamo guards on
(``GlobalStateGuard`` in ``torch/csrc/dynamo/guards.cpp``), and others with a public function or attribute.
"""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any


@cache
def _module(path: str) -> Any:
    return pkgutil.resolve_name(path)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: ``holder.reader(argument)``, or the attribute ``holder.reader`` where ``writer`` is ``=``."""

    holder: str
    reader: str
    writer: str = "="  # a function of the holder; empty where nothing sets it
    argument: str = ""

    @property
    def expression(self) -> str:
        """Return what reads it, as Python."""
        call = f"({self.argument!r})" if self.argument else "()"
        return f"{self.holder}.{self.reader}{'' if self.writer == '=' else call}"

    def assignment(self, value: str) -> str:
        """Return the statement that sets it to an expression's value, as Python; ``pass`` where nothing sets it."""
        if self.writer == "=":
            return f"{self.expression} = {value}"
        arguments = f"{self.argument!r}, {value}" if self.argument else value
        return f"{self.holder}.{self.writer}({arguments})" if self.writer else "pass"

    def read(self) -> Any:
        """Return its value.

        Raises:
            AttributeError: this torch has no such setting.
            RuntimeError: torch refuses to answer, for instance where old and new functions for TF32 were mixed.
        """
        value = getattr(_module(self.holder), self.reader)
        if self.writer == "=":
            return value
        return value(self.argument) if self.argument else value()

    def write(self, value: Any) -> None:
        """Set it. Does nothing where nothing sets it."""
        holder = _module(self.holder)
        if self.writer == "=":
            setattr(holder, self.reader, value)
        elif self.writer:
            arguments = (self.argument, value) if self.argument else (value,)
            getattr(holder, self.writer)(*arguments)


_FUNCTIONS = {
    "is_grad_enabled": "set_grad_enabled",
    "is_inference_mode_enabled": "",
    "get_default_dtype": "set_default_dtype",
    "get_num_threads": "set_num_threads",
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "get_deterministic_debug_mode": "set_deterministic_debug_mode",
    "is_anomaly_enabled": "set_anomaly_enabled",
    "is_warn_always_enabled": "set_warn_always",
    "is_autocast_cache_enabled": "set_autocast_cache_enabled",
}
_AUTOCAST = {"is_autocast_enabled": "set_autocast_enabled", "get_autocast_dtype": "set_autocast_dtype"}
_ATTRIBUTES = {
    "torch.backends.cudnn": ("enabled", "benchmark", "deterministic", "allow_tf32"),
    "torch.backends.cuda.matmul": (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ),
    "torch.backends.mkldnn": ("enabled",),
    "torch.utils.deterministic": ("fill_uninitialized_memory",),
}

_DEVICES = ("cpu", "cuda")
"""The types of device that have an autocast of their own here."""

SETTINGS: Mapping[str, Setting] = {
    setting.expression: setting
    for setting in (
        *(Setting("torch", reader, writer) for reader, writer in _FUNCTIONS.items()),
        *(Setting("torch", reader, writer, device) for device in _DEVICES for reader, writer in _AUTOCAST.items()),
        *(Setting(holder, name) for holder, names in _ATTRIBUTES.items() for name in names),
    )
}
"""The settings by the expression that reads them."""


_MIRRORS = {"torch.backends.cuda.matmul.allow_tf32"}
"""Settings that follow another one of the table: ``torch.set_float32_matmul_precision`` sets this one too."""


def read() -> dict[str, Any]:
    """Return the value of each setting that this torch has, by its expression."""
    values = {}
    for expression, setting in SETTINGS.items():
        with contextlib.suppress(AttributeError, RuntimeError, Warning):
            values[expression] = setting.read()
    return values


def changes(original: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs from ``original``, a result of ``read``: by its expression the value then and now."""
    now = read()
    pairs = {name: (original[name], now[name]) for name in now if name in original and name not in _MIRRORS}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def restore(values: Mapping[str, Any]) -> None:
    """Set what differs from ``values``, a result of ``read``.

    Raises:
        RuntimeError: torch refuses a value that it gave before.
    """
    now = read()
    for expression, value in values.items():
        if expression not in now or now[expression] != value:  # torch may refuse to answer after a mixture
            SETTINGS[expression].write(value)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put back, at the end of the block, what it has changed."""
    values = read()
    try:
        yield
    finally:
        restore(values)
