"""Sets of lines of source files. A worker records the lines of the compiler that it reached, control counts and joins
them.

As text the lines of one file are ``line _inductor/ir.py:10-14,20``: a compilation reaches some ten thousand lines of a
hundred files. Such a text may come from a stranger's log. So the numbers are bounded, the names of files, and how many
files a set has.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

KIND = "line"
TORCH = (
    "_decomp", "_dynamo", "_functorch", "_inductor", "_prims", "_prims_common", "_refs", "_subclasses", "fx",
)  # fmt: skip
"""Folders of torch whose lines are recorded. A name without one of them is of a backend's own package."""
LAST = (1 << 16) - 1
"""The last line of a file that counts. torch 2.13.0 has none of more than 12,000 in these folders."""
FILES = 4000
"""Files of a set, at most: torch 2.13.0 has 655."""

_TEXT = re.compile(rf"{KIND} ([^:\n]{{1,300}}):(\d{{1,5}}(?:-\d{{1,5}})?(?:,\d{{1,5}}(?:-\d{{1,5}})?)*)")


class Lines:
    """Lines of files: by file a number whose bits are the lines."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Take up the texts that are lines; others are passed over."""
        self._bits: dict[str, int] = {}
        for text in texts:
            self._join(*_parse(text))

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same lines."""
        return isinstance(other, Lines) and self._bits == other._bits

    def __len__(self) -> int:
        """Return how many lines there are."""
        return sum(bits.bit_count() for bits in self._bits.values())

    def __iter__(self) -> Iterator[str]:
        """Yield ``_inductor/ir.py:10`` for each line."""
        for file, bits in sorted(self._bits.items()):
            yield from (f"{file}:{number}" for number in _numbers(bits))

    def holds(self, file: str, number: int) -> bool:
        """Return whether a line is one of them."""
        return bool(self._bits.get(file, 0) >> number & 1)

    def of_files(self, chosen: Callable[[str], bool]) -> Lines:
        """Return the lines of the files whose names are chosen."""
        part = Lines()
        part._bits = {file: bits for file, bits in self._bits.items() if chosen(file)}
        return part

    def bits(self) -> Mapping[str, int]:
        """Return by file a number whose bits are the lines."""
        return self._bits

    def update(self, other: Lines) -> None:
        """Take up other lines too."""
        for file, bits in other._bits.items():
            self._join(file, bits)

    def __sub__(self, other: Lines) -> Lines:
        """Return the lines that the other has not."""
        difference = Lines()
        difference._bits = {
            file: rest for file, bits in self._bits.items() if (rest := bits & ~other._bits.get(file, 0))
        }
        return difference

    def texts(self) -> list[str]:
        """Return a text for each file."""
        return [f"{KIND} {file}:{_ranges(_numbers(bits))}" for file, bits in sorted(self._bits.items())]

    def _join(self, file: str, bits: int) -> None:
        if bits and (file in self._bits or len(self._bits) < FILES):
            self._bits[file] = self._bits.get(file, 0) | bits


def text_of(file: str, numbers: Iterable[int]) -> str:
    """Return the text of lines of one file."""
    return f"{KIND} {file}:{_ranges(sorted({*numbers}))}"


def is_text(name: str) -> bool:
    """Return whether a name, as a record has it, is of lines."""
    return name.startswith(f"{KIND} ")


@functools.lru_cache(maxsize=1 << 15)  # the variants of a run share nine texts of ten
def _parse(text: str) -> tuple[str, int]:
    """Return the file and the lines that a text names. A text of another kind names none."""
    match = _TEXT.fullmatch(text)
    return (match[1], _bits_of(match[2])) if match else ("", 0)


def _bits_of(ranges: str) -> int:
    bits = 0
    for text in ranges.split(","):
        first, _, last = text.partition("-")
        begin, end = int(first), min(int(last or first), LAST)
        if begin <= end:
            bits |= (1 << end + 1) - (1 << begin)
    return bits


def _numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _ranges(numbers: Iterable[int]) -> str:
    ranges = []
    for _, group in itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0]):
        run = [number for _, number in group]
        ranges.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(ranges)
