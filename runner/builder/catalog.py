"""All operators that a step may call, and all names of torch that are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

from runner.builder.operators import Operator, Refusal, reason_to_refuse, resolve
from runner.cases.operator_names import known_names
from runner.cases.operator_texts import calls_by_version, is_overload


@cache
def callable_names(version: str | None = None) -> tuple[str, ...]:
    """Return the operators that a step may call, sorted: those of one version of torch, or of all supported ones."""
    names = (name for name in sorted({*known_names()}) if isinstance(resolve(name), Operator))
    return tuple(name for name in names if version is None or version in calls_by_version(name))


@cache
def refused_names() -> tuple[str, ...]:
    """Return the names that are known and that no step may call, sorted."""
    return tuple(name for name in sorted({*known_names()}) if isinstance(resolve(name), Refusal))


@dataclass(frozen=True, slots=True)
class Match:
    """The names that a pattern matches: those that a step may call, and those that are refused."""

    callable: tuple[str, ...]
    refused: tuple[str, ...]


def find_operators(pattern: str, version: str | None = None) -> Match:
    """Return what a pattern such as ``F.conv*`` matches, in small or capital letters; a word stands for any namespace.

    A name that is written out matches itself alone, one that torch lacks and a rule refuses too. Overloads match where
    the pattern has a part for them.
    """
    names, refused = callable_names(version), refused_names()
    if pattern in names:
        return Match((pattern,), ())
    if pattern in refused or (reason_to_refuse(pattern) and isinstance(resolve(pattern), Refusal)):
        return Match((), (pattern,))
    whole = pattern if "." in pattern else f"*.{pattern}"
    matches = re.compile(translate(whole), re.IGNORECASE).match

    def fits(name: str) -> bool:
        return matches(name) is not None and (not is_overload(name) or whole.count(".") > 1)

    return Match(tuple(filter(fits, names)), tuple(filter(fits, refused)))
