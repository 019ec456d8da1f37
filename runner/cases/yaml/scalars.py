"""What YAML 1.2 core says about scalars, and PyYAML's errors in words for people."""

from __future__ import annotations

import math
import re

# --- which value a plain scalar is -----------------------------------------------------------

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_MAX_DIGITS = 1000  # Python refuses to read more than 4300, and no number here needs them


def resolve(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar under the YAML 1.2 core schema.

    Raises ValueError, with a message for people, for a number that Python cannot hold.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INT.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise ValueError(f"an integer of {len(text)} digits is too long to be meant")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError(
                f"{text[:60]} is beyond the range of a 64-bit float; write .inf or -.inf where infinity is meant"
            )
        return number
    return text


def split_lines(text: str) -> list[str]:
    """Return the lines of ``text`` as YAML 1.2 and editors count them. Always one or more."""
    return re.split(r"\r\n|\r|\n", text)


# Control characters, what changes the direction of text, and what is no character: a terminal would obey or hide them.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def excerpt(line: str) -> str:
    """Return a line of a file as it is shown: characters that a terminal obeys become U+FFFD.

    No character is added, so that a caret still fits.
    """
    return _UNSHOWN.sub("\ufffd", line)


# --- syntax errors ---------------------------------------------------------------------------

_Mark = tuple[int, int] | None  # zero-based line and column
# Which problem, and what to say: the C parser's words and the Python parser's differ.
_PROBLEMS: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a colon cannot stand here",
        'quote a text that holds ": "; or the line above is indented differently',
    ),
    (r"expected ',' or ']'", "this list is not closed, or a comma is missing", "flow style: [a, b]"),
    (r"expected ',' or '}'", "this mapping is not closed, or a comma is missing", "flow style: {a: 1, b: 2}"),
    ("block collection: .*expected", "this line does not fit the list around it", "check its indentation"),
    (
        "did not find expected key|expected <block end>",
        "this line does not fit the mapping around it",
        "check its indentation, and quote a value that starts with a quote and goes on after it",
    ),
    ("could not find expected ':'", "a key without its colon", "write `key: value`; quote a text of several lines"),
    (
        "undefined tag handle",
        "this tag is not declared: tags construct nothing here",
        "quote a text that starts with `!`",
    ),
    ("unknown escape character", "an unknown escape in double quotes", "single quotes take a backslash as it is"),
    ("expected node content|expected the node content", "a key or a value is missing here", ""),
    (
        "alphabetic or numeric character",
        "`*` and `&` start an alias and an anchor here",
        "quote a text that starts with `*` or `&`",
    ),
    (
        "<document start>",
        "this does not continue what stands above it",
        "check the indentation, and that each key ends in a colon",
    ),
    ("nesting level", "nested too deep", ""),
)


_KEY = re.compile(r"[\w.]+$")
_KEY_WITH_INDEX = re.compile(r"[\w.]+(?:\[[^\]\s]*\])+[\w.]*")


def syntax_problem(lines: list[str], problem: str, context: str, at: _Mark, start: _Mark) -> tuple[int, int, str, str]:
    """Return where a parser's error is best shown (zero-based line, column), the message and the hint.

    ``problem`` and ``context`` are PyYAML's words, ``at`` and ``start`` their places.
    """
    line, column = at or start or (0, 0)
    if line >= len(lines) or (line == len(lines) - 1 and not lines[line] and line):
        line, column = _last_text(lines)  # the end of the file: show something that a caret can point to
    tab = _tab_indentation(lines, line, column)
    if tab is not None:
        other_lines = [
            n + 1 for n, text in enumerate(lines) if "\t" in text[: len(text) - len(text.lstrip())] and n != tab[0]
        ]
        also = (
            f"; lines with tabs too: {', '.join(map(str, other_lines[:8]))}" + (", ..." if len(other_lines) > 8 else "")
            if other_lines
            else ""
        )
        return *tab, "a tab is used for indentation: YAML takes spaces only", "replace each tab by spaces" + also
    if "quoted scalar" in context and "end of stream" in problem and start:
        return *start, "this quote is never closed", ""
    if "quoted scalar" in context and "document" in problem and start:
        return *start, "this quote is not closed before the document ends", ""
    if "cannot start any token" in problem and lines[line][column : column + 1] == "\t":
        return line, column, "a tab stands where YAML takes a space", "replace it by a space"
    if "cannot start any token" in problem:
        return line, column, f"a value cannot start with {lines[line][column : column + 1]!r}", "quote the text"
    for pattern, message, hint in _PROBLEMS:
        if re.search(pattern, f"{context}: {problem}", re.DOTALL):
            if "escape" in message and lines[line][column - 1 : column] == "\\":
                column -= 1  # the C parser says where the backslash is, the Python one what follows it
            bracket = lines[line][column : column + 1] == "[" and _KEY.search(lines[line][:column])
            if "mapping" in message and bracket:
                key = _KEY_WITH_INDEX.match(lines[line], bracket.start())
                return line, bracket.start(), message, f'quote a key that has a bracket: "{key[0]}"' if key else hint
            if "closed" in message and start:
                if start[0] != line:
                    hint = f"it must be closed or continued before line {line + 1}, column {column + 1}"
                line, column = start
            return line, column, message, hint
    return line, column, f"this is not YAML: {problem}" + (f" ({context})" if context else ""), ""


def _tab_indentation(lines: list[str], line: int, column: int) -> tuple[int, int] | None:
    """The tab in the indentation of the line of an error or of the line before it, where that is the likely cause."""
    for number in (line, line - 1):
        if 0 <= number < len(lines):
            text = lines[number]
            indentation = text[: len(text) - len(text.lstrip())]
            if "\t" in indentation and text.strip():
                return number, indentation.index("\t")
    return None


def _last_text(lines: list[str]) -> tuple[int, int]:
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].strip():
            return number, len(lines[number].rstrip())
    return 0, 0
