"""Exceptions as facts that can be compared and sent: class names, message, trace, who raised each, and when.

The exception objects themselves are dropped at once: their tracebacks would keep every tensor of the run alive.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from subprocess import CalledProcessError
from types import FrameType
from typing import Any

import torch

from runner.contract.finding import telling_line, top_frame, without_place
from runner.worker.torch_private.dynamo import PACKAGES, RECOMPILE_ERRORS, RUNTIME_ERROR, UNSUPPORTED

MESSAGE_LIMIT = 4000  # characters
TRACE_LINES = 30
CHAIN_LIMIT = 8

# Files whose presence in a traceback says that torch was compiling. At run time a compiled call passes only through
# eval_frame, runtime_wrappers and output_code (seen on 2.6 and 2.13).
TRACING_AHEAD = re.compile(
    r"torch/_functorch/_aot_autograd/(graph_compile|graph_capture|dispatch_and_compile_graph"
    r"|jit_compile_runtime_wrappers|collect_metadata_analysis|traced_function_transforms)\.py$"
)
"""Files of AOTAutograd, which traces the backward of a graph with its forward."""
COMPILING_FILES = re.compile(
    r"torch/(_dynamo/(convert_frame|symbolic_convert|output_graph)"
    r"|_inductor/(compile_fx|codecache|graph|lowering|scheduler|async_compile))\.py$"
    rf"|{TRACING_AHEAD.pattern}"
)
TORCH_FOLDER = os.path.dirname(torch.__file__).replace("\\", "/") + "/"
OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|not enough memory: you tried to allocate|out of memory|Cannot allocate memory"
)


@dataclass(frozen=True)
class ErrorRecord:
    """One exception of a run.

    ``info`` is the record sent to the control half: type, message, chain, bases, trace, line, and its ``origin``: type,
    telling line and frame of the exception that the compiler wrapped, and the package that raised it. ``bases`` are the
    qualified names of its class and base classes, where the case's own module is called ``source``.
    """

    info: dict[str, Any]
    bases: tuple[str, ...]
    compiling: bool  # raised while torch compiled, or by the compiler's own classes
    compilers_own: bool  # a failure of the compiler, which never counts as the model's error
    unsupported: bool  # a graph break where none was allowed
    recompiled: bool
    memory: bool
    during: str = "forward"  # or "backward"
    ahead: bool = False  # raised while a backward was traced with its forward

    @property
    def summary(self) -> str:
        """Return the class and the first line of the message, such as ``IndexError: index out of range``.

        ``backend='inductor' raised:`` says nothing by itself, so the line after it follows.
        """
        lines = without_place(self.info["message"]).split("\n")
        first = " ".join(lines[:2]) if lines[0].endswith("raised:") else lines[0]
        return f"{self.info['type']}: {first[:300]}" if first else str(self.info["type"])


class InvalidCase(Exception):
    """The case itself is wrong (its source, its inputs, a flag); the compiler is not to blame. Becomes INVALID."""

    def __init__(self, reason: str, error: ErrorRecord | None = None) -> None:
        """Keep the ``reason``, and as ``error`` what the case raised, if that is the reason."""
        super().__init__(reason)
        self.reason = reason
        self.error = error

    @property
    def info(self) -> dict[str, Any]:
        """Return what the case raised as findings have it, else the reason in that form."""
        reason = {"type": "InvalidCase", "message": self.reason, "line": None}
        return reason if self.error is None else self.error.info


class Unreadable(Exception):
    """Stands for an exception whose own code raises."""


class BackendNotFound(InvalidCase):
    """No backend of that name can be had here."""


class BrokenCompilerError(Exception):
    """torch.compile raised before any call: a module of the compiler while it was imported, or the model's own code.

    What it raised is the cause. This error counts as raised by compiling.
    """


def describe(
    error: BaseException, source: str = "", module: str = "", during: str = "forward", packages: Collection[str] = ()
) -> ErrorRecord:
    """Turn an exception into facts.

    Args:
        error: what was raised, with its traceback.
        source: path of the generated source, to find the line; its folder is cut from the texts.
        module: name that the source was loaded under; in class names it becomes ``source``.
        during: ``forward`` or ``backward``.
        packages: those of the backend's code; none for torch's own.

    Of an exception whose own code raises while it is read, its traceback alone is told.
    """
    try:
        return _facts(error, source, module, during, packages)
    except BaseException as failure:  # noqa: BLE001  whatever it is, it is the case's
        plain = Unreadable(f"{class_name(type(error))} raised {class_name(type(failure))} while it was read")
        return _facts(plain.with_traceback(error.__traceback__), source, module, during, packages)


def _facts(error: BaseException, source: str, module: str, during: str, packages: Collection[str]) -> ErrorRecord:
    chain = _links(error, _cause_or_context)[:CHAIN_LIMIT]
    causes = _links(error, _cause)[:CHAIN_LIMIT]
    bases = _qualified_bases(type(error), module)
    is_broken = isinstance(error, BrokenCompilerError)
    own = is_broken or (any(_of_compiler(name) for name in bases) and not {RUNTIME_ERROR, UNSUPPORTED} & set(bases))
    folder = source.rpartition("/")[0] + "/" if "/" in source else ""
    message = _clean(_message(error), folder)
    # Frames only: the message stands beside them, and a C++ compiler's would push them out of the last lines.
    frames = _clean("".join(traceback.format_tb(error.__traceback__)), folder)
    info = {
        "type": class_name(type(error)),
        "message": _shorten(message),
        "chain": [class_name(type(link)) for link in chain],
        "bases": [class_name(base) for base in _bases(type(error))],
        "trace": "\n".join(frames.rstrip("\n").split("\n")[-TRACE_LINES:]),
        "line": _line(chain, source),
        "origin": _origin(error, folder, packages, module),
    }
    return ErrorRecord(
        info=info,
        bases=bases,
        compiling=own
        or any(_of_compiler(name) for name in bases)
        or any(_has_frames(link, COMPILING_FILES) for link in causes),
        compilers_own=own,
        unsupported=any(UNSUPPORTED in _qualified_bases(type(link), module) for link in causes),
        recompiled=bool(RECOMPILE_ERRORS & set(bases)),
        memory=any(_is_memory(link) for link in causes),
        during=during,
        ahead=any(_has_frames(link, TRACING_AHEAD) for link in causes),
    )


def is_class(raised: ErrorRecord, name: str) -> bool:
    """Return whether ``name``, as a case writes it, is the class of the error or one of its bases.

    ``torch.linalg.LinAlgError`` is looked up in torch. Its class calls itself ``torch._C._LinAlgError``, so that the
    name ``LinAlgError`` means a class with an underscore too.
    """
    parts = name.split(".")[1:] if name.startswith("torch.") else ["no part of torch"]
    resolved: Any = functools.reduce(lambda holder, part: getattr(holder, part, None), parts, torch)
    if isinstance(resolved, type):
        return f"{resolved.__module__}.{resolved.__qualname__}" in raised.bases
    last = name.rpartition(".")[2]
    return any(base == name or base.rpartition(".")[2] in (last, f"_{last}") for base in raised.bases)


def refutation(error: ErrorRecord | None, expected: Mapping[str, Any]) -> str:
    """Return why eager's exception is not the one that a case expects; empty if it is.

    ``expected`` is the case's ``expect.raises``.
    """
    name, pattern = expected["type"], expected.get("match")
    if error is None:
        return f"eager was to raise {name}, and returned"
    if not is_class(error, name):
        return f"eager was to raise {name}, and raised {error.summary}"
    if pattern and re.search(pattern, error.info["message"]) is None:
        return f"eager raised {error.summary}, which does not match {pattern!r}"
    return ""


def counts_as(compiled: ErrorRecord, eager: ErrorRecord) -> bool:
    """Return whether the compiled error is an instance of what eager raised; a compiler's own failure never is."""
    return not compiled.compilers_own and eager.bases[0] in compiled.bases


