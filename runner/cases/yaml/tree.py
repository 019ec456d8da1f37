"""YAML text, or plain data, to a tree that keeps comments, anchors and aliases, for a writer that lays it out anew.

The text must be one that ``reader.load`` takes without errors: what a value means is decided there. Each character
between two values must be whitespace, an indicator, an anchor or part of a comment. So no comment is lost unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from runner.cases.texts import is_complex
from runner.cases.yaml.reader import C_PARSER
from runner.cases.yaml.values import flow
from runner.quote import QuoteError


class Unfit(Exception):
    """A text that cannot be laid out anew; the message says why, and where."""


@dataclass(slots=True)
class Scalar:
    """A value that is no collection: its characters, and whether they were quoted or a block scalar."""

    text: str
    quoted: bool = False
    anchor: str | None = None


@dataclass(slots=True)
class Alias:
    """A ``*name``."""

    name: str


@dataclass(slots=True)
class Entry:
    """An item of a list, or a key and its value.

    ``before`` are the lines of comments above it, each without indentation; an empty one is a blank line.
    ``beside`` is the comment on its last line.
    """

    key: Scalar | Alias | None
    value: Node
    before: list[str] = field(default_factory=list)
    beside: str = ""


@dataclass(slots=True)
class Collection:
    """A list or a mapping.

    ``head`` is the comment on the line of its key, ``after`` are the lines of comments below its last entry.
    """

    is_mapping: bool
    entries: list[Entry] = field(default_factory=list)
    anchor: str | None = None
    head: str = ""
    after: list[str] = field(default_factory=list)


Node = Scalar | Alias | Collection


def tree_of(data: Any) -> Node:
    """Return the tree of plain data: dictionaries, lists, text, numbers, truth values and None.

    Raises QuoteError for anything else.
    """
    match data:
        case dict():
            return Collection(True, [Entry(Scalar(str(key), quoted=True), tree_of(item)) for key, item in data.items()])
        case list() | tuple():
            return Collection(False, [Entry(None, tree_of(item)) for item in data])
        case str() if type(data) is str:
            return Scalar(data, quoted=not is_complex(data))
        case None | bool() | int() | float() if type(data) in (bool, int, float, type(None)):
            return Scalar(flow(data))
    raise QuoteError(f"{type(data).__name__} is no plain value")


def parse(text: str) -> Collection:
    """Return the tree of a text whose lines end in ``\\n``, and whose root is a mapping or a list.

    Raises Unfit for tags, directives, comments in places that have no entry, and what is no YAML.
    """
    try:
        return _Parser(text).parse(C_PARSER or yaml.SafeLoader)
    except yaml.YAMLError:
        pass  # libyaml refuses `{Tensor.abs:, out: y}`, which PyYAML's own parser reads
    try:
        return _Parser(text).parse(yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Unfit(f"it is not YAML: {str(error).splitlines()[0]}") from None


def comments_of(node: Node) -> Iterator[str]:
    """Yield every comment of a tree."""
    if isinstance(node, Collection):
        yield from filter(None, (node.head, *node.after))
        for entry in node.entries:
            yield from filter(None, (*entry.before, entry.beside))
            yield from comments_of(entry.value)


_GAP = re.compile(r"(?P<comment>#[^\n]*)|(?P<break>\n)|(?P<dash>[-?])|&[^\s\[\]{},]+|[ \t:,]+")
_ANCHORED = re.compile(r"&[^\s\[\]{},]+[ \t]+")
_DASH_BELOW = re.compile(r"&\S+[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)-")
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(#[^\n]*)?\n?")


@dataclass(slots=True)
class _Frame:
    """A collection that is open.

    ``column`` is where its entries begin; ``is_written`` is false for a mapping of one pair in a list without braces.
    """

    node: Collection
    column: int
    is_flow: bool
    is_written: bool
    key: Scalar | Alias | None = None
    head: str = ""  # a comment beside the key
    before: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Comment:
    """A comment: its text, its column, and whether a blank line stands above it and a value before it.

    The column is -1 behind the dash of the next entry.
    """

    text: str
    column: int
    is_below_blank: bool
    is_beside: bool


class _Parser:
    """Goes through the events of a text, and puts each comment where the values around it say."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0  # behind the last value or bracket
        self.frames: list[_Frame] = []
        self.opened = 0  # frames that began behind the last value, the innermost ones
        self.closed: list[_Frame] = []  # those of blocks that ended behind it, the innermost first
        self.last: Entry | _Frame | None = None  # what a comment on the line of the last value belongs to
        self.root: Collection | None = None
        self.top: list[str] = []  # comments above a root in brackets

    def parse(self, parser: Any) -> Collection:
        """The tree."""
        events = parser(self.text)
        while (event := events.get_event()) is not None:
            self._take(event)
        root = self._root()
        (root.entries[0].before if root.entries else root.after)[:0] = self.top
        return root

    def _take(self, event: Any) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        line, column = event.start_mark.line + 1, event.start_mark.column
        if getattr(event, "tag", None) is not None:
            raise Unfit(f"line {line}: the tag there would be lost")
        match event:
            case yaml.DocumentStartEvent() | yaml.DocumentEndEvent() if event.explicit:
                if isinstance(event, yaml.DocumentStartEvent) and (event.version or event.tags):
                    raise Unfit(f"line {line}: the directive there would be lost")
                self._comments(start, 0)
                self.place, self.last = end, None
            case yaml.StreamEndEvent():
                self._comments(len(self.text), -1)
            case yaml.ScalarEvent():
                self._scalar(event, start, end)
            case yaml.AliasEvent():
                self._comments(start, column)
                self._add(Alias(str(event.anchor)), column)
                self.place = end
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._open(event, start, end)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close(end)

    # --- values ---

    def _scalar(self, event: Any, start: int, end: int) -> None:
        self._comments(start, event.start_mark.column)
        source = _behind_anchor(self.text[start:end], event)
        self._add(Scalar(event.value, bool(event.style), event.anchor), event.start_mark.column)
        if event.style in ("|", ">") and isinstance(self.last, Entry):
            header = _BLOCK_HEADER.match(source)
            self.last.beside = ((header and header[1]) or "").rstrip()
        self.place = start + len(self.text[start:end].rstrip())  # the blank lines that end it belong to the gap

    def _open(self, event: Any, start: int, end: int) -> None:
        column, is_flow = event.start_mark.column, bool(event.flow_style)
        is_written = is_flow and _behind_anchor(self.text[start:end], event) in ("[", "{")
        if is_written:
            self._comments(start, column)
        elif event.anchor and (dash := _DASH_BELOW.match(self.text, start)):
            column = len(dash[1])
        node = Collection(isinstance(event, yaml.MappingStartEvent), anchor=event.anchor)
        self.frames.append(_Frame(node, column, is_flow, is_written))
        if is_written:
            self.place, self.last = end, self.frames[-1]
        else:
            self.opened += 1

    def _close(self, end: int) -> None:
        if self.frames[-1].is_written:
            self._comments(end - 1, -1)
            self._add(self.frames.pop().node, -1)
            self.place = end
        else:
            frame, innermost = self.frames.pop(), self.last
            self._add(frame.node, -1)
            self.last = innermost
            if not frame.is_flow:
                self.closed.append(frame)

    def _add(self, node: Node, column: int) -> None:
        """Put a finished value, which begins in that column, into the collection that is open."""
        if not self.frames:
            if not isinstance(node, Collection):
                raise Unfit("it holds one value and no mapping")
            self.root = node
            return
        frame = self.frames[-1]
        if frame.node.is_mapping and frame.key is None:
            if isinstance(node, Collection):
                raise Unfit("a list or a mapping is a key")
            if not frame.is_flow and not frame.node.entries:
                frame.column = column  # behind an anchor it was another one
            frame.key, self.last = node, frame
            return
        entry = Entry(frame.key, node, frame.before)
        if frame.head and isinstance(node, Collection) and not node.head:
            node.head = frame.head
        elif frame.head:
            entry.before.append(frame.head)
        if isinstance(node, Collection) and (entry.key is None or not node.entries):
            # Nothing can stand between a dash and what is behind it, nor within empty brackets.
            entry.before += filter(None, [node.head])
            node.head = ""
            if node.entries:
                entry.before += node.entries[0].before
                node.entries[0].before = []
            else:
                entry.before += node.after
                node.after = []
        frame.key, frame.head, frame.before = None, "", []
        frame.node.entries.append(entry)
        self.last = entry

    # --- comments ---

    def _comments(self, end: int, column: int) -> None:
        """Put each comment between the last value and ``end``, where the next value begins, in its place.

        ``column`` is that of the next value; -1 stands for a closing bracket or the end of the file.
        """
        comments = self._gap(end)
        if comments and comments[0].is_beside and self._is_beside(comments[0]):
            comments.pop(0)
        if any(comment.text for comment in comments):
            self._put(comments, is_end=column < 0)
        self.opened, self.closed = 0, []

    def _gap(self, end: int) -> list[_Comment]:
        """The comments up to ``end``. One without text stands for a blank line behind them."""
        comments: list[_Comment] = []
        position, breaks = self.place, 0
        is_behind_dash = False
        while position < end:
            match = _GAP.match(self.text, position, end)
            if match is None:
                raise Unfit(f"line {self.text.count(chr(10), 0, position) + 1}: what stands there would be lost")
            if match["comment"]:
                is_beside = not comments and breaks == 0 and self.last is not None
                column = -1 if is_behind_dash else position - self.text.rfind("\n", 0, position) - 1
                comments.append(_Comment(match["comment"].rstrip(), column, breaks > 1, is_beside))
                breaks = 0
            elif match["break"]:
                breaks += 1
            is_behind_dash = is_behind_dash or bool(match["dash"])
            position = match.end()
        return [*comments, _Comment("", 0, False, False)] if comments and breaks > 1 else comments

    def _is_beside(self, comment: _Comment) -> bool:
        """Put a comment on the line of the last value there; say whether there is room for it."""
        match self.last:
            case Entry() if not self.last.beside:
                self.last.beside = comment.text
            case _Frame() if self.last.key is None:  # behind an opening bracket
                self.last.node.head = comment.text
            case _Frame() if self.opened:
                self.frames[-self.opened].node.head = comment.text
            case _Frame() if not self.last.head:
                self.last.head = comment.text
            case _:
                return False
        return True

    def _put(self, comments: list[_Comment], is_end: bool) -> None:
        """Put comments on lines of their own: below the block that they are indented like, or above what follows."""
        outer = self.frames[-self.opened - 1] if len(self.frames) > self.opened else None
        column = -1 if outer is None or is_end else outer.column
        blocks = [] if outer and outer.is_flow else self.closed
        for number, comment in enumerate(comments):
            inside = [frame for frame in blocks if column < comment.column >= frame.column]
            # A list may stand in the column of its key: the comment is then the mapping's.
            deep = [frame.node for frame in inside if frame.column == inside[0].column]
            if comment.text and not deep and not is_end:
                lines = [line for c in comments[number:] for line in (["", c.text] if c.is_below_blank else [c.text])]
                return self._above(outer, lines[1:] if comment.is_below_blank else lines)
            if comment.text:
                after = (deep[-1] if deep else outer.node if outer else self._root()).after
                after += ["", comment.text] if after and comment.is_below_blank else [comment.text]
        return None

    def _root(self) -> Collection:
        if self.root is None:
            raise Unfit("it holds comments alone")
        return self.root

    def _above(self, outer: _Frame | None, lines: list[str]) -> None:
        """Put comments above the entry that begins next."""
        if outer is None or (outer.key is not None and self.opened):
            outer = self.frames[-self.opened] if self.opened else None
        (self.top if outer is None else outer.before).extend(lines)


def _behind_anchor(source: str, event: Any) -> str:
    """The source of a value without its anchor. Raises Unfit where these do not stand on one line."""
    if not event.anchor:
        return source
    match = _ANCHORED.match(source)
    if match is None or not source[match.end() :]:
        if source.strip() == f"&{event.anchor}" and isinstance(event, yaml.ScalarEvent):
            return ""
        if getattr(event, "flow_style", True):
            raise Unfit(f"line {event.start_mark.line + 1}: an anchor does not stand on the line of its value")
        return source
    return source[match.end() :]
