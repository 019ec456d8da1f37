"""Text that means to become code, markup or a command, and data with such text at every place."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

PAYLOADS = {
    "newline": "x\nimport os; os.system('id')",
    "carriage return": "x\rimport os; os.system('id')",
    "quotes": "x'); import os; os.system(\"id\"); ('",
    "double quotes": 'x"); import os; os.system("id"); ("',
    "triple quotes": '"""\nimport os; os.system(\'id\')\n"""',
    "backslash": "x\\",
    "hash": "x # y",
    "arithmetic": "${__import__('os').system('id')}",
    "reference": "$_.__class__",
    "template": "{{ cycler.__init__ }}{% raw %}{0.__class__}",
    "format": "%s%n%(name)s",
    "line separators": "x\u2028import os\u2029\x85import os",
    "form feed": "x\x0cimport os\x0b\x1c\x1dimport os",
    "nul": "x\x00y",
    "escapes": "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f",
    "bidirectional": "x\u202e\u2066y\u200f\ufeff\U000e0041",
    "surrogate": "x\ud800\udc80",
    "html": "--></script><img src=x onerror=alert(1)>",
    "shell": "`id` $(id) ; id & id | id > /dev/null\n```\n",
    "markdown": "| [a](javascript:id) ![b](http://x.y) @all #1 **c** <b>",
}  # fmt: skip

Place = tuple[tuple[Any, bool], ...]
"""The way to a scalar: keys and numbers; True with the last where the key itself is meant."""


def places(data: Any, way: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every scalar of plain data, keys among them, and the way to it."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*way, (key, True)), key
            yield from places(value, (*way, (key, False)))
    elif isinstance(data, list):
        for number, item in enumerate(data):
            yield from places(item, (*way, (number, False)))
    else:
        yield way, data


def with_text(data: Any, way: Place, text: Any) -> Any:
    """The data with another scalar at one place."""
    if not way:
        return text
    (key, is_key), *inner = way
    if isinstance(data, list):
        return [with_text(item, tuple(inner), text) if number == key else item for number, item in enumerate(data)]
    if is_key:
        return {text if name == key else name: item for name, item in data.items()}
    return {name: with_text(item, tuple(inner), text) if name == key else item for name, item in data.items()}


def mutations(data: Any, payload: str, turn: int = 0) -> Iterator[tuple[Place, Any]]:
    """The data with the payload instead of each scalar. Every second text, and every key, keeps its own text before it.

    ``turn`` says which texts these are.
    """
    for number, (way, value) in enumerate(places(data)):
        whole = not isinstance(value, str) or (not way[-1][1] and (number + turn) % 2)
        yield way, with_text(data, way, payload if whole else value + payload)


def model_mutations(value: Any, payload: str, way: str = "") -> Iterator[tuple[str, Any]]:
    """A model of frozen dataclasses with the payload instead of each leaf, and of each key of a mapping."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if type(value).__name__ == "Span":
            return
        for field in dataclasses.fields(value):
            for inner, changed in model_mutations(getattr(value, field.name), payload, f"{way}.{field.name}"):
                yield inner, dataclasses.replace(value, **{field.name: changed})
    elif isinstance(value, tuple) and value:
        for number, item in enumerate(value):
            for inner, changed in model_mutations(item, payload, f"{way}[{number}]"):
                yield inner, (*value[:number], changed, *value[number + 1 :])
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield f"{way}[{key!r}:]", {payload if name == key else name: entry for name, entry in value.items()}
            for inner, changed in model_mutations(item, payload, f"{way}[{key!r}]"):
                yield inner, {**value, key: changed}
    else:
        yield way, payload


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a Python text does: how many statements of each kind, and every name, attribute, keyword and import.

    Texts and numbers are left out, and statements that do nothing beyond their expression.
    """

    statements: Counter[str]
    words: frozenset[str]
    calls: int

    def within(self, base: Shape) -> bool:
        """Whether it does nothing that ``base`` does not: no further statement, name or call."""
        return self.statements <= base.statements and self.words <= base.words and self.calls <= base.calls


_PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Pass)


def shape(text: str) -> Shape:
    """The shape of a Python text. Raises SyntaxError for another text.

    Two blank lines stand between functions alone, and most of these are the same from script to script.
    """
    blocks = [_block(block) for block in text.split("\n\n\n")]
    statements = sum((block.statements for block in blocks), Counter[str]())
    return Shape(
        statements, frozenset().union(*(block.words for block in blocks)), sum(block.calls for block in blocks)
    )


@lru_cache(maxsize=1024)
def _block(text: str) -> Shape:
    nodes = list(ast.walk(ast.parse(text)))
    words: set[str] = set()
    for node in nodes:
        for name, value in ast.iter_fields(node):
            if isinstance(value, str) and not isinstance(node, ast.Constant):
                words.add(f"{type(node).__name__}.{name} {value}")
            elif name == "names":
                words.update(str(item) for item in value if isinstance(item, str))
    return Shape(
        Counter(type(node).__name__ for node in nodes if isinstance(node, ast.stmt) and not isinstance(node, _PLAIN)),
        frozenset(words),
        sum(isinstance(node, ast.Call) for node in nodes),
    )
