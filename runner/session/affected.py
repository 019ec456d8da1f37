"""Which variants a change of the compiler can affect: those that reached the changed lines in a recorded run.

Lines are known of functions in Python files alone. A change of anything else, such as C++, generated code, or lines
that run at import, is answered by all variants. So is a block of changed lines that no recorded variant reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.cases.model import Variant
from runner.cases.operator_names import operators_of
from runner.contract.lines import LAST, TORCH, Lines

COMMON = 0.05
"""A line that a larger share of the variants reaches is answered by a sample of them, which takes at most this share
of the recorded time."""
_TEST = re.compile(r"(?:^|/)(?:tests?|docs?|\.github)/|(?:^|/)test_[^/]*\.py$|_test\.py$|\.(?:md|rst)$")
"""Files that a change of a compiler often has too, and that no compilation runs."""
SHORTEST = 0.1
"""Seconds that a variant of a sample counts at least; those of an unknown one are 0."""
FEW = 10
"""So few variants all run, whatever their share."""


@dataclass(frozen=True, slots=True)
class LineMap:
    """Which variants of a run reached which lines.

    Args:
        counts: how many lines each variant reached, by its id.
        files: by a file's name, as records have it, by variant, a number whose bits are the lines.
    """

    counts: Mapping[str, int]
    files: Mapping[str, Mapping[str, int]]

    @staticmethod
    def of(reached: Iterable[tuple[str, Lines]]) -> LineMap:
        """Return the map of variants with the lines that each reached. One without lines is left out."""
        counts: dict[str, int] = {}
        files: dict[str, dict[str, int]] = {}
        for variant, lines in reached:
            if not lines:
                continue
            counts[variant] = len(lines)
            for file, bits in lines.bits().items():
                files.setdefault(file, {})[variant] = bits
        return LineMap(counts, files)

    def variants_of(self, file: str, line: int) -> frozenset[str]:
        """Return the ids of the variants that reached a line: ``variants_of("_inductor/ir.py", 10)``."""
        return frozenset(variant for variant, bits in self.files.get(file, {}).items() if bits >> line & 1)

    def name_in(self, file: str) -> str:
        """Return the map's name of a file of a checkout, where packages may lie in a folder: ``src/acme/ir.py``."""
        parts = file.split("/")
        names = ("/".join(parts[number:]) for number in range(len(parts)))
        return next((name for name in names if name in self.files), file)

    def variants_in(self, file: str) -> frozenset[str]:
        """Return the ids of the variants that reached any line of a file."""
        return frozenset(self.files.get(file, ()))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant that may be chosen: its id, its seconds in the recorded run (0 where unknown), its operators and
    tags."""

    id: str
    seconds: float = 0.0
    traits: frozenset[str] = frozenset()


def candidate(variant: Variant, seconds: float) -> Candidate:
    """Return a variant that may be chosen, with its operators and tags."""
    return Candidate(variant.id, seconds, frozenset((*variant.case.tags, *operators_of(variant.case))))


@dataclass(frozen=True, slots=True)
class Block:
    """Changed lines of one file that stand together; none means all lines of the file.

    ``at_import`` says that their text runs when the module is imported.
    """

    file: str
    lines: tuple[int, ...] = ()
    at_import: bool = False

    def __str__(self) -> str:
        ends = [*dict.fromkeys((self.lines[:1], self.lines[-1:]))]
        return ":".join(filter(None, (self.file, "-".join(str(end[0]) for end in ends if end))))


@dataclass(frozen=True, slots=True)
class Selection:
    """What to run, in order: ids with the reason of each. ``unknown`` are the blocks that all variants answer, and
    ``tests`` the files that none answers: tests and documents of the changed project."""

    reasons: Mapping[str, str]
    unknown: tuple[Block, ...] = ()
    tests: tuple[str, ...] = ()
    sampled: int = 0  # how many of the variants stand for others that reach the same common lines
    common: int = 0  # how many variants reach these


def select(line_map: LineMap, changes: Sequence[Block], candidates: Sequence[Candidate]) -> Selection:
    """Return the candidates that changed lines can affect: new ones, then the most specific, cheap ones first.

    Args:
        line_map: of a recorded run.
        changes: by file, with names and numbers of lines as the map has them.
        candidates: what the command line selects.
    """
    by_id = {each.id: each for each in candidates}
    new = [each for each in candidates if each.id not in line_map.counts]
    known = [each for each in candidates if each.id in line_map.counts]
    changes = [replace(block, file=line_map.name_in(block.file)) for block in changes]
    tests = {block.file: None for block in changes if block.file not in line_map.files and _TEST.search(block.file)}
    changes = [block for block in changes if block.file not in tests]
    groups, unknown = _groups(line_map, changes, frozenset(each.id for each in known))
    most = max(COMMON * len(known), FEW)
    rare: dict[str, int] = {}  # by variant, how many reach the rarest line of its
    hits: dict[str, int] = {}
    for group in groups:
        for variant in group:
            hits[variant] = hits.get(variant, 0) + 1
            if len(group) <= most:
                rare[variant] = min(len(group), rare.get(variant, len(group)))

    def rank(variant: str) -> tuple[int, float, float, str]:
        share = hits[variant] / line_map.counts[variant]
        return rare.get(variant, len(known) + 1), by_id[variant].seconds, -share, variant

    specific = sorted(rare, key=rank)
    common = sorted(hits.keys() - rare, key=rank)
    sample = _sample([by_id[variant] for variant in common], COMMON * sum(each.seconds for each in known))
    reasons = {item.id: "new: the recorded run has no lines of it" for item in new}
    reasons |= {each: f"reaches a changed line that {rare[each]} of {len(known)} reach" for each in specific}
    reasons |= {each.id: f"one of the sample for lines that {len(hits)} of {len(known)} reach" for each in sample}
    if unknown:
        others = sorted((each for each in known if each.id not in reasons), key=lambda each: (each.seconds, each.id))
        reasons |= {each.id: f"nobody knows what reaches {unknown[0]}" for each in others}
    return Selection(reasons, unknown, tuple(tests), len(sample), len(common))


def _groups(
    line_map: LineMap, changes: Iterable[Block], known: frozenset[str]
) -> tuple[list[frozenset[str]], tuple[Block, ...]]:
    """Return the variants of each changed line that any reaches, and the blocks that nobody reaches."""
    groups, unknown = [], []
    for block in changes:
        lines = [line_map.variants_of(block.file, line) & known for line in block.lines]
        reached = [group for group in (lines if block.lines else [line_map.variants_in(block.file) & known]) if group]
        groups += reached
        if not reached or block.at_import:
            unknown.append(block)
    return groups, tuple(unknown)


def _sample(candidates: Sequence[Candidate], seconds: float) -> list[Candidate]:
    """Return some within a time, each time the first that brings the most new traits for its seconds; at least one.

    This is the greedy rule of weighted set cover (Chvatal 1979). Without the seconds a few long variants take the time
    of many short ones, and the short ones find most faults.
    """
    chosen: list[Candidate] = []
    covered: set[str] = set()
    pending = [*candidates]
    while pending:
        best = max(pending, key=lambda each: len(each.traits - covered) / max(each.seconds, SHORTEST))
        if best.traits <= covered:
            return [*chosen, *_fitting(pending, seconds)] or pending[:1]
        pending.remove(best)
        if chosen and best.seconds > seconds:
            continue
        chosen.append(best)
        seconds -= best.seconds
        covered |= best.traits
    return chosen


def _fitting(candidates: Iterable[Candidate], seconds: float) -> Iterator[Candidate]:
    """Yield the candidates that fit into a time one after the other."""
    for each in candidates:
        if each.seconds <= seconds:
            seconds -= each.seconds
            yield each


# --- what changed ---

_HUNK = re.compile(r"@@ -(\d{1,7})(?:,(\d{1,7}))? \+\d{1,7}(?:,(\d{1,7}))? @@")
_MOVED = re.compile(r"rename from (.+)|Binary files (?:a/)?(.+?) and .+ differ$")
"""What a diff says of a file that has another name now, or no text."""
_PLACE = re.compile(r"(.+?):(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*)")
_COMMENT = re.compile(r"\s*(?:#(?:[ #].*)?)?")
"""A line of Python that says nothing to Python. ``#include`` is one of a template's C++."""
_AT_IMPORT = re.compile(r"\s*@|(?!(?:async def|def|class) |\))\S")
"""A line that runs at import: a decorator, or one that is not indented and begins no definition."""


