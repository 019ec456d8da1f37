"""All that is compiled while a session is open: each object is recorded by a recorder of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runner.contract.graphs import Capture
from runner.worker.capture.recorder import Keep, Recorder, keep_nothing

_KEPT = ("fullgraph", "dynamic", "disable")
"""Options of ``torch.compile`` that say how Dynamo traces. All others are the backend's."""


class Session:
    """Records what is compiled while it is open.

    Nothing is patched but ``torch.compile``, whose backend becomes a recorder. What was compiled before is not
    recorded.
    """

    def __init__(self, keep: Keep = keep_nothing) -> None:
        """Record nothing yet. ``keep`` keeps values of inputs."""
        self._recorders: list[Recorder] = []
        self._compile: Callable[..., Any] = torch.compile
        self._keep = keep

    def __enter__(self) -> Session:
        """Take the place of ``torch.compile``."""
        self._compile, torch.compile = torch.compile, self.compile
        return self

    def __exit__(self, *raised: object) -> None:
        """Give ``torch.compile`` back."""
        torch.compile = self._compile

    def compile(self, model: Any = None, **options: Any) -> Any:
        """Compile as ``torch.compile`` does, but record instead of what the backend would do."""
        if model is None:
            return lambda function: self.compile(function, **options)
        kept = {key: value for key, value in options.items() if key in _KEPT}
        return self._compile(model, backend=self._recorder(name_of(model)), **kept)

    def captures(self) -> list[Capture]:
        """Return what was recorded, without compiled objects that were never called."""
        captures = [recorder.capture() for recorder in self._recorders]
        return [capture for capture in captures if capture.graphs or capture.breaks]

    def _recorder(self, model: str) -> Recorder:
        number = sum(1 for recorder in self._recorders if recorder.model.partition(" ")[0] == model)
        recorder = Recorder(f"{model} {number + 1}" if number else model, self._keep)
        self._recorders.append(recorder)
        return recorder


def name_of(model: Any) -> str:
    """Return what people call a model: its class, or the function."""
    model = getattr(model, "__self__", model)  # nn.Module.compile compiles a bound method
    name = type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__qualname__", "")
    return str(name or type(model).__name__).replace("<locals>.", "")
