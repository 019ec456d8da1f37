"""Which lines of the compiler run: those of functions in some folders of torch, and of a backend's own package.

``sys.monitoring`` reports each line once and costs little. Python has it from 3.12 on. Before, and where all of its
tools are taken, ``sys.settrace`` reports each line each time. Both give the same lines.
"""

from __future__ import annotations

import contextlib
import dis
import importlib.util
import inspect
import sys
import threading
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runner.contract.lines import TORCH, text_of
from runner.worker.torch_private.dynamo import leave_out

Numbers = defaultdict[str, set[int]]
"""Lines by the name of their file, as code objects have it."""

_TORCH = Path(torch.__file__).parent
_OWN = "runner"
_PROLOGUE = {
    dis.opmap[name]
    for name in ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP")
    if name in dis.opmap
}
"""Instructions that a function begins with. The line of ``def`` does not run, where it has no others."""
_TOOLS = (3, 4, 2, 5, 1, 0)
"""Identifiers of ``sys.monitoring``: first those that Python reserves for nobody, the debugger's last."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Files whose lines are recorded: ``bases`` has a folder (with a slash at its end) or a file, and the folder that
    their names begin at. ``prefixes`` are the same without it."""

    bases: Mapping[str, Path]
    prefixes: tuple[str, ...]

    @staticmethod
    def of(packages: Iterable[str] = ()) -> Sources:
        """Return the compiler's folders in torch, and those packages that are installed. Nothing is imported.

        A package with the name of one of torch's folders is left out: nobody could tell their files apart.
        """
        bases = {f"{_TORCH / name}/": _TORCH for name in TORCH}
        for name in sorted({package.partition(".")[0] for package in packages} - {"torch", _OWN, *TORCH}):
            bases |= {f"{folder}/": Path(folder).parent for folder in _folders_of(name)}
            if (file := _file_of(name)) is not None:
                bases[str(file)] = file.parent
        return Sources(bases, tuple(bases))

    def has(self, code: types.CodeType) -> bool:
        """Return whether the lines of a code object count: it is a function's, in one of the files."""
        return bool(code.co_flags & inspect.CO_NEWLOCALS) and code.co_filename.startswith(self.prefixes)

    def name_of(self, file: str) -> str:
        """Return the name of a file: ``_inductor/ir.py`` of torch, ``acme/compile.py`` of the package ``acme``."""
        base = next(base for prefix, base in self.bases.items() if file.startswith(prefix))
        return Path(file).relative_to(base).as_posix()

    def files(self) -> list[str]:
        """Return all files, sorted."""
        return sorted(str(file) for prefix in self.prefixes for file in _modules_of(Path(prefix)))


def _modules_of(path: Path) -> Iterable[Path]:
    return path.rglob("*.py") if path.is_dir() else (path,)


def spec_of(package: str) -> Any:
    """Return where Python has a package or a module, by its first name; None without one. Nothing is imported."""
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):  # ValueError: a module without a spec
        return None


def _folders_of(package: str) -> list[str]:
    return [*(getattr(spec_of(package), "submodule_search_locations", None) or ())]


def _file_of(package: str) -> Path | None:
    spec = spec_of(package)
    is_file = spec is not None and spec.has_location and spec.submodule_search_locations is None
    return Path(spec.origin) if is_file and spec.origin.endswith(".py") else None


@contextlib.contextmanager
def recording(sources: Sources) -> Iterator[Numbers]:
    """Record lines while the context lasts, in all threads that Python can watch. Nothing that is compiled changes.

    A debugger, and another tool of ``sys.monitoring``, have their own again afterwards.
    """
    numbers: Numbers = defaultdict(set)
    leave_out(monitored, traced, step_of, lines_of, Sources.has)
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = take_tool(monitoring) if monitoring is not None else None
    with monitored(monitoring, tool, sources, numbers) if tool is not None else traced(sources, numbers):
        yield numbers


def texts_of(sources: Sources, numbers: Mapping[str, Iterable[int]]) -> set[str]:
    """Return the text of the lines of each file."""
    return {text_of(sources.name_of(file), lines) for file, lines in numbers.items() if lines}


