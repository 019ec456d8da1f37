"""Torch version ranges: ``<=2.6``, ``>=2.7,<2.9``, and ranges made narrower by what was seen.

A version compares at the precision written.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
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
    return all(_COMPARE[sign]((release + (0,) * len(bound))[: len(bound)], bound) for sign, bound in parse_range(text))


@cache
def release_of(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version: (2, 13, 0) for ``2.13.0+cpu``."""
    from packaging.version import InvalidVersion, Version  # costs 20 ms that `runner --version` need not pay

    try:
        return Version(version).release
    except InvalidVersion:
        return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])


OLDEST = (2, 6)
"""The first torch that is supported: a range that only holds older ones holds nothing."""


def narrow_range(text: str | None, keep: Sequence[str], out: Sequence[str]) -> str | None:
    """Return the range with the versions ``keep`` in it and ``out`` not; ``""`` when nothing remains.

    The text stays as it is where it can. A version between one that stays and one that falls out falls out too, because
    nothing is known of it. Without ``keep``, everything from the first version in ``out`` on falls out, and an open
    range leaves nothing. Raises ValueError when the numbers do not tell the versions apart.
    """
    out = [version for version in out if matches(text, version)]
    if not out:
        return text
    if not keep:
        if text is None:
            return ""
        first = min(out, key=release_of)
        parts = [*(part for part in _parts(text) if not part.startswith("<")), f"<{_shown(first, 2)}"]
    else:
        parts = _around(text or "", keep, out)
    return _checked(parts, keep, out)


def smallest_range(keep: Sequence[str], out: Sequence[str] = ()) -> str:
    """Return the smallest range that holds ``keep``, and nothing of ``out``.

    Raises ValueError as ``narrow_range`` does.
    """
    return _checked(_around("", keep, out, closed=True), keep, out)


def _around(text: str, keep: Sequence[str], out: Sequence[str], closed: bool = False) -> list[str]:
    """The comparisons of a range, bounded where something of ``out`` lies beyond ``keep``; with ``closed``, always."""
    size = _size(keep, out)
    low, high = min(map(release_of, keep)), max(map(release_of, keep))
    above = closed or any(release_of(v) > high for v in out)
    below = closed or any(release_of(v) < low for v in out)
    replaced = ("<" if above else "") + (">" if below else "")
    return [
        *([f">={_shown(low, size)}"] if below else []),
        *(part for part in _parts(text) if not part.startswith(tuple(replaced))),
        *([f"<={_shown(high, size)}"] if above else []),
        *(f"!={_shown(v, size)}" for v in out if low < release_of(v) < high),
    ]


def _checked(parts: Iterable[str], keep: Sequence[str], out: Sequence[str]) -> str:
    text = ",".join(dict.fromkeys(parts))
    low = next((p[2:] for p in text.split(",") if p.startswith(">=")), None)
    if low is not None and f"<={low}" in text.split(","):
        text = ",".join([f"=={low}", *(p for p in text.split(",") if p not in (f">={low}", f"<={low}"))])
    if not text or not all(matches(text, v) for v in keep) or any(matches(text, v) for v in out):
        raise ValueError(f"the numbers of torch {', '.join(keep)} and {', '.join(out)} do not tell them apart")
    return text if keep or not _is_empty(text) else ""


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part]


def _size(keep: Sequence[str], out: Sequence[str]) -> int:
    """How many numbers of a version it takes to tell these apart."""
    return 3 if {release_of(v)[:2] for v in keep} & {release_of(v)[:2] for v in out} else 2


def _shown(version: str | tuple[int, ...], size: int) -> str:
    return ".".join(map(str, (release_of(version) if isinstance(version, str) else version)[:size]))


def _is_empty(text: str) -> bool:
    """Whether no supported version lies in a range: those that it names and their neighbours are tried."""
    candidates = {(*OLDEST, 0)}
    for _, (major, *lower) in parse_range(text):
        minor, patch = (*lower, 0, 0)[:2]
        candidates |= {(major, m, p) for m in (minor - 1, minor, minor + 1) for p in (patch - 1, patch, patch + 1, 999)}
    return not any(min(v) >= 0 and v >= OLDEST and matches(text, ".".join(map(str, v))) for v in candidates)
