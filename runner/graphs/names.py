"""References in plain data of the format: which names it holds, and the same data with other names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_REFERENCE = re.compile(r"\$([A-Za-z_]\w*)(?=$|[.\[,:\]\s])", re.ASCII)
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\s*\()", re.ASCII)
_ARITHMETIC = re.compile(r"\$\{([^}]*)\}")
_OWN = ("dtype", "device", "_")


def references(data: Any) -> Iterator[str]:
    """Yield the name of each reference to a value, in order and as often as it stands there."""
    for text in _texts(data):
        yield from _names_in(text)


def renamed(data: Any, names: Mapping[str, str]) -> Any:
    """Return plain data with other names for values, such as ``self.weight`` for ``weight``."""
    return _changed(data, lambda text: _with_names(text, names))


def replaced(data: Any, old: str, new: Any) -> Any:
    """Return plain data in which a value takes the place of each text that equals ``old``, outside of functions."""
    if isinstance(data, str):
        return new if data == old else data
    if isinstance(data, dict):
        return (
            data
            if "$text" in data or "$fn" in data
            else {key: replaced(value, old, new) for key, value in data.items()}
        )
    return [replaced(value, old, new) for value in data] if isinstance(data, list | tuple) else data


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in () if "$text" in data else data.values():
            yield from _texts(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _texts(value)


def _changed(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return data if "$text" in data else {key: _changed(value, change) for key, value in data.items()}
    return [_changed(value, change) for value in data] if isinstance(data, list | tuple) else data


def _names_in(text: str) -> list[str]:
    """Return the names of a text in order: those of its arithmetic, and those after a dollar."""
    if not text.startswith(("$", "[")):
        return []
    names = [(match.start(), word) for match in _ARITHMETIC.finditer(text) for word in _WORD.findall(match[1])]
    names += [(match.start(), match[1]) for match in _REFERENCE.finditer(text) if match[1] not in _OWN]
    return [name for _, name in sorted(names, key=lambda pair: pair[0])]


def _with_names(text: str, names: Mapping[str, str]) -> str:
    if not text.startswith(("$", "[")):
        return text

    def arithmetic(match: re.Match[str]) -> str:
        return f"${{{_WORD.sub(lambda word: names.get(word[0], word[0]), match[1])}}}"

    text = _ARITHMETIC.sub(arithmetic, text)
    return _REFERENCE.sub(lambda match: f"${names.get(match[1], match[1])}", text)
