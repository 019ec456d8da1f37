"""A plan in parts, one a machine; and a hash of the whole plan, by which parts that belong together know each other."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import heapq
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.cases.model import Case, Kernel, Literal, PythonModule
from runner.cases.python_files import own_imports
from runner.diagnostics import Span
from runner.files import read_text
from runner.session.plan import Planned

_PYTHON = (PythonModule, Kernel)
"""What names a Python file: its text counts, and not where it lies."""
_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis)})


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` (from 1) of ``count``."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse(text: str) -> Shard:
    """The shard that ``text`` names, such as ``2/4``. Raises ValueError, which says what is wrong with it."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no shard; write which of how many, such as 2/4")
    shard = Shard(int(found[1]), int(found[2]))
    if shard.count == 0:
        raise ValueError(f"{text!r}: there must be at least one shard, such as 1/1")
    if not 1 <= shard.index <= shard.count:
        raise ValueError(
            f"{text!r}: shards are counted from 1, so this must be one of 1/{shard.count} to "
            f"{shard.count}/{shard.count}"
        )
    return shard


def chosen(planned: Sequence[Planned], shard: Shard, seconds: Mapping[str, float] | None = None) -> list[Planned]:
    """What belongs to a shard, in the plan's order; every environment of a variant goes to the same one.

    By a hash of the variant's id, so that a variant stays in its shard whatever else is planned. With ``seconds`` by
    variant id, so that all shards take about as long; every shard must then be given the same ones. Ids that are not
    among them count as the median.
    """
    ids = list(dict.fromkeys(one.variant.id for one in planned))
    spent = {name: s for name in ids if (s := (seconds or {}).get(name, -1.0)) >= 0 and math.isfinite(s)}
    if spent:
        mine = _balanced(ids, spent, shard)
    else:
        mine = {name for name in ids if is_of(name, shard)}
    return [one for one in planned if one.variant.id in mine]


def is_of(name: str, shard: Shard) -> bool:
    """Whether a variant's id belongs to a shard of those that are cut without times."""
    return int(_sha(name), 16) % shard.count == shard.index - 1


def _balanced(ids: Sequence[str], seconds: Mapping[str, float], shard: Shard) -> set[str]:
    """The ids of a shard when each goes, the longest first, to the shard that has least to do so far."""
    middle = statistics.median(seconds.values())
    loads = [(0.0, index) for index in range(1, shard.count + 1)]
    mine = set()
    for name in sorted(ids, key=lambda name: (-seconds.get(name, middle), name)):
        load, index = loads[0]
        heapq.heapreplace(loads, (load + seconds.get(name, middle), index))
        if index == shard.index:
            mine.add(name)
    return mine


def plan_hash(planned: Sequence[Planned], *more: str) -> str:
    """Sixteen hex digits for what is planned, before it is cut into shards.

    Of each variant its id, its torch build, its backend and all that its case says, a Python file that it brings
    included, with what that imports from its own folder; not where in a file something stands, what comments say, or
    where the checkout lies. ``more`` is whatever else must agree, such as options that change verdicts.
    """
    known: dict[int, str] = {}  # many variants share a case; the plan keeps these objects alive meanwhile

    def content(value: Any) -> str:
        if id(value) not in known:
            known[id(value)] = _sha(repr(_plain(value)))
        return known[id(value)]

    lines = [
        repr((one.variant.id, one.environment.build, content(one.variant.case), content(one.variant.backend)))
        for one in planned
    ]
    lines.sort()
    digest = hashlib.sha256()
    for number, line in enumerate(itertools.chain(lines, map(repr, more))):  # not joined: the lines may have gigabytes
        digest.update(f"{chr(10) if number else ''}{line}".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


def _plain(value: Any) -> Any:
    """A value of the model as tuples and scalars whose repr is the same on every machine, without places and paths.

    Raises:
        TypeError: it holds something that has no such repr.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return tuple(map(_plain, value))
    if kind is Span:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return "mapping", tuple((_plain(key), _plain(item)) for key, item in value.items())
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"a plan holds {value!r}, which no hash is known for")
    parts: list[Any] = [kind.__name__]
    for name, default in _fields(kind):
        item = getattr(value, name)
        if item != default:  # most are not set, and this is run for each case
            parts += (name, _plain(item))
    if isinstance(value, _PYTHON):
        parts.append(_text(value.file))
        imported = own_imports(Path(value.file))
        parts += [(name, _sha(text)) for name, text in sorted(imported.items())]
    return tuple(parts)


@functools.cache
def _fields(kind: type) -> list[tuple[str, Any]]:
    """The fields that say something, which an absolute path does not, each with its default."""
    return [
        (field.name, field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default)
        for field in dataclasses.fields(kind)
        if not (field.name == "file" and kind in (Case, *_PYTHON)) and not (field.name == "span" and kind is Literal)
    ]


def _text(file: str) -> str:
    try:
        return _sha(read_text(file))
    except (OSError, UnicodeError) as error:  # the run will say what is wrong with it
        return type(error).__name__


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
