"""Files in their canonical layout: the same values and comments, laid out in the one way that they have."""

from __future__ import annotations

from collections import Counter
from typing import Any

from runner.cases.keys import with_order
from runner.cases.limits import Limits
from runner.cases.texts import is_complex
from runner.cases.yaml.layout import render
from runner.cases.yaml.reader import load
from runner.cases.yaml.tree import Unfit, comments_of, parse
from runner.cases.yaml.values import YamlMapping, YamlNode, YamlSequence
from runner.diagnostics import InputError


def format_text(text: str, file: str = "", limits: Limits | None = None) -> str:
    """Return the text of a YAML file in its canonical layout. Line ends are those of its first line.

    Args:
        text: all characters of the file.
        file: its path, for diagnostics.
        limits: on what it may hold.

    Raises:
        InputError: it is no YAML that a case may be written in.
        Unfit: something would be lost or changed.
    """
    newline = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    body = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    root, diagnostics = load(file, text, limits)
    if root is None or any(diagnostic.severity == "error" for diagnostic in diagnostics):
        raise InputError(diagnostics)
    result = render(parse(body))
    if result != body:
        _compare(body, result, with_order(_meaning(root)), limits)
    return result.replace("\n", newline)


def _compare(old: str, new: str, data: Any, limits: Limits | None) -> None:
    """Raise Unfit if the new text has other values or comments than the old one, or yet another layout."""
    root, diagnostics = load("", new, limits)
    if root is None or diagnostics:
        raise Unfit(
            f"in its new layout it could not be read: {diagnostics[0].message if diagnostics else 'it is empty'}"
        )
    if repr(_meaning(root)) != repr(data):
        raise Unfit("in its new layout it would have other values")
    if Counter(comments_of(parse(new))) != Counter(comments_of(parse(old))):
        raise Unfit("in its new layout it would have other comments")
    if render(parse(new)) != new:
        raise Unfit("its new layout would have yet another one")


def _meaning(node: YamlNode, key: str = "") -> Any:
    """Return a tree as plain data, each scalar as a text that says all of it that a case depends on.

    ``key`` is that of the node: ``$text`` takes the characters of any value.
    """
    if isinstance(node, YamlMapping):
        return {str(name.value): _meaning(value, str(name.value)) for name, value in node.entries}
    if isinstance(node, YamlSequence):
        return [_meaning(item) for item in node.items]
    if isinstance(node.value, str):
        return f"{'complex' if is_complex(node.text) and not node.quoted else 'text'} {node.value!r}"
    return f"{type(node.value).__name__} {node.text or ('' if key == '$text' else 'null')}"
