"""Source text to module and inputs, fresh for every run; and the settings of a job while it runs."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import linecache
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from runner.contract.job import Job, defines
from runner.contract.settings import DEFAULT_THREADS
from runner.worker.processes import temporary_folder
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.replacements import Additions, Replacements
from runner.worker.program.state import Holder, State, argument_names, file_holders, state_leaves
from runner.worker.torch_private.preparation import VECTORS_OK, forget_answers
from runner.worker.torch_private.settings import load_flags

MAKE_INPUTS = "make_inputs"
CALLERS = ("STEPS", "CHANGES", "CONTEXTS", "THREADS")
"""Lists of a source, an entry for each call: what the caller does before it, its contexts, and who makes it."""
_numbers = itertools.count()
_NO_CONTEXT = contextlib.nullcontext()

MODULE = "runner_case_"
"""The beginning of the names of the modules that hold generated sources."""


@dataclass(frozen=True)
class LoadedCase:
    """One fresh copy of the case: its module in ``sys.modules``, its model, one input maker a call."""

    module: ModuleType
    path: str
    model: torch.nn.Module
    makers: tuple[Callable[[], list[Any]], ...]
    cotangents: tuple[Callable[[], list[Any]], ...] = ()  # one a call, where the case gives them
    holders: tuple[Holder, ...] = ()  # of the variables of its file, as it was loaded
    python: contextlib.AbstractContextManager[None] = _NO_CONTEXT  # in which the case's Python runs
    stance: str = ""  # in which the model is called
    keywords: tuple[str, ...] = ()  # by which the last inputs go to the model
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer] | None = None
    steps: tuple[bool, ...] = ()  # whether the optimizer steps before a call
    changes: tuple[Callable[[torch.nn.Module], None] | None, ...] = ()  # one a call, where the caller changes something
    contexts: tuple[Callable[[], contextlib.AbstractContextManager[Any]], ...] = ()  # one a call
    threads: tuple[bool, ...] = ()  # whether a new thread makes the call

    @property
    def has_changes(self) -> bool:
        """Return whether the caller does anything beside the calls."""
        return bool(self.changes or self.contexts or self.threads)

    def change(self, call: int) -> None:
        """Do what the caller does before a call."""
        if self.changes and (change := self.changes[call]) is not None:
            with self.python:
                change(self.model)

    def around(self, call: int) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the caller makes a call, and again for its backward."""
        return self.contexts[call]() if self.contexts else contextlib.nullcontext()

    def in_thread(self, call: int) -> bool:
        """Return whether a new thread makes a call."""
        return bool(self.threads) and self.threads[call]

    def state_leaves(self) -> State:
        """Return what the model and its file hold now: see ``state_leaves`` in ``state.py``."""
        return state_leaves(self.model, self.module.__name__, self.holders)

    def make_inputs(self, call: int, seed: int) -> list[Any]:
        """Return fresh arguments of one call, with the generators seeded before.

        Raises:
            InvalidCase: the function raised, or gave no list or tuple.
        """
        seed_all(seed)
        return self._made(self.makers, call, "inputs")

    def call(self, target: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Call the model or its compiled form with the inputs of one call."""
        first = len(args) - len(self.keywords)
        return target(*args[:first], **dict(zip(self.keywords, args[first:], strict=True)))

    def argument_names(self, count: int) -> list[str]:
        """Return names such as ``input x`` for so many inputs: as ``forward`` calls each, else its number."""
        keywords = [f"input {keyword}" for keyword in self.keywords]
        return [*argument_names(self.model, count - len(keywords)), *keywords]

    def make_cotangents(self, call: int) -> list[Any]:
        """Return a cotangent, or None, for each tensor output of one call; nothing where the case gives none.

        They come after the call's inputs, from the same generator.

        Raises:
            InvalidCase: the function raised, or gave no list or tuple.
        """
        return self._made(self.cotangents, call, "cotangents") if self.cotangents else []

    def _made(self, makers: Sequence[Callable[[], list[Any]]], call: int, what: str) -> list[Any]:
        with _blaming(f"making the {what} of call {call}", self.path, self.module.__name__), self.python:
            tensors = makers[call]()
        if not isinstance(tensors, (list, tuple)):
            raise InvalidCase(f"the {what} of call {call} are a {type(tensors).__name__}, not a list")
        return list(tensors)


@contextlib.contextmanager
def _blaming(doing: str, path: str = "", module: str = "") -> Iterator[None]:
    """Make what is raised in the block an ``InvalidCase``, which says what the case was ``doing``."""
    try:
        yield
    except BaseException as error:
        raised = describe(error, path, module)
        raise InvalidCase(f"{doing} raised {raised.summary}", raised) from error


class Source:
    """The generated text as a real file, so that tracebacks, ``inspect`` and Dynamo find it."""

    def __init__(self, text: str, name: str, folder: str, replacements: Replacements | None = None) -> None:
        """Write ``text`` to ``folder/name.py`` (characters that a module name cannot hold become ``_``).

        ``replacements`` are those of a case whose Python may replace what the judge calls.
        """
        self.replacements = replacements
        self._python = replacements or _NO_CONTEXT
        self._additions = Additions() if replacements else None
        self.has_twin = defines(text, "make_twin")
        self._text = text
        self.stem = re.sub(r"\W", "_", name) or "case"
        self.path = str(Path(folder) / f"{self.stem}.py")
        Path(self.path).write_text(text, encoding="utf-8")
        self.models = 0
        """How many models were made. Each runs once, in eager or compiled."""
        self.stance = ""
        """That of torch.compile, in which models are made, and called in eager; empty for the one that there is."""
        self._modules: list[str] = []

    def load(self, seed: int, launching: bool = False, twin: bool = False) -> LoadedCase:
        """Import the file under a new name and make its model.

        The generators are seeded before the import and before ``make_model``, which also puts the model into its mode.
        ``launching`` asks for the model that is to be compiled, or launches the case's kernels, where there are any.
        ``twin`` asks for the equal model.

        Raises:
            InvalidCase: importing or making raised, or a part is missing.
        """
        with in_stance(self.stance):
            return self._load(seed, launching, twin)

    def _load(self, seed: int, launching: bool, twin: bool) -> LoadedCase:
        if self._additions:
            self._additions.remove()
        seed_all(seed)
        module = self._import()
        make_model = getattr(module, "make_model", None)
        if launching:
            make_model = self._own(module, "make_kernel_model") or make_model
        if twin:
            make_model = self._own(module, "make_twin")
        if not callable(make_model):
            raise InvalidCase("the source defines no make_model()")
        makers = self._own(module, "CALLS") or [getattr(module, MAKE_INPUTS, None)]
        if not all(callable(maker) for maker in makers):
            raise InvalidCase("the source defines no make_inputs(), or CALLS holds something that is no function")
        holders = file_holders(module)
        seed_all(seed)
        self.models += 1
        with _blaming("making the model", self.path, module.__name__), self._python:
            model = make_model()
        if not isinstance(model, torch.nn.Module):
            raise InvalidCase(f"make_model() gave a {type(model).__name__}, not a torch.nn.Module")
        cotangents = tuple(self._own(module, "COTANGENTS") or ())
        stance = "" if launching else self.stance
        keywords = tuple(self._own(module, "KEYWORD_INPUTS") or ())
        callers = (tuple(self._own(module, name) or ()) for name in CALLERS)
        return LoadedCase(
            module,
            self.path,
            model,
            tuple(makers),
            cotangents,
            holders,
            self._python,
            stance,
            keywords,
            self._own(module, "make_optimizer"),
            *callers,
        )

    def _own(self, module: Any, name: str) -> Any:
        """Return what the source itself defines under a name; None where only a person's file before it does."""
        return getattr(module, name) if defines(self._text, name) else None

    def close(self) -> None:
        """Forget the modules that were loaded, and what they have added to torch."""
        if self._additions:
            self._additions.remove()
        for name in self._modules:
            sys.modules.pop(name, None)
        self._modules.clear()
        linecache.checkcache(self.path)

    def _import(self) -> ModuleType:
        name = f"{MODULE}{self.stem}_{next(_numbers)}"
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None:
            raise InvalidCase(f"cannot import {self.path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        self._modules.append(name)
        with _blaming("loading the source", self.path, name), self._python:
            spec.loader.exec_module(module)
        return module


@contextlib.contextmanager
def open_source(job: Job, folder: str | None = None) -> Iterator[Source]:
    """Write a job's source into ``folder``, to stay there, or else into a temporary one, and set the job's
    ``environment``.

    Raises:
        InvalidCase: see ``environment``.
    """
    with contextlib.ExitStack() as stack:
        here = folder or stack.enter_context(temporary_folder())
        replacements = Replacements() if job.foreign else None  # before anything is imported
        stack.enter_context(environment(job))
        source = Source(job.source, job.name, here, replacements)
        stack.callback(source.close)
        yield source


def in_stance(stance: str) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which torch.compile has a stance; an empty one leaves it as it is."""
    return torch.compiler.set_stance(stance) if stance else contextlib.nullcontext()


def seed_all(seed: int) -> None:
    """Seed torch's generators on every device, Python's, and numpy's where numpy is loaded."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


@contextlib.contextmanager
def environment(job: Job) -> Iterator[None]:
    """Set the job's paths, imports, threads and flags for as long as the block lasts.

    Raises:
        InvalidCase: an import fails, or this torch has no such flag.
    """
    load_flags()
    threads = torch.get_num_threads()
    with importable(job.paths), contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        for name in job.imports:
            with _blaming(f"importing {name}"):
                importlib.import_module(name)
        # A job that asks for 0 has as many as torch takes by itself.
        own = int(os.environ.get(DEFAULT_THREADS, 0)) if job.threads == 0 else job.threads
        torch.set_num_threads(own or threads)
        with configured(job.config.items()):
            yield


@contextlib.contextmanager
def importable(folders: Iterable[str]) -> Iterator[None]:
    """Let Python import from these folders too for as long as the block lasts."""
    added = [folder for folder in folders if folder not in sys.path]
    sys.path.extend(added)
    try:
        yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)


@contextlib.contextmanager
def configured(flags: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """Set flags by full name, such as ``torch._inductor.config.cpp.simdlen``, and put them back afterwards.

    Raises:
        InvalidCase: no such flag here, or it refuses the value.
    """
    with contextlib.ExitStack() as restore:
        for name, value in flags:
            holder, attribute = _find_flag(name)
            original = getattr(holder, attribute)
            try:
                setattr(holder, attribute, value)
            except Exception as error:
                raise InvalidCase(f"config: {name} refuses {value!r}: {type(error).__name__}: {error}") from error
            if name == VECTORS_OK:
                # A process that has compiled would not read it again, neither now nor once it is put back.
                forget_answers()
                restore.callback(forget_answers)
            restore.callback(setattr, holder, attribute, original)
        yield


def _find_flag(name: str) -> tuple[Any, str]:
    """Return the object that holds a flag, and the flag's name in it.

    Raises:
        InvalidCase: this torch has no such flag.
    """
    parts = name.split(".")
    if parts[0] != "torch" or len(parts) < 3:
        raise InvalidCase(f"config: {name} is no full name of a torch flag, such as torch._inductor.config.debug")
    holder: Any = torch
    for depth, part in enumerate(parts[1:-1], start=2):
        if not hasattr(holder, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(".".join(parts[:depth]))
        if not hasattr(holder, part):
            raise InvalidCase(f"config: torch {torch.__version__} has no {'.'.join(parts[:depth])} (wanted {name})")
        holder = getattr(holder, part)
    if not hasattr(holder, parts[-1]):
        raise InvalidCase(f"config: torch {torch.__version__} has no flag {name}")
    return holder, parts[-1]
