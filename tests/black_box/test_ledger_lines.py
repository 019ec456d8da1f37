"""The shipped ledger: taking a line out, or putting a false one in, turns the run red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .driver import Result

SPEC = Path(__file__).parents[2] / "specs" / "seeds" / "backends.spec.yaml"
ENTRY = "    known:\n      - {backend: toy, stage: backend"
FALSE = '    known:\n      - {stage: dynamo, oracle: [value], reason: "there is no such bug"}\n'


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The toy backend's case and its suite, on their own."""
    (tmp_path / "toy.suite.yaml").write_text(
        "suite: toy\nspecs: [backends.spec.yaml]\nselect: case:relu_between_linears\n"
        'backends: [{name: toy, backend: "runner.worker.planted:toy_compiler"}, eager]\n'
    )
    target = tmp_path / "backends.spec.yaml"
    target.write_text(SPEC.read_text())
    return target


def test_as_shipped_it_is_green(copy: Path, run_runner: Callable[..., Result]) -> None:
    ran = run_runner("run", "toy.suite.yaml")
    assert ran.code == 0 and sorted(e["verdict"] for e in ran.finished.values()) == ["PASS", "XFAIL"]


def test_without_its_line_it_is_red(copy: Path, run_runner: Callable[..., Result]) -> None:
    text = copy.read_text()
    assert ENTRY in text
    copy.write_text(text[: text.index(ENTRY)])
    ran = run_runner("run", "toy.suite.yaml")
    assert ran.code == 1 and sorted(e["verdict"] for e in ran.finished.values()) == ["ERROR", "PASS"]


def test_with_a_false_line_it_is_red(copy: Path, run_runner: Callable[..., Result]) -> None:
    text = copy.read_text()
    copy.write_text(text[: text.index(ENTRY)] + FALSE + text[text.index(ENTRY) + len("    known:\n") :])
    ran = run_runner("run", "toy.suite.yaml")
    assert ran.code == 1 and sorted(e["verdict"] for e in ran.finished.values()) == ["XFAIL", "XPASS"]
