"""Collects what is wrong with one file while it is read, so that all of it is reported in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from runner.cases.limits import Limits
from runner.cases.yaml.values import CURLY_QUOTES, excerpt
from runner.diagnostics import Diagnostic, Span, nth_line, source_line
from runner.text import describe_character, in_line

T = TypeVar("T")


class TooManyProblems(Exception):
    """As much is wrong as is reported; what goes on reading finds nothing that anybody sees."""


class Problems:
    """Diagnostics of one file. ``lines`` are its lines, for the carets.

    ``error`` raises TooManyProblems once there are more different errors than are reported; as many warnings are kept.
    """

    def __init__(self, lines: Sequence[str], limits: Limits | None = None, file: str | None = None) -> None:
        """``file`` has the ``lines``. A place in another one (defaults of a suite) gets its line from there."""
        self.lines = lines
        self.limits = limits or Limits()
        self.file = file
        self.errors = 0
        """How many errors so far. One that is reported twice counts twice: it spoils two cases."""
        self.patterns: set[str] = set()
        """Regular expressions of the file so far."""
        self._diagnostics: dict[Diagnostic, None] = {}  # there may be thousands, and each is kept once

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """All of it, in the order found."""
        return list(self._diagnostics)

    def error(self, span: Span, message: str, hint: str = "") -> None:
        """Report something that makes the file unusable. Raises TooManyProblems beyond the limit."""
        self._add(Diagnostic(span, message, hint))

    def refuse(self, value: T, span: Span, message: str, hint: str = "") -> T:
        """Report an error as ``error`` does, and return ``value``, which stands for what is wrong."""
        self.error(span, message, hint)
        return value

    def attempt(self, make: Callable[[], T], span: Span, hint: str = "") -> T | None:
        """Return what ``make`` gives; None where it raises ValueError, which is reported."""
        try:
            return make()
        except ValueError as error:
            return self.refuse(None, span, str(error), hint)

    def warning(self, span: Span, message: str, hint: str = "") -> None:
        """Report something that a person should look at, and that changes nothing."""
        self._add(Diagnostic(span, message, hint, "warning"))

    def take(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add the diagnostics that another check of this file gave."""
        for diagnostic in diagnostics:
            self._diagnostics[diagnostic] = None
            self.errors += diagnostic.severity == "error"

    def _add(self, diagnostic: Diagnostic) -> None:
        span = diagnostic.span
        is_here = self.file is None or span.file == self.file
        text = nth_line(self.lines, span.line) if is_here else source_line(span.file, span.line)
        is_error = diagnostic.severity == "error"
        if not is_error and len(self._diagnostics) > self.limits.diagnostics:
            return
        self.take([replace(diagnostic, text=text)])
        # One more than are reported, so that it is known that there are more.
        if is_error and sum(d.severity == "error" for d in self._diagnostics) > self.limits.diagnostics:
            raise TooManyProblems


def within(span: Span, offset: int, length: int = 1) -> Span:
    """Return the place ``offset`` characters into a scalar."""
    return Span(span.file, span.line, span.column + max(offset, 0), max(length, 1))


def by_line(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return each diagnostic once, file by file as they come, in the order of their places there."""
    files: dict[str, dict[Diagnostic, None]] = {}
    for diagnostic in diagnostics:
        files.setdefault(diagnostic.span.file, {})[diagnostic] = None
    return [d for group in files.values() for d in sorted(group, key=lambda d: (d.span.line, d.span.column))]


def limited(diagnostics: Iterable[Diagnostic], limits: Limits) -> list[Diagnostic]:
    """Return what is reported of ``diagnostics``: each once, cut to size, within the limits for one file and for all.

    They come in the order of lines. One more diagnostic for each file, and one for all, counts what is left out.
    """
    different = by_line(diagnostics)
    counts = Counter(diagnostic.span.file for diagnostic in different)
    wrong = {diagnostic.span.file for diagnostic in different if diagnostic.severity == "error"}
    shown, seen = list[Diagnostic](), Counter[str]()
    for diagnostic in different:
        seen[diagnostic.span.file] += 1
        if seen[diagnostic.span.file] <= limits.diagnostics and len(shown) < limits.total_diagnostics:
            shown.append(diagnostic)
    last = {diagnostic.span.file: diagnostic for diagnostic in shown}
    surplus = {file: counts[file] - limits.diagnostics for file in last if counts[file] > limits.diagnostics}
    result = []
    for diagnostic in shown:
        span = diagnostic.span
        result.append(_shortened(diagnostic, limits))
        if last[span.file] is diagnostic and span.file in surplus:
            result.append(
                Diagnostic(
                    span,
                    f"at least {surplus[span.file]} more are not shown",
                    limits.hint("diagnostics"),
                    "error" if span.file in wrong else "warning",
                )
            )
    unshown = len(different) - len(shown) - sum(surplus.values())
    if unshown and result:
        result.append(
            Diagnostic(
                result[-1].span,
                f"at least {unshown} more in this and in other files are not shown",
                limits.hint("total_diagnostics"),
                "error" if wrong else "warning",
            )
        )
    return result


def _shortened(diagnostic: Diagnostic, limits: Limits) -> Diagnostic:
    """Without control characters, and no longer than is read. What is not what it looks like is named."""
    hint, remark = diagnostic.hint, _look_alike(diagnostic)
    return replace(
        diagnostic,
        message=_cut(diagnostic.message, limits.message_characters),
        hint=_cut(
            f"{hint}{' ' if hint.endswith('?') else '; '}{remark}" if hint and remark else hint or remark,
            limits.message_characters,
        ),
        text=excerpt(diagnostic.text),
    )


def _look_alike(diagnostic: Diagnostic) -> str:
    """Return which character of the name or text that an error is about looks like another one or like nothing; empty
    without such a character."""
    start = diagnostic.span.column - 1
    word = diagnostic.text[start : start + diagnostic.span.length].strip(" ")
    if diagnostic.severity != "error" or word.isascii() or not word:
        return ""
    if word[0] in CURLY_QUOTES:
        remark = "curly quotes are text in YAML: write straight ones"
    elif " " in word:  # prose, in any language
        return ""
    else:
        place = next(place for place, character in enumerate(word) if not character.isascii())
        remark = f"character {place + 1} is {describe_character(word[place])}: write ASCII"
    is_told = any(text in diagnostic.message for text in ("U+", "curly quotes"))
    return "" if is_told else remark


def _cut(text: str, length: int) -> str:
    line = in_line(text[: length + 1])
    return line if len(line) <= length else line[: max(length - 3, 0)] + "..."
