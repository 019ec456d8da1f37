"""All that is compiled while a session is open: each object is recorded by a recorder of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from runner.contract.graphs import LOST, Capture
from runner.worker.capture.recorder import CompilerSettings, Keep, Recorder, keep_nothing
from runner.worker.program import global_state
from runner.worker.torch_private.settings import load_flags

_KEPT = ("fullgraph", "dynamic", "disable")
"""Options of ``torch.compile`` that say how Dynamo traces. All others are the backend's."""


_INDUCTOR = "torch._inductor.config."
_OF_DYNAMIC = ("assume_static_by_default", "automatic_dynamic_shapes")
"""Flags that torch.compile sets itself for ``dynamic``, which a case has."""

_PLAIN = (bool, int, float, str, type(None))


def _is_lost(setting: str) -> bool:
    """Return whether no case has a setting of torch; whether gradients are on, and autocast, are recorded."""
    return "torch" in setting and "autocast" not in setting and setting != "torch.is_grad_enabled()"


def _shown(value: Any) -> str:
    """Return the beginning of a value's text, of a function its name."""
    return str(getattr(value, "__qualname__", value))[:100]


class Session:
    """Records what is compiled while it is open.

    Nothing is patched but ``torch.compile``, whose backend becomes a recorder. What was compiled before is not
    recorded.
    """

    def __init__(self, keep: Keep = keep_nothing) -> None:
        """Record nothing yet. ``keep`` keeps values of inputs."""
        self._recorders: list[Recorder] = []
        self._original: dict[str, Any] = {}
        self._compile: Callable[..., Any] = torch.compile
        self._keep = keep

    def __enter__(self) -> Session:
        """Take the place of ``torch.compile``."""
        load_flags()
        self._original = global_state.read()
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
        return self._compile(model, backend=self._recorder(name_of(model), options), **kept)

    def compiler_settings(self, options: Mapping[str, Any]) -> CompilerSettings:
        """Return what a call of ``torch.compile`` with these options, and the user's code before it, tell the compiler.

        Options are flags of Inductor by their short names. What says where to read or write is no setting.
        """
        flags = {
            f"{name}.{key}": value
            for name, values in global_state.flags().items()
            if name in self._original
            for key, value in values.items()
            if not (key in _OF_DYNAMIC and options.get("dynamic") is not None)
            if not global_state.is_same(self._original[name].get(key), value)
        }
        flags |= {f"{_INDUCTOR}{key.replace('-', '_')}": value for key, value in (options.get("options") or {}).items()}
        config = {name: value for name, value in flags.items() if type(value) in _PLAIN}
        mode, backend = options.get("mode"), options.get("backend", "inductor")
        changed = {name: now for name, (_, now) in global_state.changes(self._original).items()}
        changed = {name: now for name, now in changed.items() if global_state.is_public(name) and _is_lost(name)}
        lost = [f"{LOST}{name} = {_shown(value)}" for name, value in {**flags, **changed}.items() if name not in config]
        lost += [f"{LOST}backend={_shown(backend)}; runner run --backend names one"] if backend != "inductor" else []
        return CompilerSettings({"mode": mode} if mode not in (None, "default") else {}, config, tuple(lost))

    def captures(self) -> list[Capture]:
        """Return what was recorded, without compiled objects that were never called.

        What Dynamo refused, and no recorder has taken for its own, is told of each object without a graph.
        """
        for recorder in self._recorders:
            recorder.take_refusals()
        captures = [recorder.capture() for recorder in self._recorders]
        return [capture for capture in captures if capture.graphs or capture.breaks]

    def _recorder(self, model: str, options: Mapping[str, Any]) -> Recorder:
        number = sum(1 for recorder in self._recorders if recorder.model.partition(" ")[0] == model)
        name = f"{model} {number + 1}" if number else model
        recorder = Recorder(name, self._keep, functools.partial(self.compiler_settings, options))
        self._recorders.append(recorder)
        return recorder


def name_of(model: Any) -> str:
    """Return what people call a model: its class, or the function."""
    model = getattr(model, "__self__", model)  # nn.Module.compile compiles a bound method
    name = type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__qualname__", "")
    return str(name or type(model).__name__).replace("<locals>.", "")
