"""A tree of YAML as text, in the one layout that its values and comments have."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from runner.cases.keys import PARTS, Part, ordered
from runner.cases.texts import is_complex
from runner.cases.yaml.tree import Alias, Collection, Entry, Node, Scalar
from runner.cases.yaml.values import resolve
from runner.quote import yaml_text
from runner.text import visible

WIDTH = 120
"""Characters of a line that may hold a whole list or mapping, or a text that can be folded."""

_CHAIN = 2
"""Steps of a chain that may stand on one line."""

_PLAIN_IN_FLOW = re.compile(r"[A-Za-z0-9_$./(][^:#,\[\]{}\"\n\t]*(?<! )")
_PLAIN_IN_BLOCK = re.compile(r"[A-Za-z0-9_$./(][^:#\n\t]*(?<! )")
_DOCUMENT = ("---", "...")


def render(root: Collection) -> str:
    """Return the text of a whole file. The keys of the tree are put in their order."""
    top = root.entries[0].before if root.entries else []
    if root.entries:
        root.entries[0].before = []
    writer = _Writer()
    writer.put_comments(top, 0)
    writer.put_block(root, PARTS["file"], 0)
    return "\n".join(writer.lines) + "\n"


def text_in_flow(text: str) -> str:
    """Return a text as it stands on one line within brackets."""
    return _line_of(Scalar(text, quoted=True), in_flow=True) or yaml_text(text)


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.texts: dict[int, str | None] = {}  # of collections, by their ids

    def put_comments(self, comments: Sequence[str], indent: int) -> None:
        """Comments on lines of their own."""
        self.lines += [" " * indent + comment if comment else "" for comment in comments]

    def put_block(self, node: Collection, part: Part, indent: int, lead: str = "") -> None:
        """The entries of a collection, each on lines of its own. ``lead`` is what the first line begins with."""
        if not node.entries:
            self.lines.append(f"{' ' * indent}{_brackets(node, '')}")
        for number, entry in enumerate(_in_order(node, part)):
            start = lead if lead and not number else " " * indent
            if part.style == "spaced" and number:
                self.lines.append("")
            self.put_comments(entry.before, len(start) - len(start.lstrip(" ")))
            prefix = start + (f"{_key(entry, False)}:" if node.is_mapping else "-")
            self._put_value(prefix, entry, _part_of(entry, part), indent + 2)
        if part.style == "spaced" and node.after:
            self.lines.append("")
        self.put_comments(node.after, indent)

    def _put_value(self, prefix: str, entry: Entry, part: Part, indent: int) -> None:
        node, beside = entry.value, f"  {entry.beside}" if entry.beside else ""
        anchor = "" if isinstance(node, Alias) or node.anchor is None else f" &{node.anchor}"
        if isinstance(node, Scalar):
            self._put_scalar(f"{prefix}{anchor}", node, beside, indent)
        elif isinstance(node, Alias):
            self.lines.append(f"{prefix} *{node.name}{beside}")
        elif (text := self._line(node, part)) is not None and self._has_room(prefix, text, node, part):
            self.lines.append(f"{prefix} {text}{beside}")
        elif text is not None and not node.is_mapping and all(isinstance(e.value, Scalar) for e in node.entries):
            self._put_filled(prefix, text, beside, indent)
        else:
            self._put_collection(prefix, entry, node, part, indent)

    def _has_room(self, prefix: str, text: str, node: Collection, part: Part) -> bool:
        is_open = part.style == "step" and prefix.endswith("-") and len(node.entries) == 1 and not node.anchor
        return not is_open and (part.style == "line" or len(prefix) + 1 + len(text) <= WIDTH)

    def _put_collection(self, prefix: str, entry: Entry, node: Collection, part: Part, indent: int) -> None:
        anchor = f" &{node.anchor}" if node.anchor else ""
        heads = [*filter(None, (node.head, entry.beside))]
        is_item = prefix.endswith("-")
        beside = "" if is_item or not heads else f"  {heads.pop(0)}"
        self.put_comments(heads, len(prefix) - len(prefix.lstrip(" ")))
        if is_item and not anchor:
            self.put_block(node, part, indent, f"{prefix} ")
        else:
            self.lines.append(f"{prefix}{anchor}{beside}")
            self.put_block(node, part, indent)

    def _put_filled(self, prefix: str, text: str, beside: str, indent: int) -> None:
        """A list of single values on lines as long as they may be."""
        wrapped = textwrap.wrap(
            text, WIDTH, initial_indent=f"{prefix} ", subsequent_indent=" " * indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        self.lines += [*wrapped[:-1], wrapped[-1] + beside]

    def _put_scalar(self, prefix: str, node: Scalar, beside: str, indent: int) -> None:
        line = _line_of(node, in_flow=False)
        body = node.text.removesuffix("\n")
        end = "" if body != node.text else "-"
        if line is None and "\n" in body:
            self.lines += [
                f"{prefix} |{end}{beside}",
                *(" " * indent + part if part else "" for part in body.split("\n")),
            ]
        elif line is None or (len(prefix) + 1 + len(line) > WIDTH and _is_foldable(node)):
            words = textwrap.wrap(body, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
            self.lines += [f"{prefix} >{end}{beside}", *(" " * indent + part for part in words)]
        else:
            self.lines.append(f"{prefix} {line}{beside}")

    def _line(self, node: Node, part: Part) -> str | None:
        """A value on one line; None where something in it needs lines of its own."""
        if isinstance(node, Alias):
            return f"*{node.name}"
        if isinstance(node, Scalar):
            text = _line_of(node, in_flow=True)
            return text if text is None or node.anchor is None else f"&{node.anchor} {text}".rstrip()
        if id(node) not in self.texts:
            self.texts[id(node)] = self._collection_line(node, part)
        return self.texts[id(node)]

    def _collection_line(self, node: Collection, part: Part) -> str | None:
        is_long = part.style in ("block", "spaced") or (part.style == "steps" and len(node.entries) > _CHAIN)
        if node.head or node.after or (is_long and node.entries):
            return None
        texts = []
        for entry in _in_order(node, part):
            value = self._line(entry.value, _part_of(entry, part))
            if entry.before or entry.beside or value is None:
                return None
            texts.append(f"{_key(entry, True)}: {value}" if node.is_mapping else value)
        return _brackets(node, ", ".join(texts))


def _brackets(node: Collection, inner: str) -> str:
    anchor = f"&{node.anchor} " if node.anchor else ""
    return f"{anchor}{{{inner}}}" if node.is_mapping else f"{anchor}[{inner}]"


def _in_order(node: Collection, part: Part) -> Sequence[Entry]:
    keys = [entry.key.text for entry in node.entries if isinstance(entry.key, Scalar)]
    if not node.is_mapping or len(keys) < len(node.entries):
        return node.entries
    return [node.entries[number] for number in ordered(keys, part)]


def _part_of(entry: Entry, part: Part) -> Part:
    key = entry.key.text if isinstance(entry.key, Scalar) else ""
    return PARTS[part.parts.get(key, part.items)]


def _key(entry: Entry, in_flow: bool) -> str:
    key = entry.key
    if isinstance(key, Scalar):
        text = _line_of(key, in_flow) or yaml_text(key.text)
        return f"&{key.anchor} {text}" if key.anchor else text
    assert key is not None
    return f"*{key.name} "  # without the blank the colon would belong to the name


def _line_of(node: Scalar, in_flow: bool) -> str | None:
    """A scalar on one line; None for a text with line breaks that a block shows better."""
    text = node.text
    if not node.quoted and not isinstance(resolve(text), str):
        return text or "null"
    if "\n" in text and _is_literal(text):
        return None
    if is_complex(text):  # with quotes it is a text
        return yaml_text(text) if node.quoted else text
    pattern = _PLAIN_IN_FLOW if in_flow else _PLAIN_IN_BLOCK
    if pattern.fullmatch(text) and visible(text) == text and not text.startswith(_DOCUMENT) and _is_text(text):
        return text
    if ('"' in text or "\\" in text) and visible(text) == text and not {"\n", "\t"} & {*text}:
        return "'" + text.replace("'", "''") + "'"
    return yaml_text(text)


def _is_text(text: str) -> bool:
    """Whether it is text without quotes too."""
    try:
        return isinstance(resolve(text), str)
    except ValueError:  # a number that Python cannot hold
        return False


def _is_literal(text: str) -> bool:
    """Whether a block shows each character of a text."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    return visible(text) == text and bool(lines[0].strip()) and lines[0][0] != " " and bool(lines[-1]) and not any(
        line != line.rstrip() or "\t" in line for line in lines
    )  # fmt: skip


def _is_foldable(node: Scalar) -> bool:
    """Whether a text is words with single blanks between them."""
    return node.text == " ".join(node.text.split()) and " " in node.text and visible(node.text) == node.text and (
        node.quoted or isinstance(resolve(node.text), str)
    )  # fmt: skip
