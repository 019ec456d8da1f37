"""References in plain data of the format: which names it holds, and the same data with other names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_REFERENCE = re.compile(r"\$([A-Za-z_]\w*)(?=$|[.\[,:\]\s])", re.ASCII)
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()", re.ASCII)
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
    if "${" in text:
        return [word for part in re.findall(r"\$\{([^}]*)\}", text) for word in _WORD.findall(part)]
    if not text.startswith(("$", "[")):
        return []
    return [name for name in _REFERENCE.findall(text) if name not in _OWN]


def _with_names(text: str, names: Mapping[str, str]) -> str:
    def arithmetic(match: re.Match[str]) -> str:
        inner = _WORD.sub(lambda word: names.get(word[0], word[0]), match[1])
        return f"${{{inner}}}"

    if "${" in text:
        return re.sub(r"\$\{([^}]*)\}", arithmetic, text)
    if not text.startswith(("$", "[")):
        return text
    return _REFERENCE.sub(lambda match: f"${names.get(match[1], match[1])}", text)
