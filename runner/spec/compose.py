"""PyYAML's events to nodes: which value a tag, an alias or a key may be, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import yaml

from runner.diagnostics import Diagnostic, Span, nearest
from runner.spec.limits import Limits
from runner.spec.nodes import Mapping, Node, Scalar, Sequence
from runner.spec.syntax import resolve, split_lines, syntax_problem

try:
    from yaml._yaml import CParser as _CParser
except ImportError:  # a PyYAML without libyaml
    _CParser = None  # type: ignore[assignment,misc]

MAX_DIAGNOSTICS = 100  # a file that has more wrong with it than this is the wrong file

_CORE = "tag:yaml.org,2002:"
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}
# Line breaks of YAML 1.1 that are none in 1.2 nor in an editor: they would shift every later line number.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]*)*")


class _Stop(Exception):
    """Reading on is pointless."""


class _PureParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """Text to events in Python, without composer or constructor."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


class _Frame:
    """A collection that is still open."""

    __slots__ = ("anchor", "count", "entries", "event", "height", "is_mapping", "items", "key", "seen", "skip")

    def __init__(self, event: Any, is_mapping: bool) -> None:
        self.event = event
        self.is_mapping = is_mapping
        self.anchor: str | None = event.anchor
        self.items: list[Node] = []
        self.entries: list[tuple[Scalar, Node]] = []
        self.seen: dict[str, Scalar] = {}
        self.key: Scalar | None = None
        self.skip = False  # the key was refused: its value is read and dropped
        self.count = 1
        self.height = 1


