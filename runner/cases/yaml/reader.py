"""YAML 1.2 core text to a tree of nodes that know their place.

PyYAML's parser gives the events: the C one, ten times faster, where it is installed. This package decides which scalar
is a number, what a tag may do and what an alias may cost. PyYAML would decide as YAML 1.1 does: ``1e-3`` text, ``no``
false, ``1:30`` ninety. No constructor is ever involved.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from runner.cases.limits import Limits, show_size
from runner.cases.yaml.values import (
    CURLY_QUOTES,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    excerpt,
    resolve,
    split_lines,
)
from runner.diagnostics import Diagnostic, Span, nearest, nth_line
from runner.files import open_regular
from runner.text import describe_character


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Read without Python's collector: trees and cases have no cycles, and its walks take much of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def load(
    path: str | Path, text: str | None = None, limits: Limits | None = None
) -> tuple[YamlNode | None, list[Diagnostic]]:
    """Return the tree in ``text`` (in the file ``path`` when None), and the diagnostics of it.

    A bad file raises nothing. The tree is None where none could be built. Beside errors that leave one (a duplicate
    key, a tag) it is what remains, so that later checks can report more.
    """
    limits = limits or Limits()
    file = str(path)
    if text is None:
        text, diagnostics = read_text(path, limits)
        if text is None:
            return None, diagnostics
    elif len(text.encode("utf-8", "surrogatepass")) > limits.file_bytes:
        return None, [_too_large(file, limits)]
    text = text.removeprefix("\ufeff")
    builder = Builder(file, text, limits)
    with without_collector():
        root = builder.build()
    return root, builder.diagnostics


def read_text(path: str | Path, limits: Limits | None = None) -> tuple[str | None, list[Diagnostic]]:
    """Return the characters of a file, without a byte order mark, or None and the reason why it cannot be read."""
    limits = limits or Limits()
    file = str(path)
    try:
        with open_regular(path) as handle:
            data = handle.read(limits.file_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return None, [
            Diagnostic(
                Span(file, 1, 1),
                _UNREADABLE.get(type(error), f"this file cannot be read: {getattr(error, 'strerror', None) or error}"),
                similar_file(Path(path)) if isinstance(error, FileNotFoundError) else "",
            )
        ]
    if len(data) > limits.file_bytes:
        return None, [_too_large(file, limits)]
    try:
        return data.decode("utf-8").removeprefix("\ufeff"), []
    except UnicodeDecodeError as error:
        lines = split_lines(data[: error.start].decode("utf-8").removeprefix("\ufeff"))
        broken_text = re.split(rb"[\r\n]", data[error.start : error.start + 80])[0].decode("utf-8", "replace")
        return None, [
            Diagnostic(
                Span(file, len(lines), len(lines[-1]) + 1),
                f"this file is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
                "it looks like UTF-16; save it as UTF-8"
                if data[:2] in (b"\xff\xfe", b"\xfe\xff")
                else "save it as UTF-8",
                text=excerpt(lines[-1] + broken_text),
            )
        ]


_UNREADABLE: Mapping[type[Exception], str] = {
    IsADirectoryError: "this is a folder, not a file",
    FileNotFoundError: "there is no such file",
    PermissionError: "there is no permission to read this file",
}


def _too_large(file: str, limits: Limits) -> Diagnostic:
    return Diagnostic(
        Span(file, 1, 1), f"this file is larger than {show_size(limits.file_bytes)}", limits.hint("file_bytes")
    )


_NAMES = 2000
"""Names in a folder that a misspelt one is compared with."""


def similar_file(path: Path) -> str:
    """Return ``did you mean 'first.spec.yaml'?`` for a name that is like one in its folder; else an empty string.

    What stands before the first dot must be alike too: all names of cases end alike.
    """
    try:
        names = itertools.islice(os.listdir(path.parent), _NAMES)
    except (OSError, ValueError):
        return ""
    start = path.name.partition(".")[0]
    return nearest(path.name, [name for name in names if nearest(start, [name.partition(".")[0]])])


C_PARSER: Any = getattr(yaml, "CSafeLoader", None)
"""None for a PyYAML without libyaml. Only its events are asked for: no loader composes or constructs anything."""

_CORE = "tag:yaml.org,2002:"
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}
# Line breaks of YAML 1.1 that YAML 1.2 and editors do not have: they would shift every later line number.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]*)*")


class _Stop(Exception):
    """Reading on is pointless."""


@dataclass(slots=True)
class _Frame:
    """A collection that is still open."""

    event: Any
    is_mapping: bool
    items: list[YamlNode] = field(default_factory=list)
    entries: list[tuple[YamlScalar, YamlNode]] = field(default_factory=list)
    seen: dict[str, YamlScalar] = field(default_factory=dict)
    key: YamlScalar | None = None
    skip: bool = False  # the key was refused: its value is read and dropped


class Builder:
    """Builds the tree of one text. Iterative, so that deep nesting cannot exhaust Python's stack."""

    def __init__(self, file: str, text: str, limits: Limits) -> None:
        """``file`` is what places name; nothing is read from it."""
        self.file = file
        self.text = text
        self.limits = limits
        self.lines = split_lines(text)
        self.diagnostics: list[Diagnostic] = []
        self._reset()

    def _reset(self) -> None:
        self.stack: list[_Frame] = []
        self.root: YamlNode | None = None
        self.anchors: dict[str, YamlNode | None] = {}  # None while open
        self.written = self.expanded = self.repeated = 0
        self.memo: dict[str, bool | int | float | str | None] = {}
        self.documents = 0

    def build(self) -> YamlNode | None:
        """Return the tree, or None without one; ``diagnostics`` says why."""
        if _CONTROL.search(self.text):
            self._report_characters()
            return None
        try:
            self._run(C_PARSER)
        except _Stop:
            return None
        if self.root is None or (isinstance(self.root, YamlScalar) and not self.root.quoted and not self.root.text):
            self._report(
                Span(self.file, 1, 1),
                "this file is empty: there is nothing in it",
                "a suite starts with `suite:`" if self.file.endswith(".suite.yaml") else "a spec starts with `cases:`",
            )
            return None
        return self.root

    def _run(self, c_parser: Any) -> None:
        try:
            self._consume((c_parser or yaml.SafeLoader)(self.text))
        except yaml.MarkedYAMLError as error:
            if c_parser and "found unexpected ':'" in str(error.problem):
                # libyaml refuses `{Tensor.abs:, out: y}`, which YAML 1.2 allows and PyYAML's own parser reads.
                self.diagnostics.clear()
                self._reset()
                return self._run(None)
            self._syntax_error(error)
            raise _Stop from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an escape beyond Unicode
            self._report(Span(self.file, 1, 1), f"this is not YAML: {error}")
            raise _Stop from None

    def _consume(self, parser: Any) -> None:
        scalar, alias = yaml.ScalarEvent, yaml.AliasEvent
        sequence, mapping = yaml.SequenceStartEvent, yaml.MappingStartEvent
        while True:
            event = parser.get_event()
            kind = type(event)
            if kind is scalar:
                self._add(self._scalar(event), event.anchor)
            elif kind is sequence or kind is mapping:
                self._open(event, kind is mapping)
            elif kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
                self._close(event)
            elif kind is alias:
                self._add(self._alias(event))
            elif kind is yaml.DocumentStartEvent:
                self._document(event)
            elif event is None or kind is yaml.StreamEndEvent:
                return

    def _document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self._report(
                self._span(event.start_mark, 3), "a second document starts here; a file holds one", "use two files"
            )
            raise _Stop
        if event.version and tuple(event.version) < (1, 2):
            version = ".".join(map(str, event.version))
            self._report(
                self._span(event.start_mark, 5),
                f"this file says YAML {version} and is read as YAML 1.2",
                severity="warning",
            )

    # --- nodes ---

    def _scalar(self, event: Any) -> YamlScalar:
        text: str = event.value
        start, end, style, tag = event.start_mark, event.end_mark, event.style, event.tag
        line, column = start.line, self._start_column(event) if tag or event.anchor else start.column
        length = end.column - column if end.line == line else len(self.lines[line]) - column
        if style == "|" or style == ">" or length < 1:
            length = 1
        span = Span(self.file, line + 1, column + 1, length)
        self.written += 1
        if self.written > self.limits.nodes:
            self._too_many(span)
        if len(text) > self.limits.text_characters:
            self._report(
                span,
                f"this text has {len(text)} characters, more than {self.limits.text_characters}",
                self.limits.hint("text_characters"),
            )
            text = text[: self.limits.text_characters]
        quoted = bool(style)
        value: bool | int | float | str | None = text
        if tag and tag != "!":
            value = self._tagged(event, text, quoted, span)
        elif not quoted and not tag:
            value = self.memo[text] if text in self.memo else self._resolved(text, span)
        if style == '"' and not text.isascii() and _SURROGATE.search(text):
            self._report(span, "half of a surrogate pair is no character", "write \\U and eight digits")
            value = text = _SURROGATE.sub("\ufffd", text)
        return YamlScalar(value, span, text, quoted)

    def _resolved(self, text: str, span: Span) -> bool | int | float | str | None:
        if text not in self.memo:
            try:
                self.memo[text] = resolve(text)
            except ValueError as error:
                self._report(span, str(error))
                self.memo[text] = text
        return self.memo[text]

    def _tagged(self, event: Any, text: str, quoted: bool, span: Span) -> bool | int | float | str | None:
        name = event.tag.removeprefix(_CORE) if event.tag.startswith(_CORE) else ""
        if name not in _KINDS:
            self._bad_tag(event)
            return text if quoted else self._resolved(text, span)
        if name == "str":
            return text
        value = self._resolved(text, span)
        if not isinstance(value, _KINDS[name]) or (isinstance(value, bool) and name != "bool"):
            self._report(span, f"{text[:60]!r} is tagged !!{name} and is not one")
            return value
        return float(value) if name == "float" and value is not None and not isinstance(value, str) else value

    def _bad_tag(self, event: Any) -> None:
        tag = event.tag[:60].replace(_CORE, "!!", 1)
        self._report(
            self._span(event.start_mark, len(tag)),
            f"the tag {tag} has no place here: tags construct nothing here",
            "leave it out; only !!str, !!int, !!float, !!bool, !!null, !!seq and !!map are known",
        )

    def _alias(self, event: Any) -> YamlNode:
        name = event.anchor
        span = self._span(event.start_mark, len(name) + 1)
        self.written += 1
        if self.written > self.limits.nodes:
            self._too_many(span)
        target = self.anchors.get(name)
        if target is None:
            message = f"*{name[:60]} stands inside &{name[:60]}: a value cannot contain itself"
            hint = ""
            if name not in self.anchors:
                message = f"there is no anchor &{name[:60]}"
                hint = nearest(name, self.anchors) or (
                    "an anchor `&name` stands before its alias `*name`; quote a `*` that is meant"
                )
            self._report(span, message, hint)
            return YamlScalar(None, span, "")
        nodes, characters, height = _measure(target)
        self.expanded += nodes
        self.repeated += characters
        for limit, count, unit in (
            ("expanded_nodes", self.expanded, "nodes"),
            ("expanded_characters", self.repeated, "characters"),
        ):
            most = getattr(self.limits, limit)
            if count > most:
                self._exceed(limit, span, f"the aliases up to here stand for more than {most} {unit}")
        if len(self.stack) + height > self.limits.depth:
            self._too_deep(span)
        return target

    def _open(self, event: Any, is_mapping: bool) -> None:
        if event.tag and event.tag not in ("!", _CORE + ("map" if is_mapping else "seq")):
            self._bad_tag(event)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.written += 1
        if self.written > self.limits.nodes:
            self._too_many(self._span(event.start_mark))
        if len(self.stack) >= self.limits.depth:
            self._too_deep(self._span(event.start_mark))
        self.stack.append(_Frame(event, is_mapping))

    def _close(self, event: Any) -> None:
        frame = self.stack.pop()
        first, end = frame.event, event.end_mark
        start, length = first.start_mark, 1
        column = self._start_column(first) if first.tag or first.anchor else start.column
        if first.flow_style or self.lines[start.line][column : column + 1] in ("[", "{"):
            length = end.column - column if end.line == start.line else len(self.lines[start.line]) - column
        elif frame.entries and frame.entries[0][0].span.line == start.line + 1:
            length = frame.entries[0][0].span.length  # a block mapping is shown by its first key
        span = Span(self.file, start.line + 1, column + 1, max(length, 1))
        node: YamlNode = (
            YamlMapping(tuple(frame.entries), span) if frame.is_mapping else YamlSequence(tuple(frame.items), span)
        )
        self._add(node, first.anchor)

    def _add(self, node: YamlNode, anchor: str | None = None) -> None:
        """Puts a finished node into the collection that is open."""
        if anchor:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.skip:
            frame.skip = False
        elif frame.key is None:
            frame.key = self._checked_key(frame, node)
            frame.skip = frame.key is None
        else:
            frame.entries.append((frame.key, node))
            frame.key = None

    def _checked_key(self, frame: _Frame, node: YamlNode) -> YamlScalar | None:
        """``node`` as a key, or None when its entry cannot stand."""
        if not isinstance(node, YamlScalar):
            kind = "list" if isinstance(node, YamlSequence) else "mapping"
            self._report(
                node.span, f"a {kind} cannot be a key: keys are text", "quote a `{` or `[` that is meant as text"
            )
            return None
        if not isinstance(node.value, str):
            if not node.text:
                self._report(node.span, "a key is missing before the colon")
                return None
            self._report(node.span, f"the key {node.text[:60]} is not text", f'keys are text: write "{node.text[:60]}"')
            node = YamlScalar(node.text, node.span, node.text)
        key = str(node.value)
        if key == "<<" and not node.quoted:
            self._report(
                node.span, "the merge key `<<` is not part of YAML 1.2", "put what cases share under `defaults:`"
            )
            return None
        first = frame.seen.get(key)
        if first is not None:  # even the same node: an alias of a key is a second key
            where = f"line {first.span.line}, column {first.span.column}"
            self._report(node.span, f"the key {key[:60]!r} is here twice", f"the first one is on {where}")
            return None
        frame.seen[key] = node
        return node

    # --- reporting ---

    def _report(self, span: Span, message: str, hint: str = "", severity: str = "error") -> None:
        self.diagnostics.append(Diagnostic(span, message, hint, severity, excerpt(nth_line(self.lines, span.line))))
        if len(self.diagnostics) > self.limits.diagnostics:  # one more, so that it is known that there are more
            raise _Stop

    def _span(self, mark: Any, length: int = 1) -> Span:
        return Span(self.file, mark.line + 1, mark.column + 1, length)

    def _start_column(self, event: Any) -> int:
        """The column where a value starts that has an anchor or a tag: behind these, on the same line."""
        mark = event.start_mark
        match = _PROPERTIES.match(self.lines[mark.line], mark.column)
        return match.end() if match and match.end() < len(self.lines[mark.line]) else mark.column

    def _exceed(self, limit: str, span: Span, message: str) -> NoReturn:
        self._report(span, message, self.limits.hint(limit))
        raise _Stop

    def _too_many(self, span: Span) -> NoReturn:
        self._exceed("nodes", span, f"this file has more than {self.limits.nodes} values")

    def _too_deep(self, span: Span) -> NoReturn:
        self._exceed("depth", span, f"nested deeper than {self.limits.depth} levels")

    def _report_characters(self) -> None:
        """Reports characters that no YAML file may hold."""
        for number, line in enumerate(self.lines, 1):
            match = _CONTROL.search(line)
            if match and len(self.diagnostics) < self.limits.diagnostics:
                code = ord(match[0])
                escape = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
                self._report(
                    Span(self.file, number, match.start() + 1),
                    f"the character U+{code:04X} cannot stand in YAML",
                    f'write "{escape}" in double quotes',
                )

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> None:
        if error.problem_mark and "maximum nesting depth" in str(error.problem):
            # libyaml 0.2.6 reads ahead of its events, and stops at 1,000 levels.
            self._too_deep(self._span(error.problem_mark))
        line, column, message, hint = syntax_problem(
            self.lines,
            str(error.problem or ""),
            str(error.context or ""),
            *[(m.line, m.column) if m else None for m in (error.problem_mark, error.context_mark)],
        )
        self._report(Span(self.file, line + 1, column + 1), message, hint)


def _measure(node: YamlNode) -> tuple[int, int, int]:
    """Return how many nodes, keys among them, and how many characters a node holds, and how deep it is."""
    if isinstance(node, YamlScalar):
        return 1, len(node.text), 0
    parts = node.items if isinstance(node, YamlSequence) else [part for entry in node.entries for part in entry]
    nodes, characters, heights = zip((0, 0, 0), *map(_measure, parts), strict=True)
    return 1 + sum(nodes), sum(characters), 1 + max(heights)


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
    return next(
        ((number, len(line.rstrip())) for number, line in reversed([*enumerate(lines)]) if line.strip()), (0, 0)
    )
