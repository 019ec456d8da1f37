"""What a command prints: every line passes here, so that no file's text reaches a terminal as a command to it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import TextIO

from runner import exit_codes
from runner.text import visible

_CODES = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
_LOGS = ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
"""Variables of systems that read commands to themselves in what a job prints: GitHub Actions, Azure Pipelines,
TeamCity."""

_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
)
"""Characters without a width, for a class: .NET passes over them where it compares texts, and so do runners of GitHub
and Azure."""
_MARKS = "|".join(
    f"[{_HIDDEN}]*".join(re.escape(character) for character in mark) for mark in ("#[", "#vso[", "#teamcity[")
)
_COMMAND = re.compile(rf"(?m)^([\s{_HIDDEN}]*:)(?=[{_HIDDEN}]*:)|(#)(?=[{_HIDDEN}]*(?:{_MARKS}))")
"""The beginning of such a command: ``::error``, ``##[error]``, ``##vso[``, ``##teamcity[``."""
_WRAPPED_COMMAND = re.compile(_COMMAND.pattern.replace(rf"^([\s{_HIDDEN}]*:)", "(:)"))
"""The same in a text whose lines somebody else may begin anywhere."""

_PAINTED = re.compile(r"(\x1b\[(?:0|1|2|31|32|33)m)")


class _State:
    """What stands on the terminal and must go before a remark is printed there."""

    clear: Callable[[], None] | None = None


def before_messages(clear: Callable[[], None] | None) -> None:
    """Let ``clear`` be called before each ``message``: it takes live lines away. None ends that."""
    _State.clear = clear


def painted(text: str, colour: str) -> str:
    """Return ``text`` in a colour, ``bold`` or ``dim``, for ``visible_in_colour`` to let through."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def visible_in_colour(text: str) -> str:
    """Return ``text`` for a terminal that is to obey what ``painted`` wrote and nothing else."""
    return "".join(part if _PAINTED.fullmatch(part) else visible(part) for part in _PAINTED.split(text))


def output(text: str = "", end: str = "\n", colours: bool = False) -> None:
    """Print a command's result to standard output. Control and bidirectional characters are shown, not obeyed.

    A reader that went away (``| head``) is no error: what follows goes nowhere. With ``colours`` the terminal obeys
    those of ``painted``, of which a text from outside must then be free.

    Raises:
        UsageError: it cannot be written, because a disk is full for example.
    """
    _succeed(_write(sys.stdout, (visible_in_colour(text) if colours else visible(text)) + end))


def command(line: str) -> None:
    """Print a command to GitHub Actions, of ``runner.quote.workflow_command``.

    Nothing else that is printed becomes one.
    """
    _succeed(_write(sys.stdout, visible(line) + "\n", commands=True))


def flush() -> None:
    """Hand what was printed to the operating system. Raises UsageError as ``output`` does."""
    _succeed(_write(sys.stdout, "", now=True))


def message(text: str = "", end: str = "\n") -> None:
    """Print a remark for people to standard error, by the same rule. A remark that cannot be printed is lost."""
    if _State.clear is not None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            _State.clear()
    with contextlib.suppress(RuntimeError):  # a signal's remark may meet one that is being printed
        _write(sys.stderr, visible(text) + end, now=True)


def status(text: str) -> None:
    """Let ``text`` be the last line of the terminal that standard error is; empty clears it."""
    _write(sys.stderr, "\r\x1b[K" + visible(text), now=True)


def ready() -> None:
    """Make the streams usable: what cannot be encoded is escaped, what was closed (``>&-``) leads nowhere."""
    # Else a file that is opened later gets the number of a stream.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _write(stream: TextIO, text: str, now: bool = False, commands: bool = False) -> str:
    """Why the text could not be written; empty if it was, or if nobody reads there any more."""
    try:
        stream.write(text if commands else without_commands(text, stream))
        if now:
            stream.flush()
    except (OSError, ValueError) as error:  # ValueError: somebody closed it
        with contextlib.suppress(OSError, ValueError):  # what its buffer holds would fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(error, BrokenPipeError) else getattr(error, "strerror", None) or str(error)
    return ""


def without_commands(text: str, stream: TextIO | None = None, wrapped: bool = False) -> str:
    """Return ``text`` so that no system of jobs that reads ``stream`` takes a line of it for a command to itself.

    Without a stream somebody else prints the text: pytest, where this command is its plugin. ``wrapped`` says that
    lines may then begin at other places.
    """
    return (_WRAPPED_COMMAND if wrapped else _COMMAND).sub(r"\1\2 ", text) if _is_log(stream) else text


def _is_log(stream: TextIO | None) -> bool:
    """Return whether a system that takes commands may read what is written; not of a regular file, which keeps each
    byte."""
    if not any(os.environ.get(name) for name in _LOGS):
        return False
    if stream is None:
        return True
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or no file
        return True


def _succeed(problem: str) -> None:
    if problem:
        raise exit_codes.UsageError(f"standard output cannot be written: {problem}", exit_codes.INTERNAL)
