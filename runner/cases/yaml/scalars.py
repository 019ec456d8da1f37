"""What YAML 1.2 core says about scalars; PyYAML's errors, values and what a schema wants in the words of messages."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from runner.text import describe_character

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
CURLY_QUOTES = ("\u201c", "\u201d", "\u201e", "\u2018", "\u2019")
"""Quotes of word processors, which YAML takes for text."""
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


_BLANKS = (
    " "
    "\t\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u200b\u200c\u200d\u202f\u205f\u2060\u3000"
)
"""Characters that look like spaces or like nothing."""
_REFERENCE = re.compile(r"\$(?:\{[^{}]*\}|[\w.]+(?:\[[^\[\]]*\][\w.]*)+)")
_KEY = re.compile(r"[\w.]+$")
_KEY_WITH_INDEX = re.compile(r"[\w.]+(?:\[[^\]\s]*\])+[\w.]*")


def syntax_problem(lines: list[str], problem: str, context: str, at: _Mark, start: _Mark) -> tuple[int, int, str, str]:
    """Return where a parser's error is best shown (zero-based line, column), the message and the hint.

    ``problem`` and ``context`` are PyYAML's words, ``at`` and ``start`` their places.
    """
    line, column = at or start or (0, 0)
    if line >= len(lines) or (line == len(lines) - 1 and not lines[line] and line):
        line, column = _last_text(lines)  # the end of the file: show something that a caret can point to
    for number in (line, line - 1):
        if 0 <= number < len(lines) and lines[number].strip() and _odd_blank(lines[number]):
            return _indentation_problem(lines, number)
    if (reference := _unquoted_reference(lines[line], column)) is not None:
        return line, *reference
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


def _odd_blank(text: str) -> str:
    """Return the first character of a line's indentation that looks blank and is no space; empty without one."""
    return text[: len(text) - len(text.lstrip(_BLANKS))].strip(" ")[:1]


def _indentation_problem(lines: list[str], line: int) -> tuple[int, int, str, str]:
    blank = _odd_blank(lines[line])
    numbers = [str(number) for number, text in enumerate(lines, 1) if _odd_blank(text) == blank and number != line + 1]
    name, word = ("a tab", "tab") if blank == "\t" else (f"the character {describe_character(blank)}", "one")
    also = f"; lines with {word}s too: {', '.join(numbers[:8])}" + ", ..." * (len(numbers) > 8) if numbers else ""
    return (
        line,
        lines[line].index(blank),
        f"{name} is used for indentation: YAML takes spaces only",
        f"replace each {word} by spaces{also}",
    )


def _unquoted_reference(text: str, column: int) -> tuple[int, str, str] | None:
    """Return where a reference with brackets has no quotes at that place in flow style, and what to say; None if none
    is there."""
    match = next((m for m in _REFERENCE.finditer(text) if m.start() <= column < m.end()), None)
    if match is None:
        return None
    if text[match.start() - 1 : match.start()] in CURLY_QUOTES:
        return match.start() - 1, "curly quotes are text in YAML", f'write straight quotes: "{match[0]}"'
    return match.start(), f"{match[0]} has brackets and no quotes", f'quote it: "{match[0]}"'


def _last_text(lines: list[str]) -> tuple[int, int]:
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].strip():
            return number, len(lines[number].rstrip())
    return 0, 0


_TYPES = {
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def expected(schema: dict[str, Any]) -> str:
    """Return what a value under ``schema`` should be."""
    if "x-expected" in schema:
        return str(schema["x-expected"])
    types = schema.get("type", [])
    words = [_TYPES[name] for name in ([types] if isinstance(types, str) else types)]
    return " or ".join(words) or "something else"


def describe_value(value: Any) -> str:
    """Describe a value: its kind and, where it is short, itself."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"{show_value(value)}"
        case int():
            return f"the integer {show_value(value)}"
        case float():
            return f"the number {show_value(value)}"
        case str():
            return f"the text {show_value(value)}"
        case list():
            return "a list" if value else "an empty list"
    return "a mapping" if value else "an empty mapping"


def show_value(value: Any) -> str:
    """Return a value as it stands in a message: short, on one line."""
    text = repr(value) if isinstance(value, str) else flow(value)
    return text if len(text) <= 60 else text[:57] + "..."


def flow(value: Any) -> str:
    """Return a value in flow style."""
    match value:
        case None | bool():
            return json.dumps(value)
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        case str():
            return (
                value if re.fullmatch(r"[A-Za-z$./_][^:#,\[\]{}'\"]*", value) else json.dumps(value, ensure_ascii=False)
            )
        case list():
            return f"[{', '.join(map(flow, value))}]"
        case dict():
            return f"{{{', '.join(f'{flow(k)}: {flow(v)}' for k, v in value.items())}}}"
    return str(value)


def such_as(schema: dict[str, Any]) -> str:
    """Return the schema's first example as a hint, or an empty string."""
    examples = schema.get("examples")
    return f"such as {flow(examples[0])}" if examples else ""


def count(number: int, singular: str, plural: str) -> str:
    """Return ``one key``, ``2 keys``."""
    return f"one {singular}" if number == 1 else f"{number} {plural}"
