"""A backend: a function that compiles a module and gives back something to call; and counts of CUDA graph replays."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any
from unittest import mock

import torch

from runner.worker.kernels.launches import Launches, launch_as_operators, launch_plainly
from runner.worker.program.cut import Cutter
from runner.worker.program.delegation import Watched
from runner.worker.program.errors import BackendNotFound, BrokenCompilerError, InvalidCase, package_of
from runner.worker.torch_private.registry import backend_names, backend_of, inductor_of

LAUNCH = "triton"
"""Not torch.compile's: the model as it is, its kernels launched plainly."""
COMPILED_LAUNCH = "triton-compiled"
"""Inductor, fullgraph, the kernels being operators of the graph."""

Compile = Callable[[torch.nn.Module], Callable[..., Any]]


def build(backend: Mapping[str, Any], watch: bool = False) -> Compile:
    """Return the function that compiles a module as ``backend`` says.

    Args:
        backend: ``backend`` (a name that torch knows, or ``package:function``), and optionally ``dynamic``,
            ``fullgraph``, ``mode``, ``options``, which go to torch.compile as they are. With ``compiled``, ranges of
            the graphs' calls, the others run in eager; with ``together`` those of a graph are one part (``Cutter``).
            LAUNCH compiles nothing; what it gives back has ``launches``. Under every other backend kernels are
            operators (``torch.library.triton_op``).
        watch: whether to count who computes the graphs of a backend outside torch (``delegation``). Torch's own tools
            need the backend itself, which they know by its name.

    Raises:
        BackendNotFound: torch does not know the name, or the package has no such function.
    """
    name = str(backend["backend"])
    if name == LAUNCH:
        return PlainLaunch
    target = find("inductor" if name == COMPILED_LAUNCH else name)
    fullgraph = bool(backend.get("fullgraph")) or name == COMPILED_LAUNCH
    arguments: dict[str, Any] = {"dynamic": backend.get("dynamic"), "fullgraph": fullgraph}
    if backend.get("mode"):
        arguments["mode"] = backend["mode"]
    if backend.get("options"):
        arguments["options"] = dict(backend["options"])
    if watch and "compiled" not in backend and packages(name):
        target = Watched(backend_of(target) if isinstance(target, str) else target, name)
    if "compiled" in backend:
        compiled = tuple(map(tuple, backend["compiled"]))
        target = Cutter(_function_of(target, arguments), compiled, bool(backend.get("together")))

    def compile_module(model: torch.nn.Module) -> Callable[..., Any]:
        make_operators(model)
        try:
            compiled: Callable[..., Any] = torch.compile(model, backend=target, **arguments)
            return compiled
        except Exception as error:  # it checks its arguments and imports the compiler; the first call compiles
            if _is_of_import(error):
                return _raiser("the compiler cannot be imported", error)
            if _accepts(target, arguments):
                return _raiser("torch.compile fails on the model", error)
            given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise InvalidCase(f"torch.compile refuses {given}: {error}") from error

    return compile_module


def _function_of(target: str | Callable[..., Any], arguments: dict[str, Any]) -> Callable[..., Any]:
    """Return a backend as a function of graphs. Arguments that torch.compile reads for Inductor are taken out."""
    function: Any = backend_of(target) if isinstance(target, str) else target
    if target == "inductor":
        function = inductor_of(arguments.pop("mode", None), arguments.pop("options", None), arguments["dynamic"])
    return function  # type: ignore[no-any-return,unused-ignore]


def _is_of_import(error: BaseException) -> bool:
    """Return whether a module that was being imported raised, or could not be had."""
    frames = traceback.walk_tb(error.__traceback__)
    return isinstance(error, ImportError) or any(frame.f_code.co_name == "<module>" for frame, _ in frames)


