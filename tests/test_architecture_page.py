"""``docs/architecture.md`` names the packages in the order that the test of the layers holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_layers import FLOORS, LAYERS, MODULES

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")


def first_cells(table: str) -> list[str]:
    """Return the first cell of each row of the table whose head is ``table``."""
    lines = PAGE[PAGE.index(table) :].split("\n")[2:]
    end = next(place for place, line in enumerate(lines) if not line.startswith("|"))
    return [line.split(" | ")[0] for line in lines[:end]]


def test_the_packages_stand_in_the_order_of_the_layers() -> None:
    *rows, ground = [re.findall(r"`(\w+)`", cell) for cell in first_cells("| packages, from the top |")]
    packages = {path.parent.name for path in (REPOSITORY / "runner").glob("*/__init__.py")}
    assert [{*row} for row in rows] == [{*names} for names in LAYERS if packages.intersection(names)]
    assert {*ground} == {name for names in LAYERS for name in names} - packages


HEAD = "| packages of the worker, from the top |"


def test_the_packages_of_the_worker_stand_in_the_order_of_the_floors() -> None:
    rows = [re.findall(r"`(\w+)`", cell) for cell in first_cells(HEAD)]
    assert [{*row} for row in rows] == [{*names} for names in FLOORS]


@pytest.mark.parametrize(("path", "name"), re.findall(r"`(\w+/\w+)\.py`: `(\w+)`", PAGE[PAGE.index(HEAD) :]))
def test_every_entrance_of_the_worker_is_there(path: str, name: str) -> None:
    tree = MODULES[f"runner.worker.{path.replace('/', '.')}"]
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert name in names


def test_every_place_that_the_page_names_is_there() -> None:
    places = [word for cell in first_cells("| change | place |") for word in re.findall(r"`([\w./]+)`", cell)]
    rows = [line.split(" | ")[1] for line in PAGE.split("\n") if line.startswith("| a ") and " | " in line]
    places += [word for row in rows for word in re.findall(r"`([\w./-]+)`", row)]
    roots = (REPOSITORY, REPOSITORY / "runner")
    assert [place for place in places if not any((root / place).exists() for root in roots)] == []
    assert len(places) > 10
