"""Modes that see each call of an operator or a function, operators that run functions, and objects that hold others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch

from runner.worker.torch_private.doors import Door

_NEEDED = "results could be read under the modes of a case or of a further run"
disable_modes: Callable[[], AbstractContextManager[Any]] = Door(
    "torch.utils._python_dispatch:_disable_current_modes", _NEEDED
).need()
"""What a block does is seen by no mode."""
plain_functions: Callable[[], AbstractContextManager[Any]] = Door(
    "torch._C:DisableTorchFunctionSubclass", _NEEDED
).need()
"""What a block does with tensors of subclasses is done by torch's own functions."""
current_mode: Callable[[], Any] = Door("torch.utils._python_dispatch:_get_current_dispatch_mode", _NEEDED).need()
count_function_modes: Callable[[], int] = Door("torch._C:_len_torch_function_stack", _NEEDED).need()
enter_function_mode: Callable[[Any], None] = Door("torch._C:_push_on_torch_function_stack", _NEEDED).need()
leave_function_mode: Callable[[], Any] = Door("torch._C:_pop_torch_function_stack", _NEEDED).need()

_function_modes: Callable[[], list[Any]] = Door("torch.overrides:_get_current_function_mode_stack", _NEEDED).need()
_dispatch_modes: Callable[[], list[Any]] = Door(
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack", _NEEDED
).need()
_enter_dispatch_mode: Callable[[Any], None] = Door("torch.utils._python_dispatch:_push_mode", _NEEDED).need()
_leave_dispatch_mode: Callable[[], Any] = Door("torch.utils._python_dispatch:_pop_mode", _NEEDED).need()

DEVICE_MODE: Any = Door("torch.utils._device:DeviceContext", "the default device could not be told").need()
"""The mode that sets the default device."""
FAKE_MODE: Any = Door(
    "torch._subclasses.fake_tensor:FakeTensorMode", "state that depends on elements could not be told"
).need()
"""The mode under which tensors have no elements."""
COMPILED_MODULE: type = Door(
    "torch._dynamo.eval_frame:OptimizedModule", "attributes of a compiled module could not be told from its model's"
).need()
"""What ``torch.compile`` makes of a module."""
HigherOrderOperator: type = Door("torch._ops:HigherOrderOperator", "torch.cond and its like could not be told").need()
"""Operators that run functions of their own, such as ``torch.cond``."""
CONTAINERS: Mapping[type, Any] = Door(
    "torch.utils._pytree:SUPPORTED_NODES", "containers could not be looked into"
).need()
"""What torch knows of the containers that packages have registered, by their classes."""

TRACING = ("torch._dynamo.convert_frame", "torch._subclasses")
"""How modules are named below which a program's Python runs on tensors without elements, as a compiler asks it."""

_COND = Door("torch._higher_order_ops.cond:cond_op", "torch.cond has no float64 reference")
_WHILE_LOOP = Door("torch._higher_order_ops.while_loop:while_loop_op", "torch.while_loop has no float64 reference")
_LIBRARY = Door("torch.library:_scoped_library", "another stream of random numbers counts as a wrong result")
_OVERLAP = Door("torch:_debug_has_internal_overlap", "drawn cases may write where memory overlaps itself")
_VIEW_ORIGIN = Door(
    "torch._C._autograd:_get_creation_meta", "whether autograd takes writes into results is not compared"
)


def carried_modes() -> AbstractContextManager[None]:
    """Return a context that enters, in another thread, the modes that hold in this one now."""
    modes = [(enter_function_mode, leave_function_mode, mode) for mode in _function_modes()]
    modes += [(_enter_dispatch_mode, _leave_dispatch_mode, mode) for mode in _dispatch_modes()]

    @contextmanager
    def carried() -> Iterator[None]:
        with ExitStack() as stack:
            for enter, leave, mode in modes:
                enter(mode)
                stack.callback(leave)
            yield

    return carried()


def run_branches(mode: type, choose: Callable[..., Any], repeat: Callable[..., Any]) -> None:
    """Let the operators of ``torch.cond`` and ``torch.while_loop`` run these functions under a mode."""
    for door, function in ((_COND, choose), (_WHILE_LOOP, repeat)):
        if (operator := door.find()) is not None:
            operator.py_impl(mode)(function)


@contextmanager
def kernels_replaced(kernels: Mapping[str, Callable[..., Any]], key: str) -> Iterator[None]:
    """Let operators of ATen, by name and overload, run these functions under a dispatch key while the block lasts.

    Raises:
        ImportError: this torch cannot do so.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that these operators have kernels already
        with _LIBRARY.need()("aten", "IMPL") as library:
            for name, kernel in kernels.items():
                library.impl(name, kernel, key)
            yield


def is_said_to_overlap(tensor: torch.Tensor) -> bool:
    """Return whether torch says that two elements of a tensor are one place in memory. It does not say so of all."""
    return bool(_OVERLAP.call(tensor) == 1)


def refuses_writes(tensor: torch.Tensor) -> bool:
    """Return whether autograd refuses a write in place for how a tensor was made: as a view inside a function of its
    own, by an operator that gives several views, or without the grad mode."""
    if not (tensor.requires_grad and tensor._is_view()):
        return False
    origin = _VIEW_ORIGIN.call(tensor)
    return origin is not None and origin.name != "DEFAULT"