class Builder:
    """Builds the tree of one text. Iterative, so that deep nesting cannot exhaust Python's stack."""

    def __init__(self, file: str, text: str, limits: Limits) -> None:
        self.file = file
        self.text = text
        self.limits = limits
        self.lines = split_lines(text)
        self.diagnostics: list[Diagnostic] = []
        self.reset()

    def reset(self) -> None:
        self.stack: list[_Frame] = []
        self.root: Node | None = None
        self.anchors: dict[str, tuple[Node, int, int] | None] = {}  # node, nodes in it, height; None while open
        self.expanded = 0
        self.memo: dict[str, None | bool | int | float | str] = {}
        self.documents = 0

    def build(self) -> Node | None:
        if self.check_characters():
            return None
        try:
            self.run(_CParser)
        except _Stop:
            return None
        if self.root is None or (isinstance(self.root, Scalar) and not self.root.quoted and not self.root.text):
            self.report(
                Span(self.file, 1, 1), "this file is empty: there is nothing in it", "a spec starts with `cases:`"
            )
            return None
        return self.root

    def run(self, c_parser: Any) -> None:
        try:
            self.consume(c_parser(self.text) if c_parser else _PureParser(self.text))
        except yaml.MarkedYAMLError as error:
            if c_parser and "found unexpected ':'" in str(error.problem):
                # libyaml refuses `{Tensor.abs:, out: y}`, which YAML 1.2 allows and PyYAML's own parser reads.
                self.diagnostics.clear()
                self.reset()
                return self.run(None)
            self.syntax_error(error)
            raise _Stop from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an escape beyond Unicode
            self.report(Span(self.file, 1, 1), f"this is not YAML: {error}")
            raise _Stop from None

    def consume(self, parser: Any) -> None:
        scalar, alias = yaml.ScalarEvent, yaml.AliasEvent
        sequence, mapping = yaml.SequenceStartEvent, yaml.MappingStartEvent
        while True:
            event = parser.get_event()
            kind = type(event)
            if kind is scalar:
                node = self.scalar(event)
                if event.anchor:
                    self.anchors[event.anchor] = (node, 1, 0)
                self.add(node, 1, 0)
            elif kind is sequence or kind is mapping:
                self.open(event, kind is mapping)
            elif kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
                self.close(event)
            elif kind is alias:
                self.add(*self.alias(event))
            elif kind is yaml.DocumentStartEvent:
                self.document(event)
            elif event is None or kind is yaml.StreamEndEvent:
                return

    def document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self.report(
                self.span(event.start_mark, 3), "a second document starts here; a file holds one", "use two files"
            )
            raise _Stop
        if event.version and tuple(event.version) < (1, 2):
            version = ".".join(map(str, event.version))
            self.report(
                self.span(event.start_mark, 5),
                f"this file says YAML {version} and is read as YAML 1.2",
                severity="warning",
            )

    # --- nodes ---

    def scalar(self, event: Any) -> Scalar:
        text: str = event.value
        start, end = event.start_mark, event.end_mark
        column = start.column
        if event.anchor or event.tag:
            column = self.after_properties(start)
        line = start.line
        length = end.column - column if end.line == line else len(self.lines[line]) - column
        if event.style in ("|", ">"):
            length = 1
        span = Span(self.file, line + 1, column + 1, max(length, 1))
        quoted = bool(event.style)
        value: None | bool | int | float | str = text
        if event.tag and event.tag != "!":
            value = self.tagged(event, text, quoted, span)
        elif not quoted and not event.tag:
            value = self.resolved(text, span)
        if event.style == '"' and not text.isascii() and _SURROGATE.search(text):
            self.report(span, "half of a surrogate pair is no character", "write \\U and eight digits")
            value = text = _SURROGATE.sub("\ufffd", text)
        return Scalar(value, span, text, quoted)

    def resolved(self, text: str, span: Span) -> None | bool | int | float | str:
        try:
            return self.memo[text]
        except KeyError:
            pass
        try:
            value = resolve(text)
        except ValueError as error:
            self.report(span, str(error))
            value = text
        self.memo[text] = value
        return value

    def tagged(self, event: Any, text: str, quoted: bool, span: Span) -> None | bool | int | float | str:
        name = event.tag.removeprefix(_CORE) if event.tag.startswith(_CORE) else ""
        if name not in _KINDS:
            self.bad_tag(event)
            return text if quoted else self.resolved(text, span)
        if name == "str":
            return text
        value = self.resolved(text, span)
        if not isinstance(value, _KINDS[name]) or (isinstance(value, bool) and name != "bool"):
            self.report(span, f"{text[:60]!r} is tagged !!{name} and is none")
            return value
        return float(value) if name == "float" and value is not None and not isinstance(value, str) else value

    def bad_tag(self, event: Any) -> None:
        shown = event.tag[:60].replace(_CORE, "!!", 1)
        self.report(
            self.span(event.start_mark, len(shown)),
            f"the tag {shown} has no place here: tags construct nothing here",
            "leave it out; only !!str, !!int, !!float, !!bool, !!null, !!seq and !!map are known",
        )

    def alias(self, event: Any) -> tuple[Node, int, int]:
        name = event.anchor
        span = self.span(event.start_mark, len(name) + 1)
        none = Scalar(None, span, ""), 1, 0
        if name not in self.anchors:
            close = nearest(name, self.anchors) if len(self.anchors) < 1000 else ""
            hint = close or "an anchor `&name` stands before its alias `*name`; quote a `*` that is meant"
            self.report(span, f"there is no anchor &{name[:60]}", hint)
            return none
        target = self.anchors[name]
        if target is None:
            self.report(span, f"*{name[:60]} stands inside &{name[:60]}: a value cannot contain itself")
            return none
        self.expanded += target[1]
        if self.expanded > self.limits.expanded_nodes:
            self.report(
                span,
                f"the aliases up to here stand for more than {self.limits.expanded_nodes} nodes",
                self.adjust("expanded_nodes"),
            )
            raise _Stop
        if len(self.stack) + target[2] > self.limits.depth:
            self.too_deep(span)
        return target

    def open(self, event: Any, is_mapping: bool) -> None:
        if event.tag and event.tag not in ("!", _CORE + ("map" if is_mapping else "seq")):
            self.bad_tag(event)
        if event.anchor:
            self.anchors[event.anchor] = None
        if len(self.stack) >= self.limits.depth:
            self.too_deep(self.span(event.start_mark))
        self.stack.append(_Frame(event, is_mapping))

    def close(self, event: Any) -> None:
        frame = self.stack.pop()
        start, end = frame.event.start_mark, event.end_mark
        column, length = start.column, 1
        if frame.event.anchor or frame.event.tag:
            column = self.after_properties(start)
        if frame.event.flow_style or self.lines[start.line][column : column + 1] in ("[", "{"):
            length = end.column - column if end.line == start.line else len(self.lines[start.line]) - column
        elif frame.entries and frame.entries[0][0].span.line == start.line + 1:
            length = frame.entries[0][0].span.length  # a block mapping is shown by its first key
        span = Span(self.file, start.line + 1, column + 1, max(length, 1))
        node: Node = Mapping(tuple(frame.entries), span) if frame.is_mapping else Sequence(tuple(frame.items), span)
        if frame.anchor:
            self.anchors[frame.anchor] = (node, frame.count, frame.height)
        self.add(node, frame.count, frame.height)

    def add(self, node: Node, count: int, height: int) -> None:
        """Puts a finished node into the collection that is open."""
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        frame.count += count
        if height >= frame.height:
            frame.height = height + 1
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.skip:
            frame.skip = False
        elif frame.key is None:
            frame.key = self.checked_key(frame, node)
            frame.skip = frame.key is None
        else:
            frame.entries.append((frame.key, node))
            frame.key = None

    def checked_key(self, frame: _Frame, node: Node) -> Scalar | None:
        """``node`` as a key, or None when its entry cannot stand."""
        if not isinstance(node, Scalar):
            what = "list" if isinstance(node, Sequence) else "mapping"
            self.report(
                node.span, f"a {what} cannot be a key: keys are text", "quote a `{` or `[` that is meant as text"
            )
            return None
        if not isinstance(node.value, str):
            if not node.text:
                self.report(node.span, "a key is missing before the colon")
                return None
            self.report(node.span, f"the key {node.text[:60]} is not text", f'keys are text: write "{node.text[:60]}"')
            node = Scalar(node.text, node.span, node.text)
        key = str(node.value)
        if key == "<<" and not node.quoted:
            self.report(
                node.span, "the merge key `<<` is not part of YAML 1.2", "put what cases share under `defaults:`"
            )
            return None
        first = frame.seen.setdefault(key, node)
        if first is not node:
            where = f"line {first.span.line}, column {first.span.column}"
            self.report(node.span, f"the key {key[:60]!r} is here twice", f"the first one is on {where}")
            return None
        return node

    # --- reporting ---

    def report(self, span: Span, message: str, hint: str = "", severity: str = "error") -> None:
        text = self.lines[span.line - 1] if 0 < span.line <= len(self.lines) else ""
        self.diagnostics.append(Diagnostic(span, message, hint, severity, _CONTROL.sub("\ufffd", text)))
        if len(self.diagnostics) >= MAX_DIAGNOSTICS:
            raise _Stop

    def span(self, mark: Any, length: int = 1) -> Span:
        return Span(self.file, mark.line + 1, mark.column + 1, length)

    def after_properties(self, mark: Any) -> int:
        """The column where a value starts, behind its anchor and tag on the same line."""
        match = _PROPERTIES.match(self.lines[mark.line], mark.column)
        end = match.end() if match else mark.column
        return end if end < len(self.lines[mark.line]) else mark.column

    def too_deep(self, span: Span) -> None:
        self.report(span, f"nested deeper than {self.limits.depth} levels", self.adjust("depth"))
        raise _Stop

    def adjust(self, name: str) -> str:
        return f"the limit is {name}={getattr(self.limits, name)}"

    def check_characters(self) -> bool:
        """Reports characters that no YAML file may hold. True when there are any."""
        if not _CONTROL.search(self.text):
            return False
        for number, line in enumerate(self.lines, 1):
            match = _CONTROL.search(line)
            if match and len(self.diagnostics) < MAX_DIAGNOSTICS - 1:
                code = ord(match[0])
                escape = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
                what = f"the character U+{code:04X} cannot stand in YAML"
                self.report(Span(self.file, number, match.start() + 1), what, f'write "{escape}" in double quotes')
        return True

    def syntax_error(self, error: yaml.MarkedYAMLError) -> None:
        marks = [(m.line, m.column) if m else None for m in (error.problem_mark, error.context_mark)]
        line, column, message, hint = syntax_problem(
            self.lines, str(error.problem or ""), str(error.context or ""), *marks
        )
        self.report(Span(self.file, line + 1, column + 1), message, hint)
