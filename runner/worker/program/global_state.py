"""Settings of torch that hold for the whole process: how each is read, compared and put back.

torch itself is asked which there are: functions that read, beside ones that set (``get_X`` and ``set_X``), properties
of ``torch.backends``, such pairs in ``torch._C``, and flags. What has no reader is seen by what it does. The
environment and the settings of Python and NumPy count as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import locale
import os
import pickle
import pkgutil
import random
import re
import sys
import types
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from runner.contract.settings import FILTERS, FLUSHES, LOCALE, NESTING, writer_of
from runner.worker.torch_private.settings import (
    PRINT_OPTIONS,
    attributes,
    flag_modules,
    flag_overrides,
    print_options,
    setters,
)


@dataclass(frozen=True, slots=True)
class _Switch:
    """A setting: its value, and how it is set. A private one is compared where eager leaves it as it was."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    public: bool = True


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a generator of random numbers."""

    pickled: bytes

    def __str__(self) -> str:
        """Return a few digits of it."""
        return f"{zlib.crc32(self.pickled):08x}"


_EXCLUDED = {
    "torch.get_rng_state()": "the oracle rng compares it",
    "torch.get_default_device()": "a mode, which a job leaves by itself",
    "torch.get_num_interop_threads()": "it can be set once in a process",
    "torch.backends.quantized.supported_engines": "nothing sets it",
    "torch._C._get_thread_name()": "of no matter for what is computed",
    "torch._C._get_sdp_priority_order()": "the first attention on a GPU with cuDNN orders it anew",
    "sys.getrecursionlimit()": "Inductor raises it",
}
"""What is not put back, and why."""

_DEPRECATED = re.compile("(?:get|is)_autocast_(?:cpu|gpu|ipu|xla)_")
"""Functions that say what those with a type of device say, and warn."""

_DEVICES = ("cpu", "cuda")
"""The types of device that have an autocast of their own here."""

_HOLDERS = ("torch", "torch.__future__", "torch.backends", "torch.multiprocessing", "torch.utils.deterministic")
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
"""Settings that follow another one: ``torch.set_float32_matmul_precision`` sets these too, and they set each other."""
_LEADER = "torch.get_float32_matmul_precision()"

_TORCHS = re.compile(r"(?:len\()?torch\.")
"""How an expression begins that reads a setting of torch. Those of Python and NumPy follow none of these."""

_TO_NEAREST = 0
"""The rounding of floats with which every process begins."""

_OWN_VARIABLES = re.compile("_?(PY)?TORCH|TRITON|CUDA|KMP_|NCCL")
"""Environment variables that torch and its libraries set themselves, as at the first kernel."""


@functools.cache
def switches() -> Mapping[str, _Switch]:
    """Return the settings that this torch has, by the expression that reads each; the private ones last."""
    import torch

    modules = {name: module for name, module in sys.modules.items() if name.startswith("torch.backends.")}
    modules |= {name: sys.modules[name] for name in _HOLDERS if name in sys.modules}
    public = {
        FLUSHES: _Switch(lambda: float.fromhex("0x1p-1022") / 2 == 0.0, torch.set_flush_denormal),
        "torch.is_inference_mode_enabled()": _Switch(torch.is_inference_mode_enabled, lambda _: None),
    }
    for name, module in sorted(modules.items()):
        public |= dict([*_functions(name, module), *_attributes(name, module)])
    private = {name: _Switch(reader, writer, public=False) for name, reader, writer in _private(torch)}
    every = {**public, **private}
    return {name: switch for name, switch in every.items() if name not in _EXCLUDED and _answers(switch)}


def _answers(switch: _Switch) -> bool:
    """Return whether this torch has the setting, and says so without arguments."""
    try:
        switch.read()
    except (AttributeError, OSError, RuntimeError, TypeError):
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


def _private(torch: Any) -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], object]]]:
    """Yield the settings that no public function both reads and sets: a name, a reader and a writer."""
    yield from ((name, reader, functools.partial(_set, setter)) for name, reader, setter in setters())
    yield PRINT_OPTIONS, print_options, lambda value: torch.set_printoptions(**value)
    yield from attributes()
    yield NESTING, _nesting, _set_nesting
    yield "the rounding of floats", _rounding, lambda _: ctypes.CDLL(None).fesetround(_TO_NEAREST)
    for module in (sys, gc):
        functions = vars(module)
        for name in (name for name in functions if name.startswith("get") and f"s{name[1:]}" in functions):
            yield f"{module.__name__}.{name}()", functions[name], functools.partial(_set, functions[f"s{name[1:]}"])
    languages = functools.partial(locale.setlocale, locale.LC_ALL)
    yield from (
        ("gc.isenabled()", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        ("os.getcwd()", os.getcwd, _enter),
        ("os.environ", _environment, _set_environment),
        (LOCALE, languages, languages),
        (FILTERS, _filters, _set_filters),
        ("random.getstate()", *_generator(random.getstate, random.setstate)),
    )
    if (numpy := sys.modules.get("numpy")) is not None:
        yield from (
            ("numpy.geterr()", numpy.geterr, lambda errors: numpy.seterr(**errors)),
            ("numpy.get_printoptions()", numpy.get_printoptions, lambda options: numpy.set_printoptions(**options)),
            ("str(numpy.random.get_state())", *_generator(numpy.random.get_state, numpy.random.set_state)),
        )


def _nesting() -> int:
    import torch

    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _set_nesting(depth: int) -> None:
    import torch

    for _ in range(_nesting(), depth):
        torch.autocast_increment_nesting()
    for _ in range(depth, _nesting()):
        torch.autocast_decrement_nesting()
    if depth == 0:  # as at the end of the outermost block
        torch.clear_autocast_cache()


def _generator(
    reader: Callable[[], Any], setter: Callable[[Any], object]
) -> tuple[Callable[[], _State], Callable[[_State], object]]:
    """Return what reads and sets the state of a generator: pickled, since one of NumPy's holds an array."""
    return lambda: _State(pickle.dumps(reader())), lambda state: setter(pickle.loads(state.pickled))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not _OWN_VARIABLES.match(name)}


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in _environment().keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def _enter(folder: str) -> None:
    with contextlib.suppress(OSError):  # nobody has it any more
        os.chdir(folder)


