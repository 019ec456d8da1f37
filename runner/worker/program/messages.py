"""What a program says while it runs: the text that its own Python prints, and the warnings that it gives.

What torch, a backend or a compiler says does not count, and neither does what Python says while it is traced.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TextIO

import torch

from runner.worker.program.walk import stable_text
from runner.worker.torch_private.dispatch import TRACING

STREAMS = ("stdout", "stderr")
WARNING = "warning"
MESSAGES = "messages"
"""How a note names them all."""

_MOST = 1 << 18
"""Characters of a run beyond which nothing is kept."""

_FOLDERS = tuple(str(folder) for folder in (Path(torch.__file__).parent, Path(__file__).parents[2]))
_FOREIGN = frozenset({"functorch", "triton"})
_PASSED = sys.stdlib_module_names | {"typing_extensions"}
"""Packages that speak for their caller: ``deprecated`` of the second is the standard library's in later Pythons."""
_OF_CPP = "(Triggered internally at "
_GRAPH = re.compile(r"[\s,]*grad_fn=<\w*>")
"""How a tensor is printed that autograd has computed: compiled code is another function of autograd."""
_NUMBER = re.compile(r"[\s,]*[-+]?(?:(?:\d+\.\d*|\.\d+)(?:e[-+]?\d+)?|\d+e[-+]?\d+|\b(?:nan|inf)\b)j?", re.IGNORECASE)
"""A number with a fraction, in columns whose width it decides."""


class Message(NamedTuple):
    """A text in one of ``STREAMS``, or the category and text of a ``WARNING``."""

    channel: str
    text: str


class Messages:
    """What the program has said since ``take`` was called."""

    def __init__(self, module: str, packages: Collection[str]) -> None:
        """Take the name of the case's module, and the packages of the backend's code."""
        self._module, self._packages = module, _FOREIGN.union(packages)
        self._messages: list[Message] = []
        self._length = 0

    def take(self) -> tuple[Message, ...]:
        """Return the messages, in order, as texts that are the same in every run; numbers with a fraction are ``#``."""
        joined: list[Message] = []
        for channel, text in self._messages:
            if joined and channel != WARNING and joined[-1].channel == channel:
                text = joined.pop().text + text
            joined.append(Message(channel, text))
        self._messages.clear()
        return tuple(Message(channel, _plain(text, self._module)) for channel, text in joined)

    def hear(self, channel: str, text: str) -> None:
        """Keep a text, if the program's own Python says it."""
        frame = self._speaker()
        is_heard = frame is not None and not (channel == WARNING and (_OF_CPP in text or not _warns(frame)))
        if is_heard and self._length < _MOST:
            self._messages.append(Message(channel, text))
            self._length += len(text)

    def _speaker(self) -> FrameType | None:
        """Return the frame of the program that speaks; None for another speaker, or while it is traced."""
        frame: FrameType | None = sys._getframe(3)
        speaker = None
        while frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if name.startswith(TRACING):
                return None
            if speaker is None and name.partition(".")[0] not in _PASSED:
                speaker = frame
            frame = frame.f_back
        return speaker if speaker is not None and self._is_program(speaker) else None

    def _is_program(self, frame: FrameType) -> bool:
        file, package = frame.f_code.co_filename, str(frame.f_globals.get("__name__", "")).partition(".")[0]
        return not file.startswith(("<", *_FOLDERS)) and package not in self._packages


def _warns(frame: FrameType) -> bool:
    """Return whether a function calls ``warnings.warn``: else an extension in C has warned in its place."""
    names = (*frame.f_code.co_names, *frame.f_code.co_freevars)
    return any(name in ("warn", "warn_explicit") or frame.f_globals.get(name) is warnings.warn for name in names)


def _plain(text: str, module: str) -> str:
    return _NUMBER.sub(" #", _GRAPH.sub(" grad_fn", stable_text(text, module)))


_SHOW = warnings.showwarning
_listeners: list[Messages] = []


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Show a warning, and hear it. One function for all runs: a case may have put it aside and put it back."""
    if _listeners:
        _listeners[-1].hear(WARNING, f"{category.__name__}: {message}")
    _SHOW(message, category, filename, lineno, file, line)


class _Copy(io.RawIOBase):
    """What stands below a stream of text and hears what is written. A compiler does not look below a stream."""

    def __init__(self, stream: TextIO, channel: str) -> None:
        self._stream, self._channel = stream, channel

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Any) -> int:
        text = bytes(data).decode("utf-8", "backslashreplace")
        self._stream.write(text)
        self._stream.flush()
        if _listeners:
            _listeners[-1].hear(self._channel, text)
        return len(data)


@contextlib.contextmanager
def heard(module: str, packages: Collection[str]) -> Iterator[Messages]:
    """Hear what the program says while the block lasts. A place that has warned before warns again in it."""
    messages = Messages(module, packages)
    streams = {name: getattr(sys, name) for name in STREAMS}
    with warnings.catch_warnings():
        if warnings.showwarning is _SHOW:
            warnings.showwarning = _show
        for name, stream in streams.items():
            setattr(sys, name, stream and io.TextIOWrapper(_Copy(stream, name), "utf-8", write_through=True))
        _listeners.append(messages)
        try:
            yield messages
        finally:
            _listeners.remove(messages)
            for name, stream in streams.items():
                setattr(sys, name, stream)