def _links(error: BaseException, following: Callable[[BaseException], BaseException | None]) -> list[BaseException]:
    """Return an exception and those that it leads to, the outermost first."""
    links: dict[int, BaseException] = {}
    link: BaseException | None = error
    while link is not None and id(link) not in links and len(links) < 100:
        links[id(link)] = link
        link = following(link)
    return list(links.values())


def _cause(error: BaseException) -> BaseException | None:
    """Return what an exception was raised from.

    The inner exception of BackendCompilerFailed and of InductorError is followed before causes, since torch raises
    those ``from None``.
    """
    inner = getattr(error, "inner_exception", None)
    return inner if isinstance(inner, BaseException) else error.__cause__


def _cause_or_context(error: BaseException) -> BaseException | None:
    """Return the cause or else the context. Suppressed contexts count, as torch raises much ``from None``."""
    return _cause(error) or error.__context__


def _cause_in_compiler(error: BaseException) -> BaseException | None:
    """Return what the compiler wrapped in an exception, or raised it from; LoweringException is raised ``from None``
    too."""
    inner = _cause(error)
    hides = error.__suppress_context__ and any(map(_of_compiler, _qualified_bases(type(error), "")))
    return error.__context__ if inner is None and hides else inner


def _origin(error: BaseException, folder: str, packages: Collection[str], module: str) -> dict[str, str]:
    """Return the innermost exception behind the compiler's own: its class, its telling line, its frame, and who raised
    it.

    The frame is the innermost one inside torch, or inside the backend where its own package raised.
    """
    links = _links(error, _cause_in_compiler)
    # A program that failed is named by the exception that has its output: CppCompileError, not CalledProcessError.
    origin = links[-2] if len(links) > 1 and isinstance(links[-1], CalledProcessError) else links[-1]
    who = raiser(links, packages, module)
    by = who.get("raised_by", "")
    if by in packages:
        within = [(file, function) for package, file, function in frames_of(origin) if package == by]
    else:
        within = [(_file(frame), frame.f_code.co_name) for frame, _ in traceback.walk_tb(origin.__traceback__)]
        within = [(file.removeprefix(TORCH_FOLDER), name) for file, name in within if file.startswith(TORCH_FOLDER)]
    message = telling_line(_clean(_message(origin), folder))
    return {"type": class_name(type(origin)), "message": message[:300], "frame": top_frame(reversed(within)), **who}


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.replace("\\", "/")


