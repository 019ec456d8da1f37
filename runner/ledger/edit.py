"""Entries of the ledger changed, removed and added in the text of a YAML file, and not a byte else.

ruamel.yaml's nodes say where every key and value stands; the edits are cuts in the text between them. One-line entries
in braces (the shipped style) and entries of several lines are both edited as they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runner.cases.keys import ENTRY
from runner.cases.yaml import reader
from runner.cases.yaml.layout import text_in_flow
from runner.diagnostics import Span


class Unfit(Exception):
    """A change that this text does not allow; what to do by hand is said in the message."""


@dataclass(frozen=True, slots=True)
class Set:
    """Give keys of the entry at ``span`` other values; None takes a key away."""

    span: Span
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the entry at ``span`` away."""

    span: Span


@dataclass(frozen=True, slots=True)
class Add:
    """A new entry: after the entry at ``span``, or, with ``case``, at the end of the case whose name stands there.

    A case that ``inherits`` its ledger from ``defaults:`` would lose it by having one of its own.
    """

    span: Span
    values: Mapping[str, Any]
    case: bool = False
    inherits: bool = False


Change = Set | Remove | Add


def apply_changes(text: str, changes: Sequence[Change]) -> tuple[str, list[tuple[Change, str]]]:
    """Return ``text`` with the changes made, and those that could not be, with the reason.

    Raises Unfit when the file cannot be read, or when anything but the ledger would change.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    old = body = text.removeprefix("\ufeff")
    refused: list[tuple[Change, str]] = []
    # From the end, so that the places of earlier entries stay what they are; what comes after an entry before what is
    # in it.
    for change in sorted(changes, key=lambda c: (c.span.line, c.span.column, isinstance(c, Add)), reverse=True):
        file = _File(body)
        try:
            body = file.changed(change)
        except Unfit as error:
            refused.append((change, str(error)))
    if body != old and _without_ledger(body) != _without_ledger(old):
        raise Unfit("the edit would change more than the ledger")
    return mark + body, refused


def entry_text(values: Mapping[str, Any]) -> str:
    """Return an entry on one line."""
    return "{" + ", ".join(f"{key}: {_value(values[key])}" for key in ENTRY if values.get(key) is not None) + "}"


def block_text(entries: Sequence[Mapping[str, Any]], indent: str, newline: str = "\n") -> str:
    """Return entries as a list with a key on each line."""
    keys = ([key for key in ENTRY if values.get(key) is not None] for values in entries)
    return newline.join(
        f"{indent}{'  ' if number else '- '}{key}: {_value(values[key])}"
        for values, names in zip(entries, keys, strict=True)
        for number, key in enumerate(names)
    )


def append_entries(text: str, span: Span, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return ``text`` with entries after the one at ``span``, the last of its list. Raises Unfit."""
    file = _File(text)
    ledger, item = file._find(span)[2:]
    block = block_text(entries, " " * ledger.start_mark.column, file.newline)
    return file._after(ledger, _end(text, item), ", ".join(map(entry_text, entries)), block)


