"""A backend: a function that compiles a module and gives back something to call."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from runner.worker.errors import BackendNotFound, InvalidCase

Compile = Callable[[torch.nn.Module], Callable[..., Any]]


def build(backend: Mapping[str, Any]) -> Compile:
    """The function that compiles a module as ``backend`` says.

    Args:
        backend: ``backend`` (a name that torch knows, or ``package:function``), and optionally ``dynamic``,
            ``fullgraph``, ``mode``, ``options``, which go to torch.compile as they are.

    Raises:
        BackendNotFound: torch does not know the name, or the package has no such function.
    """
    target = find(str(backend["backend"]))
    arguments: dict[str, Any] = {"dynamic": backend.get("dynamic"), "fullgraph": bool(backend.get("fullgraph"))}
    if backend.get("mode"):
        arguments["mode"] = backend["mode"]
    if backend.get("options"):
        arguments["options"] = dict(backend["options"])

    def compile_module(model: torch.nn.Module) -> Callable[..., Any]:
        try:
            compiled: Callable[..., Any] = torch.compile(model, backend=target, **arguments)
            return compiled
        except Exception as error:  # it only checks its arguments here; nothing is compiled before the first call
            given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise InvalidCase(f"torch.compile refuses {given}: {error}") from error

    return compile_module


def find(name: str) -> str | Callable[..., Any]:
    """The name itself where torch knows it, else the function that ``package:function`` names.

    Raises:
        BackendNotFound: see ``build``.
    """
    if ":" in name:
        return _imported(name)
    known = known_backends()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        public = ", ".join(item for item in known if not item.endswith("_TESTING_ONLY"))
        raise BackendNotFound(f"no backend named {name}; torch {torch.__version__} knows {public}{hint}")
    return name


def known_backends() -> list[str]:
    """All names that torch knows here, the debugging ones too."""
    from torch._dynamo.backends import registry

    return sorted(registry.list_backends(exclude_tags=()))  # type: ignore[no-untyped-call,unused-ignore]


def _imported(name: str) -> Callable[..., Any]:
    package, _, function = name.partition(":")
    try:
        found: Any = importlib.import_module(package)
    except Exception as error:  # whatever the package does while it is imported
        raise BackendNotFound(f"no backend {name}: cannot import {package}: {type(error).__name__}: {error}") from error
    for part in function.split("."):
        if not hasattr(found, part):
            raise BackendNotFound(f"no backend {name}: {package} has no {function}")
        found = getattr(found, part)
    if not callable(found):
        raise BackendNotFound(f"no backend {name}: {function} cannot be called")
    return found  # type: ignore[no-any-return]
