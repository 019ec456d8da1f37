"""Which variants to run: the expressions of ``-k`` and of a suite's ``select:``.

``not``, ``and``, ``or`` and parentheses over words. ``tag:x``, ``case:x``, ``file:x``, ``backend:x``, ``device:x``, ``dtype:x`` match
with ``*`` and ``?``; any other word matches a part of the id, whatever its case. Another ``prefix:`` is an error outside quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from runner.cases.model import Variant
from runner.diagnostics import nearest

Predicate = Callable[[Variant], bool]

_TOKEN = re.compile(r"\s*(\(|\)|\"[^\"]*\"|'[^']*'|[^\s()]+)")
_FIELDS: dict[str, Callable[[Variant], tuple[str, ...]]] = {
    "tag": lambda v: v.case.tags,
    "case": lambda v: (v.case.name,),
    "file": lambda v: (v.where,),
    "backend": lambda v: (v.backend.name,),
    "device": lambda v: (v.device,),
    "dtype": lambda v: (v.dtype,),
}


MAX_NESTING = 100


class SelectError(ValueError):
    """An expression that cannot be read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """An expression: call it with a variant. ``terms`` are its fields, each with its pattern."""

    predicate: Predicate
    terms: tuple[tuple[str, str], ...]

    def __call__(self, variant: Variant) -> bool:
        """Return whether the variant is selected."""
        return self.predicate(variant)

    def idle_terms(self, values: Mapping[str, Iterable[str]]) -> list[str]:
        """Return a message for each term that matches none of the ``values`` of its field; fields without values are not looked at."""
        messages = []
        for field, pattern in dict.fromkeys(self.terms):
            present = dict.fromkeys(values.get(field, ()))
            if field not in values or any(map(re.compile(translate(pattern)).match, present)):
                continue
            near = nearest(pattern, present)
            messages.append(f"{field}:{pattern} matches no {field} here{'; ' + near if near else ''}")
        return messages


def values_of(variants: Iterable[Variant]) -> dict[str, dict[str, None]]:
    """Return what these variants have in each field."""
    values: dict[str, dict[str, None]] = {field: {} for field in _FIELDS}
    for variant in variants:
        for field, read in _FIELDS.items():
            values[field].update(dict.fromkeys(read(variant)))
    return values


def parse_selection(text: str) -> Selection:
    """Return the selection of an expression. Raises SelectError, which says where the expression is wrong."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise SelectError("the expression is empty")
    if tokens.count("(") + tokens.count("not") > MAX_NESTING:
        raise SelectError(f"more than {MAX_NESTING} parentheses and nots in one expression")
    parser = _Parser(tokens, text)
    predicate = parser.alternatives()
    if parser.rest():
        raise SelectError(f"{text!r}: unexpected {parser.rest()[0]!r}; join words with and, or")
    return Selection(predicate, tuple(parser.terms))


class _Parser:
    def __init__(self, tokens: list[str], text: str) -> None:
        self.tokens, self.text, self.at = tokens, text, 0
        self.terms: list[tuple[str, str]] = []

    def rest(self) -> list[str]:
        return self.tokens[self.at :]

    def take(self, word: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == word:
            self.at += 1
            return True
        return False

    def alternatives(self) -> Predicate:
        parts = [self.conjunction()]
        while self.take("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else lambda v: any(p(v) for p in parts)

    def conjunction(self) -> Predicate:
        parts = [self.term()]
        while self.take("and"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else lambda v: all(p(v) for p in parts)

    def term(self) -> Predicate:
        if self.take("not"):
            inner = self.term()
            return lambda v: not inner(v)
        if self.take("("):
            inner = self.alternatives()
            if not self.take(")"):
                raise SelectError(f"{self.text!r}: a parenthesis is not closed")
            return inner
        if self.at >= len(self.tokens) or self.tokens[self.at] in ("and", "or", ")"):
            raise SelectError(f"{self.text!r}: a word is missing")
        token = self.tokens[self.at]
        self.at += 1
        return self.word(token.strip("\"'"), quoted=token[0] in "\"'")

    def word(self, word: str, quoted: bool) -> Predicate:
        field, colon, pattern = word.partition(":")
        if colon and field in _FIELDS and not pattern.startswith(":"):
            self.terms.append((field, pattern))
            read, compiled = _FIELDS[field], re.compile(translate(pattern))
            matches = lru_cache(1000)(lambda text: compiled.match(text) is not None)  # few texts stand in many variants
            return lambda v: any(map(matches, read(v)))
        # cuda:1 is a part of ids.
        if field.isidentifier() and colon and not quoted and not pattern.startswith(":") and not pattern.isdigit():
            hint = nearest(field, _FIELDS) or f"there are {', '.join(_FIELDS)}; quote text that has a colon"
            raise SelectError(f"unknown field {field!r}: {hint}")
        lowered = word.lower()
        return lambda v: lowered in v.id.lower()
