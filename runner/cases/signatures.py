"""The arguments of operators, from ``arguments.json``: the signatures of the newest torch that has the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from runner.cases.model import Items, Literal, Value
from runner.cases.torch_names import signature_texts


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a signature. ``kind`` is such as ``tensor``, ``ints`` or ``text``; empty where it is unknown."""

    name: str
    kind: str
    is_optional: bool
    is_keyword: bool

    def takes(self, value: Value) -> bool:
        """Return whether a value as it is written may be this argument's."""
        if isinstance(value, Items):
            return self.kind not in ("tensor", "bool", "text", "dtype")
        if not isinstance(value, Literal) or value.value is None or self.kind == "":
            return True
        word = "bool" if isinstance(value.value, bool) else "text" if isinstance(value.value, str) else "number"
        return {"bool": word == "bool", "text": word == "text", "tensor": False}.get(self.kind, word != "text")


Signature = tuple[Argument, ...]


@cache
def signatures_of(operator: str) -> tuple[Signature, ...]:
    """Return the signatures of an operator; none where they are unknown.

    Of an operator with optional arguments, signatures without one are left out.
    """
    return tuple(tuple(_read(text)) for text in signature_texts().get(operator, ()))


def _read(text: str) -> Iterator[Argument]:
    is_keyword = False
    for word in text.split():
        if word == "*":
            is_keyword = True
            continue
        name, _, kind = word.partition(":")
        yield Argument(name, kind.rstrip("="), kind.endswith("="), is_keyword)
