"""Mutants are drawn by a seed on reached lines alone, and a larger draw begins with a smaller one."""

from __future__ import annotations

from runner.contract.lines import Lines
from runner.contract.mutant import digest_of
from runner.mutants.draw import draw

SOURCE = b"def f(a, b):\n    c = a + b\n    d = a < b\n    return c * d\n\n\ndef g(a):\n    return a - 1\n"
REACHED = Lines(["line _inductor/a.py:2-4", "line _inductor/gone.py:1"])


def read(file: str) -> bytes | None:
    return SOURCE if file.endswith("a.py") else None


def test_each_mutant_is_on_a_reached_line_of_its_own() -> None:
    mutants = draw(REACHED, read, 10, 0)
    assert sorted(each.line for each in mutants) == [2, 3, 4]
    assert {each.digest for each in mutants} == {digest_of(SOURCE)}
    assert len({each.id for each in mutants}) == 3


def test_a_larger_draw_begins_with_a_smaller_one() -> None:
    assert draw(REACHED, read, 2, 5) == draw(REACHED, read, 3, 5)[:2]


def test_the_seed_decides() -> None:
    assert draw(REACHED, read, 3, 1) == draw(REACHED, read, 3, 1)
    assert len({tuple(each.id for each in draw(REACHED, read, 1, seed)) for seed in range(20)}) > 3


def test_a_file_of_a_newer_python_has_no_mutants() -> None:
    assert draw(Lines(["line a.py:1"]), lambda file: b"def f(:\n", 3, 0) == []
