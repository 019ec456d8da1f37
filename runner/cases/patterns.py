"""Regular expressions from files, matched in the control process: by an engine that does not backtrack.

RE2 takes time in proportion to the text, whatever the expression, and its memory is bounded. Names of the exceptions
that ``expect: {raises: ...}`` may mean are here too.
"""

from __future__ import annotations

import builtins
import re
from functools import lru_cache
from typing import Any

from runner.diagnostics import nearest

MEMORY = 64 << 10
"""Bytes that one expression may take."""

_SYNTAX = "the syntax is RE2's: https://github.com/google/re2/wiki/Syntax"
_HINTS = (
    (("(?=", "(?!"), "RE2 has no lookahead: write the text that follows, or two entries"),
    (("(?<=", "(?<!"), "RE2 has no lookbehind: write the text that stands before"),
    (("\\Z",), "write \\z for the end of the text"),
    (("(?>", "++", "*+", "?+"), "RE2 never backtracks: leave out what keeps it from that"),
    ((*tuple(f"\\{n}" for n in range(1, 10)), "(?P="), "RE2 has no back references: write the text again"),
)


# Python compiles a class that reaches beyond ASCII by a table of 65,536 characters: 250 of them take a second.
_PLAIN = re.compile(r"(?:[\x00-\x5b\x5d-\x7f]|\\[^uUN\x80-\U0010ffff])*", re.DOTALL)


class PatternError(ValueError):
    """An expression that the engine does not take; ``hint`` says what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def check_pattern(pattern: str) -> None:
    """Raise PatternError for an expression that ``matches_anywhere`` cannot take."""
    _compiled(pattern)


def check_python_pattern(pattern: str) -> None:
    """Raise PatternError for an expression that Python's own engine, which a worker uses, cannot take."""
    if "[" in pattern and not _PLAIN.fullmatch(pattern):
        raise PatternError(
            "an expression with a character class holds ASCII alone, and no \\u, \\U or \\N",
            "list the characters that are meant, each with a bar before it",
        )
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"not a regular expression: {error}", "") from None


def matches_anywhere(pattern: str, text: str) -> bool:
    """Return whether the expression matches somewhere in ``text``. Raises PatternError for one that is not taken."""
    # What a worker says may hold halves of characters, which UTF-8 does not.
    return _compiled(pattern).search(text.encode("utf-8", "replace").decode()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    import re2  # costs 10 ms that `runner --version` need not pay

    options = re2.Options()
    options.max_mem = MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except UnicodeError:
        raise PatternError("not a regular expression: half of a surrogate pair is no character", _SYNTAX) from None
    except re2.error as error:
        reason = error.args[0]
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if "too large" in words:
            raise PatternError(f"not taken: it needs more than {MEMORY} bytes", "write smaller repetitions") from None
        if "repetition size" in words:
            raise PatternError(f"not a regular expression: {words}", "RE2 repeats at most 1000 times") from None
        raise PatternError(
            f"not a regular expression: {words}",
            next((hint for marks, hint in _HINTS if any(mark in pattern for mark in marks)), _SYNTAX),
        ) from None


_OF_TORCH = (
    "AcceleratorError", "BackendCompilerFailed", "ConstraintViolationError", "DataDependentOutputException",
    "DynamicOutputShapeException", "GuardOnDataDependentSymNode", "LinAlgError", "OutOfMemoryError",
    "TorchRuntimeError", "UncapturedHigherOrderOpError", "Unsupported", "UnsupportedFakeTensorException",
    "UnsupportedOperatorException", "UserError", "UserErrorType",
)  # fmt: skip
_KNOWN = (
    *(name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)),
    *_OF_TORCH,
)


def misspelt_exception(name: str) -> str:
    """Return ``did you mean 'RuntimeError'?`` for a name that is like one of Python's or torch's; else an empty
    string."""
    head, dot, last = name.rpartition(".")
    close = "" if last in _KNOWN else nearest(last, _KNOWN)
    return close.replace("'", f"'{head}{dot}", 1)