def _filters() -> list[Any]:
    """Return the filters of warnings for every text and module: packages add narrower ones at their import."""
    return [rule for rule in warnings.filters if rule[1] is rule[3] is None and rule[2].__module__ == "builtins"]


def _set_filters(rules: list[Any]) -> None:
    now = _filters()
    others = [rule for rule in warnings.filters if rule not in now]
    warnings.resetwarnings()
    cast(list[Any], warnings.filters)[:] = [*others, *rules]


def _with_flags() -> Mapping[str, _Switch]:
    """Return all settings, with the flags of each of torch's modules that is loaded by now."""
    modules = {
        module.__name__: _Switch(module.get_config_copy, functools.partial(_set_flags, module), public=False)
        for module in flag_modules()
    }
    return {**switches(), **modules}


_copies: list[Any] = [None, {}]
"""What was set of the flags at the last reading, and the values then."""


def flags() -> Mapping[str, dict[str, Any]]:
    """Return the values of flags, by the module of each. Copies take long: the last ones hold until a flag is set.

    A flag may stand for one of another module, so that all copies are made anew together.
    """
    modules = flag_modules()
    now = [flag_overrides(module) for module in modules]
    if None in now or not is_same(_copies[0], now):
        values = {module.__name__: module.get_config_copy() for module in modules}
        _copies[:] = [flag_overrides(module) for module in modules], values  # a torch sets what it reads
    return _copies[1]  # type: ignore[no-any-return]


def _set_flags(module: Any, values: Mapping[str, Any]) -> None:
    now = module.get_config_copy()
    for name, value in values.items():
        if name in now and not is_same(now[name], value):
            setattr(module, name, value)


