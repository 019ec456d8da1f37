"""Torch version ranges: ``<=2.6``, ``>=2.7,<2.9``. A version compares at the precision written."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache

_PART = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+)*)\s*$")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


@cache
def parse_range(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the comparisons of a range. Raises ValueError for anything else."""
    parts = []
    for piece in text.split(","):
        match = _PART.match(piece)
        if match is None:
            raise ValueError(f"{piece.strip()!r} is no version comparison, such as '<=2.6' or '>=2.7,<2.9'")
        parts.append((match[1], tuple(int(n) for n in match[2].split("."))))
    return tuple(parts)


def matches(text: str | None, version: str) -> bool:
    """Return whether ``version`` lies in the range; None holds everything.

    ``<=2.13`` holds 2.13.1, 2.13.0+cpu and 2.13.0.dev20260101, because only two numbers are compared.
    """
    if text is None:
        return True
    release = release_of(version)
    for sign, bound in parse_range(text):
        padded = (release + (0,) * len(bound))[: len(bound)]
        if not _COMPARE[sign](padded, bound):
            return False
    return True


@cache
def release_of(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version: (2, 13, 0) for ``2.13.0+cpu``."""
    from packaging.version import InvalidVersion, Version  # costs 20 ms that `runner --version` need not pay

    try:
        return Version(version).release
    except InvalidVersion:
        return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])
