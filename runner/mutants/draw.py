"""Draws mutants by a seed, on lines that a suite reaches."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable

from runner.contract.lines import Lines
from runner.contract.mutant import Mutant, digest_of
from runner.mutants.sites import Site, find_sites

_GENERATORS = ("codegen/", "kernel/", "cpp_builder", "triton")
"""Parts of the paths of files whose strings are generated code."""


def draw(reached: Lines, read: Callable[[str], bytes | None], count: int, seed: int) -> list[Mutant]:
    """Return up to ``count`` mutants, each on a line of its own.

    Every reached line that can be changed is as likely as any other, then every kind of change of the line, then every
    change of the kind. So a larger count begins with the mutants of a smaller one.

    Args:
        reached: the lines.
        read: returns a file's text, or None without such a file.
        count: how many at most.
        seed: of the draw.
    """
    choice = random.Random(seed)
    sources = {file: source for file in sorted(reached.bits()) if (source := read(file)) is not None}
    places = [
        (file, line, sites)
        for file, source in sources.items()
        for line, sites in sorted(_sites_by_line(file, source, reached).items())
    ]
    choice.shuffle(places)
    return [_mutant(file, sources[file], _pick(sites, choice)) for file, line, sites in places[:count]]


def _sites_by_line(file: str, source: bytes, reached: Lines) -> dict[int, list[Site]]:
    try:
        sites = find_sites(source, any(part in file for part in _GENERATORS), lambda line: reached.holds(file, line))
    except (SyntaxError, ValueError):  # of a newer Python
        return {}
    by_line = defaultdict(list)
    for site in sites:
        by_line[site.line].append(site)
    return by_line


def _pick(sites: Iterable[Site], choice: random.Random) -> Site:
    by_kind = defaultdict(list)
    for site in sites:
        by_kind[site.kind].append(site)
    return choice.choice(by_kind[choice.choice(sorted(by_kind))])


def _mutant(file: str, source: bytes, site: Site) -> Mutant:
    return Mutant(file, site.line, site.start, site.end, site.text, digest_of(source), site.kind)
