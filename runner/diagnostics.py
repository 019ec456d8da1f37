"""Errors and warnings about files, each with its place, and the one way to print them.

The same text goes to the terminal, to JUnit and to every other report.
"""

from __future__ import annotations

import difflib
import functools
import io
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from runner.files import open_regular
from runner.text import in_line, visible

_PLACE = re.compile(r"(.+\.ya?ml):(\d{1,9}):(\d{1,9})(?:: (.*))?", re.DOTALL)


@dataclass(slots=True, unsafe_hash=True)  # nothing changes one; frozen, each value of a file took four times as long
class Span:
    """A place in a file: one-based line and column, and how many characters the caret covers."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}:{self.column}"

    @classmethod
    def of(cls, text: str) -> tuple[Span, str] | None:
        """Return the place at the start of ``FILE.yaml:LINE:COLUMN: WORDS``, and the words; None without one."""
        match = _PLACE.fullmatch(text)
        return (cls(match[1], int(match[2]), int(match[3])), match[4] or "") if match else None


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

    def render(self, width: int = 110) -> str:
        """Return ``file:line:column: error: message``, the line, a caret, the hint. Control characters are shown.

        Of the line ``width`` characters are shown.
        """
        head = in_line(f"{self.span}: {self.severity}: {self.message}")
        shown = caret(self.span, self.text, width) if self.text else []
        return "\n".join([head, *shown, *([f"     = {in_line(self.hint)}"] if self.hint else [])])


class InputError(Exception):
    """Files that cannot be used. Carries every diagnostic found, errors and warnings."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.render() for d in self.diagnostics))


def caret(span: Span, text: str, width: int = 110) -> list[str]:
    """Return two lines: the source line with its number, and a caret under ``span``.

    A line longer than ``width`` characters is cut around the caret. Control and bidirectional characters are shown.
    """
    text = text.rstrip("\r\n").replace("\t", " ")
    start = min(max(span.column - 1, 0), len(text))  # a log may name any column
    if len(text) > width:
        cut = max(0, min(start - width // 3, len(text) - width))
        text, start = text[cut : cut + width], start - cut
    marks = "^" * max(1, len(visible(text[start : min(start + span.length, len(text))])))
    start += len(visible(text[:start])) - len(text[:start])  # what is escaped takes more columns
    text = visible(text)
    gutter = f"{span.line:>4} | "
    return [gutter + text, " " * (len(gutter) - 2) + "| " + " " * start + marks]


def shown_path(path: str) -> str:
    """Return ``path`` as a person would type it here: relative when it lies below this folder."""
    try:
        return _path_seen_from(os.getcwd(), path)
    except (OSError, ValueError):  # no working directory, or another drive
        return path


@functools.lru_cache(1000)
def _path_seen_from(folder: str, path: str) -> str:
    relative = os.path.relpath(path, folder)
    return path if relative.startswith("..") and os.path.isabs(path) else relative


def shown_file(file: str) -> str:
    """Return ``file`` as a relative path with forward slashes where it lies below the working folder; any other file as
    it is.

    Every reader of JUnit that marks lines wants it so.
    """
    return in_line(PurePath(shown_path(file)).as_posix())


def repository_path(file: str) -> str:
    """Return a file relative to ``$GITHUB_WORKSPACE``, or else to the current folder, with forward slashes; empty if it
    lies elsewhere."""
    try:
        relative = os.path.relpath(os.path.realpath(file), os.path.realpath(os.environ.get("GITHUB_WORKSPACE") or "."))
    except (OSError, ValueError):  # a NUL, another drive
        return ""
    return "" if relative == ".." or relative.startswith(f"..{os.sep}") else PurePath(relative).as_posix()


_COMPARISONS = 200_000
"""Pairs of characters that one hint may compare: 40 ms at worst. Beyond that nobody asks for a hint."""


_ALIASES = {
    "gpu": "cuda", "float": "float32", "fp32": "float32", "f32": "float32", "single": "float32", "double": "float64",
    "fp64": "float64",
    "f64": "float64", "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "long": "int64",
    "int": "int32",
    "short": "int16", "byte": "uint8", "boolean": "bool", "cfloat": "complex64", "cdouble": "complex128",
    "chalf": "complex32",
    "fp8": "float8_e4m3fn", "float8": "float8_e4m3fn",
}  # fmt: skip
"""Names of dtypes and devices that are not like the one that is meant."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest spelling among ``known``, or another name of one; else an empty
    string."""
    words, budget = [], _COMPARISONS
    for name in known:
        budget -= len(word) * len(name)
        if budget < 0:
            break
        words.append(name)
    alias = _ALIASES.get(word.removeprefix("torch."), "")
    alias = next((name for name in (alias, f"torch.{alias}") if name in words), "")
    if alias:
        return f"did you mean {alias!r}?"
    close = difflib.get_close_matches(unicodedata.normalize("NFKC", word), words, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def source_line(path: str | Path, line: int) -> str:
    """Return line ``line`` of ``path`` (one-based), empty when it cannot be read."""
    return nth_line(source_lines(path), line)


def nth_line(lines: Sequence[str], line: int) -> str:
    """Return line ``line`` of ``lines`` (one-based); empty beyond them."""
    return lines[line - 1] if 0 < line <= len(lines) else ""


def source_lines(path: str | Path) -> list[str]:
    """Return the lines of ``path``, none when it cannot be read.

    None too for all but regular spec and suite files, and for what lies beyond their first 4 MiB: a log of a stranger
    may name any file.
    """
    try:
        if not os.path.realpath(path).endswith((".spec.yaml", ".suite.yaml")):
            return []
        with io.TextIOWrapper(open_regular(path), "utf-8", "replace") as handle:
            return handle.read(4 << 20).split("\n")
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return []
