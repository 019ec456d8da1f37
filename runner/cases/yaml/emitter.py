"""Plain data as YAML that reads like a person's file: short things on one line, the rest in blocks."""

from __future__ import annotations

import math
from typing import Any

import yaml

from runner.cases.yaml.scalars import flow, resolve
from runner.quote import QuoteError
from runner.text import visible

WIDTH = 100
"""Characters of a list or a mapping that still goes on one line."""

_PREFIX = "tag:yaml.org,2002:"
_TAGS = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}


def emit(data: Any, blocks: tuple[str, ...] = ()) -> str:
    """Return ``data`` as YAML 1.2 text. The values of keys among ``blocks`` are never put on one line.

    Raises QuoteError for a value that is no plain data.
    """
    text: str = yaml.serialize(  # type: ignore[no-untyped-call,unused-ignore]
        _node(data, blocks, top=True), Dumper=_Dumper, allow_unicode=True, width=WIDTH + 20, indent=2
    )
    # What a terminal obeys stands in double quotes alone, and PyYAML leaves some of it there: YAML's escapes are
    # Python's.
    return visible(text)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.2 core reads as something else than text, and indents lists under their key."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:  # type: ignore[override,unused-ignore]
        """The tag that a reader gives a node without one."""
        if kind is yaml.ScalarNode:
            if not implicit[0]:
                return _PREFIX + "str"
            try:
                return _PREFIX + _TAGS[type(resolve(value))]
            except ValueError:  # a number that Python cannot hold
                return _PREFIX + "float"
        return _PREFIX + ("seq" if kind is yaml.SequenceNode else "map")

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Never indentless."""
        super().increase_indent(flow, False)  # type: ignore[no-untyped-call,unused-ignore]


def _node(value: Any, blocks: tuple[str, ...], top: bool = False, block: bool = False) -> yaml.Node:
    if isinstance(value, dict):
        short = not top and not block and _is_short(value)
        return yaml.MappingNode(
            _PREFIX + "map",
            [
                (_scalar(str(key)), _node(item, blocks, block=key in blocks and not short))
                for key, item in value.items()
            ],
            flow_style=short or not value,
        )
    if isinstance(value, list | tuple):
        return yaml.SequenceNode(
            _PREFIX + "seq",
            [_node(item, blocks, top=block and isinstance(item, dict)) for item in value],
            flow_style=(not block and (_is_short(value) or _is_plain(value))) or not value,
        )
    return _scalar(value)


def _scalar(value: Any) -> yaml.ScalarNode:
    style = None
    if type(value) not in _TAGS:
        raise QuoteError(f"{type(value).__name__} is no plain value")
    if isinstance(value, float) and not math.isfinite(value):
        text = flow(value)
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = value if isinstance(value, str) else repr(value)
        if isinstance(value, str) and (visible(value) != value or "\n" in value):
            style = '"'
    return yaml.ScalarNode(_PREFIX + _TAGS[type(value)], text, style=style)


def _is_short(value: Any) -> bool:
    return len(flow(value)) <= WIDTH


def _is_plain(value: Any) -> bool:
    """Whether there is nothing but numbers and lists of them: long ones are wrapped, not put one below the other."""
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return not isinstance(value, str | dict)
