"""Errors and warnings about files, each with its place, and the one way to print them.

The same text goes to the terminal, to JUnit and to every other report.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a file: one-based line and column, and how many characters the caret covers."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing wrong with a file.

    ``message`` says what is wrong and what was expected, ``hint`` what to write instead,
    ``text`` is the source line that the caret points into.
    """

    span: Span
    message: str
    hint: str = ""
    severity: str = "error"  # or "warning"
    text: str = ""

    def render(self) -> str:
        """``file:line:column: error: message``, the line, a caret, the hint."""
        lines = [f"{self.span}: {self.severity}: {self.message}"]
        if self.text:
            lines += caret(self.span, self.text)
        if self.hint:
            lines.append(f"     = {self.hint}")
        return "\n".join(lines)


class InputError(Exception):
    """Files that cannot be used. Carries every diagnostic found, errors and warnings."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.render() for d in self.diagnostics))


def caret(span: Span, text: str, width: int = 110) -> list[str]:
    """Two lines: the source line with its number, and a caret under ``span``.

    A line longer than ``width`` characters is cut around the caret.
    """
    start = max(span.column - 1, 0)
    text = text.rstrip("\n").replace("\t", " ")
    if len(text) > width:
        cut = max(0, min(start - width // 3, len(text) - width))
        text, start = text[cut : cut + width], start - cut
    marks = "^" * max(1, min(span.length, len(text) - start))
    gutter = f"{span.line:>4} | "
    return [gutter + text, " " * (len(gutter) - 2) + "| " + " " * start + marks]


def shown_path(path: str) -> str:
    """``path`` as a person would type it here: relative when it lies below this folder."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # no working directory, or another drive
        return path
    return path if relative.startswith("..") and os.path.isabs(path) else relative


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the closest spelling among ``known``, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def source_line(path: str | Path, line: int) -> str:
    """Line ``line`` of ``path`` (one-based), empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            for number, text in enumerate(handle, 1):
                if number == line:
                    return text.rstrip("\n")
    except OSError:
        return ""
    return ""