def _qualified_bases(cls: type, module: str) -> tuple[str, ...]:
    names = ((_read("__module__", base), _read("__qualname__", base)) for base in _bases(cls))
    homes = (("source" if module and where == module else where, name) for where, name in names)
    return tuple(name if where == "builtins" else f"{where}.{name}" for where, name in homes)


def class_name(cls: type) -> str:
    """Return the name of a class, whose metaclass may be the case's and raise when it is asked."""
    return str(_read("__name__", cls))


def _bases(cls: type) -> tuple[type, ...]:
    return _read("__mro__", cls)  # type: ignore[no-any-return]


def _read(name: str, cls: type) -> Any:
    """Return what ``type`` itself knows of a class."""
    return type.__dict__[name].__get__(cls)


def _of_compiler(name: str) -> bool:
    return name.startswith(PACKAGES)


def _has_frames(error: BaseException, files: re.Pattern[str]) -> bool:
    return any(files.search(_file(frame)) for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_memory(error: BaseException) -> bool:
    is_named = isinstance(error, MemoryError) or class_name(type(error)) == "OutOfMemoryError"
    return is_named or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(_message(error)) is not None)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    # An exception of the model may fail to print itself, by any exception.
    except BaseException as failure:  # noqa: BLE001
        return f"<its message cannot be had: {class_name(type(failure))}>"


def _shorten(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """Return the message in about ``limit`` characters: its start, and its end from a C++ compiler's diagnosis on.

    Warnings may stand before the diagnosis, thousands of characters of them with the headers of AVX2.
    """
    if len(message) <= limit:
        return message
    head = limit // 2
    start = len(message) - (limit - head)
    line = telling_line(message)
    place = message.rfind("\n", 0, max(message.find(line, head), 0)) + 1
    tail = message[start:] if place <= head or place >= start else message[place : place + limit - head]
    return f"{message[:head]}\n[... {len(message) - head - len(tail)} characters left out ...]\n{tail}"


def _clean(text: str, folder: str) -> str:
    """Return the text without the temporary folder, so that the same error reads the same in every run."""
    return text.replace(folder, "") if folder else text


def _line(chain: list[BaseException], source: str) -> int | None:
    """Return the innermost line of the generated source: from the frames, Dynamo's own stack, or the message."""
    if not source:
        return None
    quoted = re.compile(re.escape(f'File "{source}", line ') + r"(\d+)")
    lines = itertools.chain(
        (
            [line for frame, line in traceback.walk_tb(link.__traceback__) if frame.f_code.co_filename == source]
            for link in chain
        ),
        (
            [entry.lineno for entry in getattr(link, "real_stack", None) or () if entry.filename == source]
            for link in chain
        ),
        ([int(number) for number in quoted.findall(_message(link))] for link in chain),
    )
    return next((numbers[-1] for numbers in lines if numbers), None)


# --- who raised an exception: torch, the backend's own package, or another one ---

OWN = "runner"


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
    frames = [(str(frame.f_globals.get("__name__") or ""), _file(frame), frame.f_code.co_name)
              for frame, _ in traceback.walk_tb(error.__traceback__)]  # fmt: skip
    return [(package_of(name), _module_file(name, file), function) for name, file, function in frames]


def _module_file(module: str, file: str) -> str:
    """Return the file of a module below the folder that holds its package: ``acme/__init__.py`` of the package."""
    return module.replace(".", "/") + ("/__init__.py" if file.endswith("/__init__.py") else ".py")
