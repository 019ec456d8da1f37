"""Which package raised an exception: torch, the backend's own, or another one, and whether the backend was called."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Collection, Iterable
from typing import Any

from runner.worker.torch_private.registry import backend_of

OWN = "runner"


def packages_of(backend: str, target: str | Any) -> frozenset[str]:
    """Return the packages that hold a backend's code; empty for a backend of torch's own.

    Args:
        backend: its name, as a job has it.
        target: what ``backends.find`` returns for it: a name that torch knows, or the function itself.
    """
    if isinstance(target, str):
        target = backend_of(target)
    modules = {backend.partition(":")[0]} if ":" in backend else set()
    while isinstance(target, functools.partial):
        target = target.func
    modules.add(str(getattr(target, "__module__", "") or type(target).__module__))
    return frozenset(filter(None, map(package_of, modules))) - {"torch"}


def package_of(module: str) -> str:
    """Return the package that an error is put down to: the first part of the module's name.

    The standard library raises for its callers, so it has none. Modules of the runner stand for themselves: one holds
    backends.
    """
    first = module.partition(".")[0]
    if first == OWN:
        return module
    return "" if first in sys.stdlib_module_names else first


def raiser(links: Iterable[BaseException], packages: Collection[str], case: str) -> dict[str, str]:
    """Return ``raised_by``, the package that raised, and ``called_by``, the backend's package if it is on the way
    there.

    Nothing is returned for torch's own backends, and for what the case itself raised.

    Args:
        links: the exceptions from the one that the case got down to its origin: each holds a part of the frames.
        packages: those of the backend.
        case: name of the module that the case was loaded under.
    """
    tracks = [[package for package, _, _ in frames_of(link) if package] for link in links]
    by = tracks[-1][-1] if tracks and tracks[-1] else ""
    if not packages or by in ("", package_of(case)):
        return {}
    passed = [package for track in tracks for package in track if package in packages]
    return {"raised_by": by} | ({"called_by": passed[-1]} if passed else {})


def frames_of(error: BaseException) -> list[tuple[str, str, str]]:
    """Return (package, file relative to its root, function) of each frame of one exception, the outermost first."""
    frames = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__") or "")
        frames.append((package_of(module), module.replace(".", "/") + ".py", frame.f_code.co_name))
    return frames