def _value(value: Any) -> str:
    match value:
        case str():
            return text_in_flow(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return "{" + ", ".join(f"{_value(key)}: {_value(item)}" for key, item in value.items()) + "}"
        case float():
            return repr(value)
    return json.dumps(value)


class _File:
    """A text and its nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        try:
            self.root = YAML(pure=True).compose(text)
        except YAMLError as error:
            raise Unfit(f"ruamel.yaml cannot read this file: {str(error).splitlines()[0]}") from None

    def changed(self, change: Change) -> str:
        """The text with one change made."""
        if isinstance(change, Add):
            return self._added(change)
        parent, key, ledger, item = self._find(change.span)
        if isinstance(change, Remove):
            return self._removed(parent, key, ledger, item)
        if not isinstance(item, MappingNode):
            raise Unfit("the entry is no mapping of its own")
        text = self.text
        for name in sorted(change.values, key=ENTRY.index, reverse=True):
            file = _File(text)
            text = file._key_set(file._find(change.span)[3], name, change.values[name])
        return text

    # --- finding ---

    def _find(self, span: Span) -> tuple[MappingNode, ScalarNode, SequenceNode, Node]:
        """The entry at a place, the list that holds it, and that list's key and mapping."""
        for mapping in _mappings(self.root):
            for key, value in mapping.value:
                if key.value == "known" and isinstance(value, SequenceNode) and _inside(value, mapping):
                    for item in value.value:
                        if _inside(item, value) and _stands_at(item, span):
                            return mapping, key, value, item
        raise Unfit("the entry was not found at its place; is it an alias?")

    def _case(self, span: Span) -> MappingNode:
        for mapping in _mappings(self.root):
            for key, value in mapping.value:
                if key.value == "name" and _stands_at(value, span):
                    return mapping
        raise Unfit("the case was not found at its place")

    # --- entries ---

    def _added(self, change: Add) -> str:
        entry = entry_text(change.values)
        if not change.case:
            return self._append(*self._find(change.span)[2:], entry)
        case = self._case(change.span)
        pair = next(((k, v) for k, v in case.value if k.value == "known"), None)
        if pair is None:
            if change.inherits:
                raise Unfit("its known: comes from defaults: above it; write the entry there")
            last = _pair_end(self.text, *case.value[-1])
            indent = " " * case.value[0][0].start_mark.column
            block = f"{indent}known:{self.newline}{indent}  - {entry}"
            return self._after(case, last, f"known: [{entry}]", block)
        ledger = pair[1]
        if not isinstance(ledger, SequenceNode) or not _inside(ledger, case):
            raise Unfit("known: is no list of its own")
        if not ledger.value:
            return self._cut(ledger.start_mark.index + 1, ledger.end_mark.index - 1, entry)
        return self._append(ledger, ledger.value[-1], entry)

    def _append(self, ledger: SequenceNode, item: Node, entry: str) -> str:
        """``entry`` after ``item``."""
        return self._after(ledger, _end(self.text, item), entry, " " * ledger.start_mark.column + f"- {entry}")

    def _removed(self, parent: MappingNode, key: ScalarNode, ledger: SequenceNode, item: Node) -> str:
        place = ledger.value.index(item)
        if len(ledger.value) == 1 and len(parent.value) > 1:
            return self._ledger_removed(parent, key, ledger)
        if len(ledger.value) == 1:
            start, empty = (ledger.start_mark.index, "[]") if ledger.flow_style else (key.end_mark.index + 1, " []")
            return self._cut(start, _end(self.text, ledger), empty)
        if ledger.flow_style:
            return self._item_removed([(i.start_mark.index, _end(self.text, i)) for i in ledger.value], place)
        return _without_lines(self.text, self._dash(item), _end(self.text, item))

    def _ledger_removed(self, parent: MappingNode, key: ScalarNode, ledger: SequenceNode) -> str:
        """A case without its last entry. Comments on lines between ``known:`` and the entry stay."""
        if ledger.flow_style or self._before(key.start_mark.index).strip():
            return self._key_removed(parent, key)
        item = ledger.value[0]
        return _without_lines(
            _without_lines(self.text, self._dash(item), _end(self.text, item)),
            key.start_mark.index,
            key.end_mark.index + 1,
        )

    def _dash(self, item: Node) -> int:
        dash = re.search(r"-[ \t]+$", self.text[: item.start_mark.index])
        if dash is None:
            raise Unfit("the entry does not stand beside its dash")
        return dash.start()

    def _before(self, place: int) -> str:
        """What stands on its line before a place."""
        return self.text[:place].rpartition("\n")[2]

    # --- keys ---

    def _key_set(self, entry: Node, name: str, value: Any) -> str:
        assert isinstance(entry, MappingNode)
        pair = next(((k, v) for k, v in entry.value if k.value == name), None)
        if value is None:
            return self.text if pair is None else self._key_removed(entry, pair[0])
        new = _value(value)
        if pair is not None:
            key, old = pair
            start, end = old.start_mark.index, _pair_end(self.text, key, old)
            if "\n" in self.text[key.end_mark.index : start]:  # a list on lines of its own
                start, new = key.end_mark.index, f": {new}"
            elif self.text[start:end].startswith("'") and new.startswith('"') and not set(new[1:-1]) & {"'", "\\"}:
                new = f"'{new[1:-1]}'"
            return self._cut(start, end, new)
        earlier_pairs = [(k, v) for k, v in entry.value if k.value in ENTRY[: ENTRY.index(name)]]
        first = entry.value[0][0].start_mark
        indent = " " * first.column
        if not earlier_pairs:
            ending = ", " if entry.flow_style else self.newline + indent
            return self._cut(first.index, first.index, f"{name}: {new}{ending}")
        return self._after(entry, _pair_end(self.text, *earlier_pairs[-1]), f"{name}: {new}", f"{indent}{name}: {new}")

    def _key_removed(self, mapping: MappingNode, key: ScalarNode) -> str:
        pairs = mapping.value
        place = next(i for i, (k, _) in enumerate(pairs) if k is key)
        if len(pairs) == 1:
            raise Unfit(f"nothing would be left beside {key.value}:")
        spans = [(k.start_mark.index, _pair_end(self.text, k, v)) for k, v in pairs]
        if mapping.flow_style:
            return self._item_removed(spans, place)
        if place == 0 and self._before(spans[0][0]).strip():  # behind a dash
            return self._cut(spans[0][0], spans[1][0], "")
        return _without_lines(self.text, *spans[place])

    # --- cuts ---

    def _item_removed(self, spans: Sequence[tuple[int, int]], place: int) -> str:
        """One of the things between commas."""
        start, end = (spans[place - 1][1], spans[place][1]) if place else (spans[0][0], spans[1][0])
        return self._cut(start, end, "")

    def _after(self, outer: MappingNode | SequenceNode, end: int, item: str, line: str) -> str:
        """One more thing behind ``end``: within braces or brackets the ``item``, else the ``line``."""
        if outer.flow_style:
            return self._cut(end, end, f", {item}")
        stop = _line_end(self.text, end)
        return self._cut(stop, stop, self.newline + line)

    def _cut(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]


def _without_lines(text: str, start: int, end: int) -> str:
    """Without whole lines, and the comment behind the last. Comments on lines of their own stay."""
    begin = text.rfind("\n", 0, start) + 1
    if text[begin:start].strip():
        raise Unfit("something else stands on the same line")
    if next_line := text.find("\n", _line_end(text, end)) + 1:
        return text[:begin] + text[next_line:]
    return text[:begin].removesuffix("\n").removesuffix("\r")  # the last line of a file that does not end in a newline


def _line_end(text: str, end: int) -> int:
    """Where the line of ``end`` ends; only a comment may follow there."""
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    stop -= text[end:stop].endswith("\r")
    trailing = text[end:stop].strip()
    if trailing and not trailing.startswith("#"):
        raise Unfit("something else stands on the same line")
    return stop


def _mappings(node: Node | None, visited: set[int] | None = None) -> Iterator[MappingNode]:
    """Every mapping, once each."""
    visited = set() if visited is None else visited
    if id(node) in visited or not isinstance(node, MappingNode | SequenceNode):
        return
    visited.add(id(node))
    if isinstance(node, MappingNode):
        yield node
    for child in node.value:
        yield from _mappings(child[1] if isinstance(node, MappingNode) else child, visited)


def _inside(node: Node, outer: Node) -> bool:
    """Whether a node is written there, and is no alias to another place."""
    return bool(outer.start_mark.index <= node.start_mark.index <= outer.end_mark.index)


def _stands_at(node: Node, span: Span) -> bool:
    """Whether a node starts at a place; behind an anchor or a tag also counts."""
    mark = (node.start_mark.line + 1, node.start_mark.column + 1)
    inner = node.value[0][0].start_mark if isinstance(node, MappingNode) and node.value else node.start_mark
    return mark <= (span.line, span.column) <= (inner.line + 1, inner.column + 1)


def _end(text: str, node: Node) -> int:
    """Where a node's text ends: ruamel.yaml lets blocks reach to the next thing."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(node, MappingNode):
            return _pair_end(text, *last)
        if not _inside(last, node):
            raise Unfit("an alias stands there")
        return _end(text, last)
    start = node.start_mark.index
    return int(start + len(text[start : node.end_mark.index].rstrip()))


def _pair_end(text: str, key: Node, value: Node) -> int:
    if value.start_mark.index < key.end_mark.index:
        raise Unfit(f"{key.value}: is an alias")
    return _end(text, value)


def _without_ledger(text: str) -> str:
    """All that the file says but its ledger, to compare."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != "known"}
        return [strip(item) for item in value] if isinstance(value, list) else value

    node, problems = reader.load("", text)
    if node is None or problems:
        raise Unfit(f"the edit would break the file: {problems[0].message if problems else 'nothing is left'}")
    return repr(strip(node.plain()))
