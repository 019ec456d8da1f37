"""What the graphs that Dynamo hands to a backend say of the model: where inputs come from, and why the graph ends."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.fx import GraphModule, Node

from runner.worker.torch_private.doors import Door

_SET_GRAD = Door("torch._C:_set_grad_enabled", "regions without gradients are captured as if they had some")
_ENTER_AUTOCAST = Door("torch.amp.autocast_mode:_enter_autocast", "regions under autocast are captured without it")
_EXIT_AUTOCAST = Door("torch.amp.autocast_mode:_exit_autocast", "regions under autocast are captured without it")
_CHECKPOINT = Door(
    "torch._higher_order_ops.wrap:tag_activation_checkpoint", "checkpoints are no operators that can be captured"
)
_IS_WRAPPED = Door("torch._C._functorch:is_functorch_wrapped_tensor", "tensors within vmap and grad are read as others")
_LOG_USAGE = Door("torch._C:_log_api_usage_once", "a call that only counts who uses torch is captured as an operator")
_WEIGHT_NORM = Door("torch:_weight_norm", "weight norms are left out of captured graphs")
_ENTER_VMAP, _EXIT_VMAP, _ADD_BATCH, _REMOVE_BATCH, _LOAD = (
    Door(f"torch._functorch.predispatch:{name}", "a vmap is left out of captured graphs", ("2.9", "2.13"))
    for name in ("_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim",
                 "lazy_load_decompositions")
)  # fmt: skip
_COUNTERS = Door("torch._dynamo.utils:counters", "graph breaks that end a frame are not told")

_CONTEXT = Door("torch._guards:TracingContext", "parts of graphs are compiled with tensors of Dynamo's own")

_TRANSFORM = re.compile(r"^_(vmap|grad|jvp)_increment_nesting$")
_TRANSFORM_END = re.compile(r"^_(vmap|grad|jvp)_decrement_nesting$|^_saved_tensors_hooks_enable$")

COMPILED = ("torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C._sparse")
"""Modules whose functions have a public name, too."""


def is_grad_switch(target: Any) -> bool:
    """Return whether a graph's call turns gradients on or off for what follows."""
    return target is _SET_GRAD.find()


def is_without_effect(target: Any) -> bool:
    """Return whether a graph's call neither gives nor changes anything."""
    return target is not None and target in (_LOG_USAGE.find(), _LOAD.find())


def is_weight_norm(target: Any) -> bool:
    """Return whether a graph's call is ``torch._weight_norm``, which the old ``weight_norm`` and the new one call."""
    return target is not None and target is _WEIGHT_NORM.find()


def is_vmap_start(target: Any) -> bool:
    """Return whether a graph's call begins what ``vmap`` maps."""
    return target is not None and target is _ENTER_VMAP.find()


def is_vmap_end(target: Any) -> bool:
    """Return whether a graph's call ends it."""
    return target is not None and target is _EXIT_VMAP.find()


def is_batch_start(target: Any) -> bool:
    """Return whether a graph's call takes a dimension of a tensor as the one that is mapped over."""
    return target is not None and target is _ADD_BATCH.find()


def is_batch_end(target: Any) -> bool:
    """Return whether a graph's call gives that dimension back."""
    return target is not None and target is _REMOVE_BATCH.find()


def transform_of(target: Any) -> str:
    """Return what a graph's call begins to run, such as ``torch.func.vmap``; empty where it begins none.

    Its name tells: the function is torch's own or a wrapper of it, by version and by transform.
    """
    match = _TRANSFORM.search(_name_of(target))
    return f"torch.func.{match[1]}" if match else ""


def begins_transform(target: Any) -> bool:
    """Return whether a graph's call begins what a transform runs, or forbids hooks before it does."""
    return bool(transform_of(target)) or _name_of(target) == "_saved_tensors_hooks_disable"


def ends_transform(target: Any) -> bool:
    """Return whether a graph's call ends what ``begins_transform`` says."""
    return bool(_TRANSFORM_END.search(_name_of(target)))


def _name_of(target: Any) -> str:
    return str(getattr(target, "__name__", ""))


def is_transformed(value: torch.Tensor) -> bool:
    """Return whether a tensor belongs to a transform such as ``vmap``, which does not let its elements be read."""
    return bool(_IS_WRAPPED.call(value))


def is_autocast_start(target: Any) -> bool:
    """Return whether a graph's call enters autocast."""
    return target is _ENTER_AUTOCAST.find()


def is_autocast_end(target: Any) -> bool:
    """Return whether a graph's call leaves autocast."""
    return target is _EXIT_AUTOCAST.find()


def is_checkpoint(target: Any) -> bool:
    """Return whether a graph's call recomputes a function in the backward."""
    return target is _CHECKPOINT.find()


def is_higher_order(target: Any) -> bool:
    """Return whether a graph's call takes graphs as arguments."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def overload_name(target: Any) -> str:
    """Return ``aten.add.Tensor`` for that operator of ``torch.ops``; an empty text for any other function."""
    return str(target) if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket) else ""


def source_of(placeholder: Node) -> str:
    """Return where Dynamo takes an input from, such as ``L['x']``; an empty text if it does not say."""
    source = getattr(placeholder, "_dynamo_source", None)
    if source is None:
        source = getattr(placeholder.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def is_fake(value: Any) -> bool:
    """Return whether a value is a tensor without elements, as torch traces with."""
    return getattr(value, "fake_mode", None) is not None


def example_of(value: Any, is_real: bool = False) -> Any:
    """Return what a backend is given for an input of which Dynamo keeps this value.

    A backend that traces again takes fake tensors of the mode that torch has set for it, which may be another one than
    Dynamo's own (all of 2.6, parts of later versions). With ``is_real`` it gets zeros, unless a size varies.
    """
    if not is_fake(value) or value.layout != torch.strided:
        return value
    metadata = {"size": value.shape, "stride": value.stride(), "dtype": value.dtype, "device": value.device}
    if is_real and all(type(number) is int for number in (*value.shape, *value.stride())):
        return _inner(torch.empty_strided(**metadata).zero_().requires_grad_(value.requires_grad))
    context = _CONTEXT.find()
    context = context.try_get() if context is not None else None
    mode = getattr(context, "fake_mode", None)
    if mode is None or value.fake_mode is mode:
        return value
    with mode:
        example = torch.empty_strided(**metadata)
    return example.requires_grad_(value.requires_grad)


def _inner(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is no leaf where it asks for a gradient, if its copy has its strides: a leaf may not be
    written."""
    if not tensor.requires_grad:
        return tensor
    with torch.enable_grad():
        copy = tensor.clone()
    return copy if copy.stride() == tensor.stride() else tensor


def end_of(graph: GraphModule) -> tuple[str, str]:
    """Return the reason and the place of the graph break that ended a graph; empty texts where none did."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return "", ""
    frame = reason.user_stack[-1] if reason.user_stack else None
    return str(reason.reason), "" if frame is None else f"{frame.filename}:{frame.lineno}: {frame.line or ''}"


def counted_breaks() -> dict[str, int]:
    """Return the reasons of all graph breaks of this process so far, and how often each came.

    Dynamo counts a frame that it refuses as a whole elsewhere.
    """
    counters = _COUNTERS.find()
    kinds = () if counters is None else (counters["unimplemented"], counters["graph_break"])
    return {str(reason): int(n) for kind in kinds for reason, n in kind.items()}
