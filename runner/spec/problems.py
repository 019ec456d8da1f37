"""Collects what is wrong with one file while it is read, so that all of it is reported in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.diagnostics import Diagnostic, Span


class Problems:
    """Diagnostics of one file. ``lines`` are its lines, for the carets."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.found: list[Diagnostic] = []

    def error(self, span: Span, message: str, hint: str = "") -> None:
        """Something that makes the file unusable."""
        self._add(Diagnostic(span, message, hint))

    def warning(self, span: Span, message: str, hint: str = "") -> None:
        """Something that a person should look at, and that changes nothing."""
        self._add(Diagnostic(span, message, hint, "warning"))

    @property
    def errors(self) -> int:
        """How many errors so far."""
        return sum(d.severity == "error" for d in self.found)

    def _add(self, diagnostic: Diagnostic) -> None:
        line = diagnostic.span.line
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        full = replace(diagnostic, text=text)
        if full not in self.found:
            self.found.append(full)


def within(span: Span, offset: int, length: int = 1) -> Span:
    """A place ``offset`` characters into a scalar."""
    return Span(span.file, span.line, span.column + max(offset, 0), max(length, 1))