def read_diff(text: str) -> list[Block]:
    """Return the changed lines of a unified diff, by their names and numbers on the old side.

    An insertion counts as the lines around it. Blank lines and comments of Python do not count.
    """
    diff = _Diff()
    for line in text.split("\n"):  # a form feed ends no line
        if diff.old > 0 or diff.new > 0:
            diff.read_change(line.removesuffix("\r"))
        else:
            diff.read_header(line.removesuffix("\r"))
    diff.end_file()
    return diff.blocks


class _Diff:
    """A diff as far as it was read; ``old`` and ``new`` are the lines of both sides that a hunk has yet to come."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.file, self.number, self.old, self.new = "", 0, 0, 0
        self.lines: set[int] = set()
        self.imports: set[int] = set()
        self.is_replacement = False

    def end_file(self) -> None:
        self.blocks += _blocks(self.file, self.lines)
        self.blocks += [replace(block, at_import=True) for block in _blocks(self.file, self.imports)]
        self.lines, self.imports = set(), set()

    def read_header(self, line: str) -> None:
        path = line[4:].partition("\t")[0].strip()
        named = "" if path == "/dev/null" else name_of(path.partition("/")[2] if path[:2] in ("a/", "b/") else path)
        if line.startswith("--- "):
            self.end_file()
            self.file = named
        elif line.startswith("+++ "):
            self.file = self.file or named
        elif match := _MOVED.match(line):
            self.blocks.append(Block(name_of(match[1] or match[2]), at_import=True))
        elif match := _HUNK.match(line):
            self.number, self.old, self.new = int(match[1]), int(match[2] or 1), int(match[3] or 1)
            self.number += self.old == 0  # without lines of the old side it is the line before
            self.is_replacement = False

    def read_change(self, line: str) -> None:
        if line.startswith("\\"):  # No newline at end of file
            return
        text, is_python = line[1:], self.file.endswith(".py")
        is_code = not _COMMENT.fullmatch(text) if is_python else bool(text.strip())
        if line[:1] in ("-", "+") and is_code and is_python and _AT_IMPORT.match(text):
            self.imports.add(self.number)
        elif line.startswith("-") and is_code:
            self.lines.add(self.number)
        elif line.startswith("+") and is_code and not self.is_replacement:
            self.lines |= {self.number - 1, self.number}
        if line.startswith("-"):
            self.is_replacement = self.is_replacement or is_code
        elif not line.startswith("+"):
            self.is_replacement = False
        self.new -= line[:1] != "-"
        if line[:1] != "+":
            self.number, self.old = self.number + 1, self.old - 1


def _blocks(file: str, lines: Iterable[int]) -> Iterator[Block]:
    block: list[int] = []
    for line in sorted(number for number in {*lines} if 0 < number <= LAST):
        if block and file and line > block[-1] + 1:
            yield Block(file, tuple(block))
            block = []
        block.append(line)
    if block and file:
        yield Block(file, tuple(block))


def read_place(text: str) -> list[Block]:
    """Return the lines of ``FILE:120-140,200``; of a file alone one block without lines."""
    match = _PLACE.fullmatch(text)
    if not match:
        return [Block(name_of(text))]
    numbers: set[int] = set()
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        numbers |= {*range(int(first), min(int(last or first), LAST) + 1)}
    return [*_blocks(name_of(match[1]), numbers)]


def name_of(path: str) -> str:
    """Return a file as the map names it: ``torch/_inductor/ir.py`` of a checkout is ``_inductor/ir.py``."""
    parts = [part for part in path.strip().split("/") if part not in ("", ".")]
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "torch" and parts[place + 1] in TORCH:
            return "/".join(parts[place + 1 :])
    return "/".join(parts)
