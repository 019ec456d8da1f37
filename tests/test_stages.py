"""Which test files a stage of ``make test`` looks into: all that have a test of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import NIGHTLY, REST, is_of_gate, lacks, runs_at_night

HERE = Path(__file__).parent


def test_the_stages_are_those_of_the_makefile() -> None:
    makefile = (HERE.parent / "Makefile").read_text(encoding="utf-8")
    assert "$(PYTEST) -m gate tests\n" in makefile and f'$(PYTEST) -m "{REST}" tests\n' in makefile


@pytest.mark.parametrize("name", NIGHTLY)
def test_what_is_left_to_the_night_is_there(name: str) -> None:
    file, *places = name.split("::")
    text = (HERE / file).read_text(encoding="utf-8")
    assert all(re.search(rf"^ *(?:class|def) {place}\b", text, re.MULTILINE) for place in places)


def test_of_a_sweep_the_first_of_every_few_runs_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conftest.NIGHTLY", {"a/test_a.py": 3, "a/test_a.py::test_long": 0})
    assert [count for count in range(7) if not runs_at_night("a/test_a.py::test_short", count)] == [0, 3, 6]
    assert runs_at_night("a/test_a.py::test_long", 0) and not runs_at_night("a/test_b.py::test_long", 1)


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
