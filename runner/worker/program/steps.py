"""Steps of an optimizer between calls: a second object that is compiled, over the parameters of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from runner.worker.program.load import LoadedCase


class Steps:
    """The optimizer of a case, which steps by the gradients of the call before."""

    def __init__(self, loaded: LoadedCase, compile_step: Callable[[Any], Callable[..., Any]] | None) -> None:
        """Make the optimizer, if the case has one; ``compile_step`` compiles its step."""
        self._model, self._due, self._python = loaded.model, loaded.steps, loaded.python
        self._step: Callable[..., Any] | None = None
        self._gradients: dict[str, torch.Tensor] = {}
        if any(loaded.steps) and loaded.make_optimizer is not None:
            step = loaded.make_optimizer(loaded.model).step
            self._step = compile_step(step) if compile_step is not None else step

    def keep(self, gradients: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Keep the gradients of a call, by their names."""
        self._gradients = dict(gradients) if self._step is not None else {}

    def take(self, call: int) -> None:
        """Step, if the caller does so before a call."""
        if self._step is None or not self._due[call]:
            return
        for name, parameter in self._model.named_parameters():
            parameter.grad = self._gradients.get(f"gradient of parameter {name}")
        with self._python:
            self._step()
        for parameter in self._model.parameters():
            parameter.grad = None
