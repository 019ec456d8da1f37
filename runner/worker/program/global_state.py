"""Settings of torch that hold for the whole process: how each is read, compared and put back.

torch itself is asked which there are: functions that read, beside ones that set (``get_X`` and ``set_X``), properties
of ``torch.backends``, and such pairs in ``torch._C``. What has no reader is seen by what it does.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import pkgutil
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.contract.global_setting import FLUSHES, writer_of
from runner.worker.torch_private.definitions import PRINT_OPTIONS, attributes, print_options, setters


@dataclass(frozen=True, slots=True)
class _Switch:
    """A setting of this torch: its value, and how it is set. A private one is put back and not compared."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    public: bool = True


_EXCLUDED = {
    "torch.get_rng_state()": "the oracle rng compares it",
    "torch.get_default_device()": "a mode, which a job leaves by itself",
    "torch.get_num_interop_threads()": "it can be set once in a process",
    "torch.backends.quantized.supported_engines": "nothing sets it",
    "torch._C._get_thread_name()": "of no matter for what is computed",
}
"""What is not put back, and why."""

_DEPRECATED = re.compile("(?:get|is)_autocast_(?:cpu|gpu|ipu|xla)_")
"""Functions that say what those with a type of device say, and warn."""

_DEVICES = ("cpu", "cuda")
"""The types of device that have an autocast of their own here."""

_HOLDERS = ("torch", "torch.__future__", "torch.backends", "torch.utils.deterministic")
"""Modules with functions that read and set, beside those of ``torch.backends``."""

_BY_DEVICE = ("is_autocast_enabled", "get_autocast_dtype")
"""Functions that take one of the devices."""

_ATTRIBUTES = {
    "torch.backends.cuda": (
        "matmul.allow_tf32",
        "matmul.allow_fp16_reduced_precision_reduction",
        "matmul.allow_bf16_reduced_precision_reduction",
        "matmul.fp32_precision",
    ),
    "torch.utils.deterministic": ("fill_uninitialized_memory",),
}
"""Attributes that their holders do not list."""

_MIRRORS = re.compile(r"torch\.backends\.(?:cuda\.matmul\.allow_tf32|mkldnn\.allow_tf32|.*\bfp32_precision)")
"""Settings that follow another one: ``torch.set_float32_matmul_precision`` sets these too."""


@functools.cache
def switches() -> Mapping[str, _Switch]:
    """Return the settings that this torch has, by the expression that reads each; the private ones last."""
    import torch

    modules = {name: module for name, module in sys.modules.items() if name.startswith("torch.backends.")}
    modules |= {name: sys.modules[name] for name in _HOLDERS if name in sys.modules}
    public = {
        FLUSHES: _Switch(_flushes_denormals, torch.set_flush_denormal),
        "torch.is_inference_mode_enabled()": _Switch(torch.is_inference_mode_enabled, lambda _: None),
    }
    for name, module in sorted(modules.items()):
        public |= dict(_functions(name, module))
        public |= dict(_attributes(name, module))
    every = {**public, **dict(_private(torch))}
    return {name: switch for name, switch in every.items() if name not in _EXCLUDED and _answers(switch)}


def _answers(switch: _Switch) -> bool:
    """Return whether this torch has the setting, and says so without arguments."""
    try:
        switch.read()
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True


def _functions(holder: str, module: Any) -> Iterator[tuple[str, _Switch]]:
    """Yield the settings that functions of a module read, where it has a function that sets each."""
    functions = vars(module)
    for name in list(functions):
        setter = functions.get(writer_of(name))
        if setter is None or not callable(reader := functions[name]) or _DEPRECATED.match(name):
            continue
        for device in _DEVICES if name in _BY_DEVICE else ():
            switch = _Switch(functools.partial(reader, device), functools.partial(setter, device))
            yield f"{holder}.{name}({device!r})", switch
        if name not in _BY_DEVICE:
            yield f"{holder}.{name}()", _Switch(reader, setter)


def _attributes(holder: str, module: Any) -> Iterator[tuple[str, _Switch]]:
    """Yield the settings that are attributes: properties of a module's class, and precisions that it holds."""
    names = list(_ATTRIBUTES.get(holder, ()))
    properties = vars(type(module)) if type(module) is not types.ModuleType else {}
    for name, value in properties.items():
        is_set = hasattr(type(value), "__set__") and type(value) is not property and not name.startswith("__")
        names += [name] if is_set else [f"{name}.fp32_precision"] if type(value).__name__ == "_FP32Precision" else []
    for name in names:
        path, _, last = f"{holder}.{name}".rpartition(".")
        target = pkgutil.resolve_name(path)
        yield (
            f"{holder}.{name}",
            _Switch(functools.partial(getattr, target, last), functools.partial(setattr, target, last)),
        )


def _private(torch: Any) -> Iterator[tuple[str, _Switch]]:
    """Yield the settings that no public function both reads and sets."""
    for name, reader, setter in setters():
        yield name, _Switch(reader, functools.partial(_set, setter), public=False)
    print_settings = _Switch(print_options, lambda value: torch.set_printoptions(**value), public=False)
    yield PRINT_OPTIONS, print_settings
    for name, reader, setter in attributes():
        yield name, _Switch(reader, setter, public=False)
    to_nearest = 0  # as every process begins
    yield "the rounding of floats", _Switch(_rounding, lambda _: ctypes.CDLL(None).fesetround(to_nearest), public=False)


def _set(setter: Callable[..., Any], value: Any) -> None:
    """Set what a reader has said, which gives a tuple where the setter takes several values."""
    if isinstance(value, tuple):
        setter(*value)
    else:
        setter(value)


def _flushes_denormals() -> bool:
    return float.fromhex("0x1p-1022") / 2 == 0.0


def _rounding() -> tuple[bool, bool]:
    tiny = float.fromhex("0x1p-60")
    return 1.0 + tiny == 1.0, 1.0 - tiny == 1.0


def read(public: bool = False) -> dict[str, Any]:
    """Return the value of each setting that this torch has, by its expression; of the public ones alone if asked to."""
    values = {}
    for expression, switch in switches().items():
        if public and not switch.public:
            break  # they come last
        try:
            values[expression] = switch.read()
        except (
            AttributeError,
            RuntimeError,
            Warning,
        ):  # torch refuses to answer where old and new functions were mixed
            continue
    return values


def differences(original: Mapping[str, Any], public: bool = False) -> dict[str, tuple[Any, Any]]:
    """Return what differs from ``original``, a result of ``read``: by its expression the value then and now."""
    now = read(public)
    return {name: (original[name], now[name]) for name in now if name in original and original[name] != now[name]}


def changes(original: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences from ``original`` in public settings, without those that follow another one."""
    return {name: pair for name, pair in differences(original, public=True).items() if not _MIRRORS.fullmatch(name)}


def restore(values: Mapping[str, Any]) -> None:
    """Set what differs from ``values``, a result of ``read``. One that follows another one is mostly put back with it.

    Raises:
        RuntimeError: torch refuses a value that it gave before.
    """
    if read() == values:
        return
    for expression, switch in switches().items():
        with contextlib.suppress(AttributeError, RuntimeError, Warning):
            if expression not in values or switch.read() == values[expression]:
                continue
        switch.write(values[expression])


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put back, at the end of the block, what it has changed."""
    values = read()
    try:
        yield
    finally:
        restore(values)
