"""A file in a foreign format: its text within a bound, and places in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from runner.diagnostics import Diagnostic, InputError, Span, shown_path
from runner.files import open_regular
from runner.text import in_line

LARGEST = 32 << 20
"""Bytes of one file that are read, and of one part of an archive."""
ZIP = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """The content of a file; of an archive the first bytes alone."""

    path: str
    data: bytes

    @property
    def text(self) -> str:
        """Return the content as text, with U+FFFD where it is no UTF-8."""
        return self.data.decode("utf-8", "replace").removeprefix("\ufeff")

    @property
    def name(self) -> str:
        """Return the name of the file without its ending."""
        return Path(self.path).stem

    def place(self, line: int) -> str:
        """Return ``file:line``."""
        return f"{in_line(shown_path(self.path))}:{line}"

    def error(self, message: str, hint: str = "", line: int = 1, column: int = 1) -> InputError:
        """Return an error at a place of the file."""
        lines = self.text.splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return InputError([Diagnostic(Span(self.path, line, column), message, hint, text=text)])


def read_file(path: str) -> ForeignFile:
    """Return a file.

    Raises:
        InputError: it cannot be read, or is larger than ``LARGEST``.
    """
    empty = ForeignFile(path, b"")
    try:
        with open_regular(path) as handle:
            data = handle.read(LARGEST + 1)
            data = data[: len(ZIP)] if data.startswith(ZIP) else data  # an archive is read part by part
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise empty.error(f"this file cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST:
        raise empty.error(f"this file is larger than {LARGEST >> 20} MiB", "split it")
    return ForeignFile(os.fspath(path), data)
