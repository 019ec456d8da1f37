"""Calls that are written as in Python, ``torch.add(x, 1)`` or ``[$_, dim=-1]``, and how YAML has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from runner.cases.references import split
from runner.cases.yaml.scalars import flow, resolve

_CALL = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200})\((?P<inside>.*)\)", re.ASCII)
_KEYWORD = re.compile(r"(?P<key>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.+)", re.ASCII)
_NAME = re.compile(r"(?!torch\.)[A-Za-z_]\w*(\.[A-Za-z_]\w*|\[\d+\])*", re.ASCII)
_WORDS = {"None": None, "True": True, "False": False}
_LONGEST = 200
"""Characters of a text that is looked at: a longer one is no call that a person typed."""


def has_keyword(text: str) -> bool:
    """Return whether the text is a keyword argument of Python, such as ``dim=-1``, or holds one behind a comma."""
    return "=" in text and len(text) <= _LONGEST and any(_KEYWORD.fullmatch(part) for part in split(text, ","))


def yaml_call(text: str) -> str:
    """Return ``F.softmax: {"*": [$x], dim: -1}`` for ``F.softmax(x, dim=-1)``; an empty string for a text that is no
    call."""
    call = _CALL.fullmatch(text) if len(text) <= _LONGEST else None
    if call is None:
        return ""
    inside = call["inside"].strip()
    name = call["name"]
    return name + (
        f": {yaml_arguments(split(inside, ','), names=True, receiver=takes_receiver(name))}" if inside else ""
    )


def takes_receiver(operator: str) -> bool:
    """Return whether every call of it takes a tensor first, as far as its name alone tells."""
    return operator.startswith(("F.", "Tensor."))


def yaml_arguments(
    parts: Iterable[Any], others: Mapping[str, Any] | None = None, names: bool = False, receiver: bool = False
) -> str:
    """Return Python's arguments as YAML has them, with the keywords ``others``.

    ``names`` says that a name is a reference. With ``receiver`` the value of the step before comes first where no
    argument is one.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = dict(others or {})
    for part in parts:
        if part == "":  # behind a trailing comma
            continue
        keyword = _KEYWORD.fullmatch(part) if isinstance(part, str) else None
        if keyword is not None:
            keywords[keyword["key"]] = _value(keyword["value"], names)
        else:
            positional.append(_value(part, names) if isinstance(part, str) else part)
    if receiver and not any(str(value).startswith("$") for value in (*positional, *keywords.values())):
        positional.insert(0, "$_")
    if not keywords:
        return flow(positional)
    return flow({"*": positional, **keywords} if positional else keywords)


def _value(text: str, names: bool) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] in "([" and text[-1:] in ")]":
        return [_value(part, names) for part in split(text[1:-1], ",") if part]
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    try:
        value = resolve(text)
    except ValueError:  # a number that Python cannot hold
        return text
    return f"${text}" if names and isinstance(value, str) and _NAME.fullmatch(text) else value
