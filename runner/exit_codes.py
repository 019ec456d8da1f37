"""Exit codes: pytest's, so that the glue around it keeps working. Append-only. And the error that carries one."""

from __future__ import annotations

OK = 0
FAILED = 1
"""At least one red verdict: FAIL, ERROR, XPASS, VACUOUS, FLAKY or INVALID."""
NO_RESULT = 1
"""Of a command about one failure: it did not show, or does not allow what was asked for."""
INTERRUPTED = 2
"""Ctrl-C or SIGTERM; reports are written, what did not finish is not-run."""
INTERNAL = 3
"""The runner itself failed, or a requested report could not be written."""
USAGE = 4
"""A bad argument, or files that cannot be used; nothing ran."""
NOTHING = 5
"""Nothing was selected."""


class UsageError(Exception):
    """What was asked for cannot be done; ``code`` is the exit code."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code
