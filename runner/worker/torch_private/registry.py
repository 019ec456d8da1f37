"""The backends that torch knows by name."""

from __future__ import annotations

from typing import Any

from runner.worker.torch_private.doors import Door

_LIST = Door("torch._dynamo.backends.registry:list_backends", "names of backends are not known")
_LOOK_UP = Door("torch._dynamo.backends.registry:lookup_backend", "names of backends are not known")
_REGISTER = Door("torch._dynamo.backends.registry:register_backend", "the minifier does not get a backend by name")

_INDUCTOR = Door("torch:_TorchCompileInductorWrapper", "Inductor with a mode or options compiles no parts of graphs")


def backend_names() -> list[str]:
    """Return all names, those for debugging too. torch imports what it names."""
    return sorted(_LIST.need()(exclude_tags=()))


def backend_of(name: str) -> Any:
    """Return the function of a backend by its name. Raises what torch raises for a name that it does not know."""
    return _LOOK_UP.need()(name)


def register(function: Any, name: str) -> None:
    """Let torch know a backend by a name."""
    _REGISTER.need()(function, name=name)


def inductor_of(mode: str | None, options: Any, dynamic: bool | None) -> Any:
    """Return Inductor as a function of graphs, with a mode or options as ``torch.compile`` takes them."""
    return _INDUCTOR.need()(mode, options, dynamic)
