"""Which test files a stage of ``make test`` looks into: all that have a test of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import REST, is_of_gate, lacks

HERE = Path(__file__).parent


def test_the_stages_are_those_of_the_makefile() -> None:
    makefile = (HERE.parent / "Makefile").read_text(encoding="utf-8")
    assert "$(PYTEST) -m gate tests\n" in makefile and f'$(PYTEST) -m "{REST}" tests\n' in makefile


def test_each_file_is_looked_into_by_a_stage() -> None:
    for file in HERE.rglob("test_*.py"):
        place, text = file.relative_to(HERE).as_posix(), file.read_text(encoding="utf-8")
        assert lacks(place, text, "gate") is not is_of_gate(place)
        assert not (lacks(place, text, "gate") and lacks(place, text, REST)), place


@pytest.mark.parametrize(
    ("place", "text", "expression", "expected"),
    [
        ("cases/test_a.py", "", "gate", False),
        ("cases/test_a.py", "", REST, True),
        ("cases/test_a.py", "@pytest.mark.slow\n", REST, False),
        ("cases/test_a.py", "marks=pytest.mark.nightly", REST, False),
        ("diagnose/test_repro.py", "", "gate", True),
        ("diagnose/test_repro.py", "", REST, False),
        ("worker/program/test_a.py", "", "gate", True),
        ("worker/program/test_a.py", "", REST, False),
        ("worker/program/test_a.py", "", "nightly", False),
        ("cases/test_a.py", "", "nightly", False),
        ("worker/program/test_a.py", "", "", False),
    ],
)
def test_a_file_without_tests_of_a_stage_is_left_out(place: str, text: str, expression: str, expected: bool) -> None:
    assert lacks(place, text, expression) is expected