def _set(setter: Callable[..., Any], value: Any) -> None:
    """Set what a reader has said, which gives a tuple where the setter takes several values."""
    if isinstance(value, tuple):
        setter(*value)
    else:
        setter(value)


def _rounding() -> tuple[bool, bool]:
    tiny = float.fromhex("0x1p-60")
    return 1.0 + tiny == 1.0, 1.0 - tiny == 1.0


def read() -> dict[str, Any]:
    """Return the value of each setting, by its expression."""
    values = {}
    for expression, switch in switches().items():
        with contextlib.suppress(AttributeError, OSError, RuntimeError, Warning):
            values[expression] = switch.read()  # torch refuses to answer where old and new functions were mixed
    return {**values, **flags()}


def differences(original: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs from ``original``, a result of ``read``: by its expression the value then and now."""
    now = read()
    return {n: (original[n], now[n]) for n in now if n in original and not is_same(original[n], now[n])}


def changes(original: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences from ``original`` in settings of Python and public ones of torch, without those that
    follow another one: each flag and variable by itself.

    Where no public one differs, return those in private ones too, which may follow one.
    """
    pairs = differences(original)
    own = {name: pair for name, pair in pairs.items() if is_independent(name)}
    followers = _followers(own)
    own = {name: pair for name, pair in own.items() if name not in followers}
    return dict(_parts(own if any(map(is_public, own)) else {**own, **pairs}))


def _followers(names: Collection[str]) -> set[str]:
    """Return which of some settings that have changed follow another one of them.

    A precision of all of ``torch.backends`` is that of its parts, and ``allow_tf32`` is what the precision beside it
    says.
    """
    holders = {name.removesuffix("fp32_precision") for name in names if name.endswith(".fp32_precision")}
    return {
        name
        for name in names
        if _MIRRORS.fullmatch(name)
        if _LEADER in names or any(name.startswith(holder) and name != f"{holder}fp32_precision" for holder in holders)
    }


def is_public(expression: str) -> bool:
    """Return whether a public function reads the setting, and another one sets it."""
    return expression in switches() and switches()[expression].public


def is_independent(expression: str) -> bool:
    """Return whether a setting follows no other one: a public one of torch, or one of Python or NumPy."""
    return is_public(expression) or not _TORCHS.match(expression)


def is_generator(expression: str) -> bool:
    """Return whether what is read is the state of a generator of Python or NumPy."""
    return expression in switches() and isinstance(switches()[expression].read(), _State)


def _parts(pairs: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield pairs of values, and for those of dictionaries the pairs that differ in them."""
    for name, (then, now) in pairs.items():
        if not isinstance(then, dict):
            yield name, (then, now)
            continue
        for key in {**then, **now}:
            if not is_same(then.get(key), now.get(key)):
                part = f"{name}.{key}" if name.startswith("torch.") else f"{name}.get({key!r})"
                yield part, (then.get(key), now.get(key))


def is_same(first: Any, second: Any) -> bool:
    """Return whether two values of a setting are equal; what refuses the comparison differs."""
    try:
        return first is second or bool(first == second)
    except Exception:  # noqa: BLE001  a flag may hold anything, a tensor too
        return False


def restore(values: Mapping[str, Any]) -> None:
    """Set what differs from ``values``, a result of ``read``. One that follows another one is mostly put back with it.

    Raises:
        RuntimeError: torch refuses a value that it gave before.
    """
    now = read()
    names = {name for name, value in values.items() if name not in now or not is_same(now[name], value)}
    if any(not isinstance(values[name], _State) for name in names):  # else nothing follows what is set
        names = set(values)
    for expression, switch in _with_flags().items() if names else ():
        if expression not in names:
            continue
        with contextlib.suppress(AttributeError, OSError, RuntimeError, Warning):
            if is_same(switch.read(), values[expression]):
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
