"""Settings of torch that no public function reads: those of its C++ part, flags, hooks of all modules, kernels."""

from __future__ import annotations

import builtins
import contextvars
import copy
import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from runner.worker.torch_private.doors import Door

# The functions below call no builtin that a case has replaced.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]

_IMPLS = Door("torch.library:_impls", "kernels that a case registers for torch's operators are not seen")
_PRINTING = Door("torch._tensor_str:PRINT_OPTS", "settings of printing are not compared")
_STANCE = Door("torch._dynamo.eval_frame:_stance", "torch.compiler.set_stance may hold on for later cases")
_C = Door("torch._C", "settings of torch's C++ part are not compared")
_SAVED = Door(
    "torch._C:_autograd._top_saved_tensors_default_hooks",
    "hooks of saved tensors may hold on for later cases",
    ("2.13",),
)
_LEAVE_SAVED = Door("torch._C:_autograd._pop_saved_tensors_default_hooks", _SAVED.unchecked)
_UNSEEN = "a mode that is left entered is not seen"
_DEPTHS = (
    (Door("torch._C:_len_torch_function_stack", _UNSEEN), Door("torch.overrides:_pop_mode", _UNSEEN)),
    (Door("torch._C:_len_torch_dispatch_stack", _UNSEEN), Door("torch.utils._python_dispatch:_pop_mode", _UNSEEN)),
    (Door("torch.autograd:_profiler_enabled", _UNSEEN), Door("torch.autograd:_disable_profiler", _UNSEEN)),
)
"""What says how many modes are entered, and what leaves one."""
_LEVEL = Door("torch.autograd.forward_ad:_current_level", _UNSEEN)

PRINT_OPTIONS = _PRINTING.dotted
GENERATED = "torch._inductor.runtime.compile_tasks."
"""How the modules of compiled kernels are named: another kernel may take the place of one."""
HOOKS = "torch.nn.modules.module._global_"
"""How the hooks of all modules are named: one more changes each model."""


def is_inside(name: str) -> bool:
    """Return whether torch or Triton may put an object of its own under a name of its insides, as at the first kernel
    of a GPU."""
    return name.startswith(("triton", "torch.cuda")) or ("._" in name and not name.startswith("torch._C"))


def python_kernels() -> frozenset[str]:
    """Return the kernels that Python code has registered for torch's operators, such as ``aten/relu/CPU``.

    Those of vmap (FuncTorchBatched) and of CUDA are left out: torch registers some at its first use of either.
    """
    ours = (name for name in _IMPLS.loaded() or () if name.startswith("aten/") and not name.endswith("/CUDA"))
    return frozenset(name for name in ours if "/FuncTorch" not in name)


def print_options() -> dict[str, Any]:
    """Return the settings of printing."""
    return dict(vars(_PRINTING.find() or object))


def setters() -> Iterator[tuple[str, Callable[[], Any], Callable[..., Any]]]:
    """Yield the settings of torch's C++ part that it both reads and sets: the name of the reader, the reader and the
    setter."""
    insides = _C.find()
    for setter in (name for name in dir(insides) if name.startswith("_set_")):
        word = setter.removeprefix("_set_")
        names = (f"_get_{word}", f"_is_{word}", f"_{word}", f"_get_{word.removeprefix('sdp_use_')}_sdp_enabled")
        reader = next((name for name in names if callable(getattr(insides, name, None))), "")
        if reader:
            yield f"torch._C.{reader}()", getattr(insides, reader), getattr(insides, setter)


def attributes() -> Iterator[tuple[str, Callable[[], Any], Callable[..., Any]]]:
    """Yield the settings that public functions set and no public function reads: the name, a reader and a setter."""
    if _STANCE.loaded() is not None:
        yield _STANCE.dotted, _STANCE.now, _STANCE.put
    if _SAVED.find() is not None:
        yield f"{_SAVED.dotted}(False) is None", lambda: _SAVED.find()(False) is None, _leave_saved_tensors
    for depth, leave in _DEPTHS:
        if depth.find() is not None and leave.find() is not None:
            yield f"{depth.dotted}()", depth.find(), functools.partial(_leave, depth.find(), leave.find())
    if _LEVEL.find() is not None:
        yield _LEVEL.dotted, _LEVEL.now, _LEVEL.put
    holder = HOOKS.rpartition(".")[0]
    for name, hooks in vars(sys.modules[holder]).items():
        if f"{holder}.{name}".startswith(HOOKS) and isinstance(hooks, dict):
            yield f"len({holder}.{name})", functools.partial(len, hooks), functools.partial(_shorten, hooks)


def _leave(depth: Callable[[], int], leave: Callable[[], Any], number: int) -> None:
    while depth() > number:
        leave()


def _leave_saved_tensors(is_left: bool) -> None:
    while is_left and _SAVED.find()(False) is not None:
        _LEAVE_SAVED.find()()


def _shorten(hooks: dict[Any, Any], size: int) -> None:
    while len(hooks) > size:
        hooks.popitem()


# --- flags ---

_FLAG_MODULE = Door(
    "torch.utils._config_module:ConfigModule", "flags that a case changes stay changed in a living process"
)
_flags: dict[str, Any] = {"last": "", "modules": []}
"""What ``flag_modules`` has found so far."""


def load_flags() -> None:
    """Import the modules of flags, so that all their names exist."""
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.config")


def is_compiler_loaded() -> bool:
    """Return whether torch's compiler has been imported."""
    return "torch._dynamo" in sys.modules


def entry_of_flag(name: str) -> Any:
    """Return the entry of a flag, which knows its default and its environment variable.

    Raises:
        ImportError, AttributeError, KeyError: this torch has no such flag, or keeps flags in another form.
    """
    module, _, attribute = name.rpartition(".")
    return importlib.import_module(module)._config[attribute]


def flag_modules() -> list[Any]:
    """Return torch's modules of flags that are loaded. The search begins with the module that was last the time before.

    Every reading of the settings asks, and some thousand modules are loaded.
    """
    kind, last = _FLAG_MODULE.loaded(), _flags["last"]
    if kind is not None:
        names = list(itertools.takewhile(lambda name: name != last, reversed(sys.modules)))
        found = (module for name in reversed(names) if isinstance(module := sys.modules.get(name), kind))
        _flags.update(last=next(reversed(sys.modules)), modules=list(dict.fromkeys([*_flags["modules"], *found])))
    return list(_flags["modules"])


def flag_overrides(module: Any) -> list[Any] | None:
    """Return what decides on the values of a module's flags, in an order that stays: what has been set, and what is
    forced. Return None where this torch keeps it in another form."""
    try:
        entries = module._config.values()
        held = [entry.user_override for entry in entries] + [entry.env_value_force for entry in entries]
    except AttributeError:
        return None
    values = [value.get(None) if isinstance(value, contextvars.ContextVar) else value for value in held]
    return [copy.deepcopy(value) if isinstance(value, (list, dict, set)) else value for value in values]
