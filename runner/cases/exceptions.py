"""Names of the exceptions that ``expect: {raises: ...}`` may mean."""

from __future__ import annotations

import builtins

from runner.diagnostics import nearest

_OF_TORCH = (
    "AcceleratorError", "BackendCompilerFailed", "ConstraintViolationError", "DataDependentOutputException", "DynamicOutputShapeException",
    "GuardOnDataDependentSymNode", "LinAlgError", "OutOfMemoryError", "TorchRuntimeError", "UncapturedHigherOrderOpError", "Unsupported",
    "UnsupportedFakeTensorException", "UnsupportedOperatorException", "UserError", "UserErrorType",
)  # fmt: skip
_KNOWN = (
    *(name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)),
    *_OF_TORCH,
)


def misspelt_exception(name: str) -> str:
    """Return ``did you mean 'RuntimeError'?`` for a name that is like one of Python's or torch's; else an empty string."""
    head, dot, last = name.rpartition(".")
    close = "" if last in _KNOWN else nearest(last, _KNOWN)
    return close.replace("'", f"'{head}{dot}", 1)