def _accepts(target: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether torch.compile takes its arguments beside another model."""
    try:
        torch.compile(torch.nn.Identity(), backend=target, **arguments)
    except Exception:  # noqa: BLE001  it raises what its checks and the compiler's modules raise
        return False
    return True


def _raiser(reason: str, error: Exception) -> Callable[..., Any]:
    """Return what stands for a model that torch.compile does not take: its first call says why."""

    def fail(*args: Any, **keywords: Any) -> Any:
        raise BrokenCompilerError(f"{reason}: {type(error).__name__}: {error}") from error

    return fail


def make_operators(model: torch.nn.Module) -> None:
    """Make the kernels that a model's source launches operators, which Dynamo can put into a graph."""
    source = sys.modules[type(model).__module__]
    if hasattr(source, "KERNELS"):
        launch_as_operators(source)


class PlainLaunch:
    """A model whose kernels are launched plainly. ``launches`` says what they did."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Put the launch with red zones into the module that holds the model's source.

        Raises:
            InvalidCase: the case launches no kernel.
        """
        source = sys.modules[type(model).__module__]
        if not hasattr(source, "KERNELS"):
            raise InvalidCase("this case launches no Triton kernel")
        self._model = model
        self.launches: Launches = launch_plainly(source)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the model."""
        return self._model(*args, **keywords)


def find(name: str) -> str | Callable[..., Any]:
    """Return the name itself where torch knows it, else the function that ``package:function`` names.

    Raises:
        BackendNotFound: see ``build``.
    """
    if ":" in name:
        return _imported(name)
    known = backend_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        public = ", ".join(item for item in known if not item.endswith("_TESTING_ONLY"))
        raise BackendNotFound(f"no backend named {name}; torch {torch.__version__} knows {public}{hint}")
    return name


@cache
def packages(name: str) -> frozenset[str]:
    """Return the packages that hold the code of a backend that ``build`` knows; empty for torch's own and for
    launches."""
    return frozenset() if name in (LAUNCH, COMPILED_LAUNCH) else packages_of(name, find(name))


def packages_of(backend: str, target: str | Any) -> frozenset[str]:
    """Return the packages that hold a backend's code; empty for a backend of torch's own.

    Args:
        backend: its name, as a job has it.
        target: what ``find`` returns for it: a name that torch knows, or the function itself.
    """
    if isinstance(target, str):
        target = backend_of(target)
    modules = {backend.partition(":")[0]} if ":" in backend else set()
    while isinstance(target, partial):
        target = target.func
    modules.add(str(getattr(target, "__module__", "") or type(target).__module__))
    return frozenset(filter(None, map(package_of, modules))) - {"torch"}


def _imported(name: str) -> Callable[..., Any]:
    package, _, function = name.partition(":")
    try:
        target: Any = importlib.import_module(package)
    except Exception as error:  # whatever the package does while it is imported
        raise BackendNotFound(f"no backend {name}: cannot import {package}: {type(error).__name__}: {error}") from error
    for part in function.split("."):
        if not hasattr(target, part):
            raise BackendNotFound(f"no backend {name}: {package} has no {function}")
        target = getattr(target, part)
    if not callable(target):
        raise BackendNotFound(f"no backend {name}: {function} cannot be called")
    return target  # type: ignore[no-any-return]


GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile that set ``triton.cudagraphs`` (``torch._inductor.list_mode_options()``)."""


class Replays:
    """What ``count_replays`` counts."""

    count = 0


@contextlib.contextmanager
def count_replays() -> Iterator[Replays]:
    """Count while the block lasts. A graph is replayed once right after it was recorded, and at each later call.

    Inductor replays through ``torch.cuda.CUDAGraph.replay`` alone (``torch/_inductor/cudagraph_trees.py``). It counts
    the graphs that it skips, but not those that it replays.
    """
    replays = Replays()
    original = torch.cuda.CUDAGraph.replay

    def replay(self: torch.cuda.CUDAGraph) -> None:
        replays.count += 1
        original(self)

    with mock.patch.object(torch.cuda.CUDAGraph, "replay", replay):
        yield replays


def missing_note(mode: str, calls: int) -> str:
    """Return the note for a mode that replayed no graph in ``calls`` calls."""
    message = f"mode {mode} replayed no CUDA graph"
    return message if calls > 1 else f"{message}: the second call would record one, and there is one call"


def makes_graphs(backend: Mapping[str, Any], device: str) -> bool:
    """Return whether a backend is to make CUDA graphs of what it compiles for ``device``."""
    return (
        backend["backend"] == "inductor" and backend.get("mode") in GRAPH_MODES and device.partition(":")[0] == "cuda"
    )
