"""A model and its inputs as one thing to call again and again, with its backward where the case asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.worker.program.load import LoadedCase, seed_all
from runner.worker.program.observe import Settings, autocast
from runner.worker.program.snapshot import storage_key


class RepeatedCall:
    """The case's first call, to be repeated. Inputs are made once; the grad mode around it is the caller's."""

    def __init__(self, loaded: LoadedCase, target: Callable[..., Any], settings: Settings) -> None:
        """Make the inputs of the first call.

        Args:
            target: the model or its compiled form.

        Raises:
            InvalidCase: making the inputs raised.
        """
        self.module = loaded.module.__name__
        self.notes: list[str] = []
        self.bytes = 0
        """Inputs, parameters, buffers and outputs of the first call."""
        self._target, self._call, self._settings = target, loaded.call, settings
        self._backward = settings.grad == "backward"
        self._cotangents: list[torch.Tensor] | None = None
        args = loaded.make_inputs(0, settings.seed)
        # Only a leaf can be differentiated twice without the graph of what made it.
        self._args = pytree.tree_map(_leaf, args) if self._backward else args
        self._state = [*_tensors(self._args), *loaded.model.parameters(), *loaded.model.buffers()]
        self._sources = [tensor for tensor in self._state if tensor.requires_grad and tensor.is_leaf]
        if len(loaded.makers) > 1:
            self.notes.append(f"of its {len(loaded.makers)} calls the first is timed")
        if self._backward and settings.order > 1:
            self.notes.append("the first backward is timed, not those of a higher order")

    def first(self) -> None:
        """Make the first call, and note from it how the others go."""
        seed_all(self._settings.seed)
        versions = [_version(tensor) for tensor in self._state]
        result = self._forward()
        outputs = _tensors(result)
        self.bytes = _bytes([*self._state, *outputs])
        if self._backward:
            heads = [tensor for tensor in outputs if tensor.requires_grad]
            self._cotangents = [torch.ones_like(tensor) for tensor in heads]
            if heads:
                self._differentiate(heads)
            else:
                self.notes.append("no output takes a gradient: the forward alone is timed")
        if versions != [_version(tensor) for tensor in self._state]:
            self.notes.append("a call writes to its inputs or its state: each goes on from what the last one left")

    def __call__(self) -> None:
        """Call once as a user does, and drop the result."""
        result = self._forward()
        if self._cotangents:
            self._differentiate([tensor for tensor in _tensors(result) if tensor.requires_grad])

    def _forward(self) -> Any:
        with autocast(self._settings):
            return self._call(self._target, self._args)

    def _differentiate(self, heads: list[torch.Tensor]) -> None:
        torch.autograd.backward(heads, self._cotangents)
        for tensor in self._sources:
            tensor.grad = None


def _leaf(value: Any) -> Any:
    """Return the same memory as a leaf if it is the result of an operation that would be differentiated."""
    if isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf:
        return value.detach().requires_grad_()
    return value


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the tensors' elements; elements that several share, or that one repeats, count once."""
    element_bytes: dict[int, int] = {}
    storage_bytes: dict[int, int] = {}
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        key = storage_key(tensor)
        if key is None:
            continue
        element_bytes[key] = element_bytes.get(key, 0) + tensor.numel() * tensor.element_size()
        storage_bytes[key] = int(tensor.untyped_storage().nbytes())
    return sum(min(size, storage_bytes[key]) for key, size in element_bytes.items())