# --- sys.monitoring ---


def take_tool(monitoring: Any) -> int | None:
    """Take a tool of ``sys.monitoring``, and return its number; None where others have all."""
    for tool in _TOOLS:
        with contextlib.suppress(ValueError):  # somebody has it
            monitoring.use_tool_id(tool, _OWN)
            return tool
    return None


@contextlib.contextmanager
def monitored(monitoring: Any, tool: int, sources: Sources, numbers: Numbers) -> Iterator[None]:
    """Add lines to ``numbers`` by ``sys.monitoring``: the first start of a function asks for its lines, and each line
    is reported once. The tool is given back."""
    events, codes = monitoring.events, dict[int, types.CodeType]()

    def start(code: types.CodeType, offset: int) -> object:
        if id(code) not in codes and sources.has(code):
            codes[id(code)] = code
            monitoring.set_local_events(tool, code, events.LINE)
        return monitoring.DISABLE

    def line(code: types.CodeType, number: int) -> object:
        if number != code.co_firstlineno or number in lines_of(code):
            numbers[code.co_filename].add(number)
        return monitoring.DISABLE

    callbacks = {events.PY_START: start, events.PY_RESUME: start, events.LINE: line}
    try:
        for event, callback in callbacks.items():
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME)
        monitoring.restart_events()  # an earlier variant of this process has turned off what it saw
        yield
    finally:
        monitoring.set_events(tool, 0)
        for code in codes.values():  # a tool that is given back keeps its events on some versions
            monitoring.set_local_events(tool, code, 0)
        for event in callbacks:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


# --- sys.settrace ---

Step = Callable[[types.FrameType, str, object], Any]


@contextlib.contextmanager
def traced(sources: Sources, numbers: Numbers) -> Iterator[None]:
    """Add lines to ``numbers`` by ``sys.settrace``, in this thread and those that begin."""
    steps: dict[int, Step | None] = {}
    codes: list[types.CodeType] = []  # so that no other code object gets the identity of one of them
    ended = False

    def enter(frame: types.FrameType, event: str, argument: object) -> Step | None:
        code = frame.f_code
        try:
            return steps[id(code)]
        except KeyError:
            return add(code)

    def add(code: types.CodeType) -> Step | None:
        if ended:  # of a thread that lives on
            sys.settrace(None)
            return None
        codes.append(code)
        steps[id(code)] = step_of(code, steps, numbers) if sources.has(code) else None
        return steps[id(code)]

    before, before_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before_threads)
        ended = True
        steps.clear()


def step_of(code: types.CodeType, steps: dict[int, Step | None], numbers: Numbers) -> Step:
    """Return what adds the lines of one code object. When it has seen all, later calls are not traced."""
    remaining, key, add = {*lines_of(code)}, id(code), numbers[code.co_filename].add

    def step(frame: types.FrameType, event: str, argument: object) -> None:
        """Add a line. None is returned, which lets a frame keep its function."""
        if event == "line" and (number := frame.f_lineno) in remaining:
            add(number)
            remaining.discard(number)
        if not remaining:
            steps[key] = None
            frame.f_trace_lines = False

    return step


# --- all lines ---


def line_table(packages: Iterable[str] = ()) -> list[str]:
    """Return all lines that are in functions, of torch's folders and of packages.

    Others run when their module is imported, which nobody watches.
    """
    sources, texts = Sources.of(packages), []
    for file in sources.files():
        try:
            module = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OSError):  # of a newer Python, or no text of Python
            continue
        if numbers := {number for code in _functions(module) for number in lines_of(code)}:
            texts.append(text_of(sources.name_of(file), numbers))
    return texts


def _functions(code: types.CodeType) -> Iterator[types.CodeType]:
    if code.co_flags & inspect.CO_NEWLOCALS:
        yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _functions(constant)


def lines_of(code: types.CodeType) -> Iterator[int]:
    """Yield the lines of a code object that can run, some several times."""
    opcodes = code.co_code
    for begin, end, line in code.co_lines():
        if line is not None and not (line == code.co_firstlineno and _PROLOGUE.issuperset(opcodes[begin:end:2])):
            yield line
