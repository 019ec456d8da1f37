"""Collects what is wrong with one file while it is read, so that all of it is reported in one go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runner.diagnostics import Diagnostic, Span


class Problems:
    """Diagnostics of one file. ``lines`` are its lines, for the carets."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.errors = 0
        """How many errors so far."""
        self._found: dict[Diagnostic, None] = {}  # there may be thousands, and each is kept once

    @property
    def found(self) -> list[Diagnostic]:
        """All of it, in the order found."""
        return list(self._found)

    def error(self, span: Span, message: str, hint: str = "") -> None:
        """Something that makes the file unusable."""
        self._add(Diagnostic(span, message, hint))

    def warning(self, span: Span, message: str, hint: str = "") -> None:
        """Something that a person should look at, and that changes nothing."""
        self._add(Diagnostic(span, message, hint, "warning"))

    def take(self, diagnostics: Iterable[Diagnostic]) -> None:
        """What somebody else found in this file."""
        for diagnostic in diagnostics:
            if diagnostic not in self._found:
                self._found[diagnostic] = None
                self.errors += diagnostic.severity == "error"

    def _add(self, diagnostic: Diagnostic) -> None:
        line = diagnostic.span.line
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        self.take([replace(diagnostic, text=text)])


def within(span: Span, offset: int, length: int = 1) -> Span:
    """A place ``offset`` characters into a scalar."""
    return Span(span.file, span.line, span.column + max(offset, 0), max(length, 1))
