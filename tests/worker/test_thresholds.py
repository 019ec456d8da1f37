"""The judge decides by numbers of one table, and ``docs/judging.md`` shows it, with the label of each verdict."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest

from runner.contract import oracles
from runner.record.events import FORWARD_ALONE
from runner.session.variant_run import ORDER_DEPENDENT
from runner.worker import thresholds
from runner.worker.rerun.agreement import VARIES
from runner.worker.thresholds import Threshold

ROOT = Path(__file__).resolve().parents[2]
ROWS = {name: row for name, row in vars(thresholds).items() if isinstance(row, Threshold)}

SIZES = {"_SHOWN", "PIECE", "SWEEP", "_SWEEP", "_MOST", "SECOND_SEED", "FIRST_MOVED", "UNIT", "_BITS", "_PARTS"}
"""Numbers that decide nothing: how much is done in one piece, seeds and draws, a fact about float32, what is written out."""


def written(value: float) -> str:
    """Return a number as the page has it: a power of two where it is a large or a small one."""
    power = math.log2(value)
    return f"2^{int(power)}" if power.is_integer() and not 0.1 < value < 1000 else f"{value:g}"


def items() -> list[str]:
    return [f"* `{name}`: {written(row.value)} {row.unit}" for name, row in ROWS.items()]


def test_the_page_has_each_of_them() -> None:
    page = (ROOT / "docs" / "judging.md").read_text(encoding="utf-8")
    part = page[page.index("\n## Thresholds") :].split("\n## ")[1]
    assert [line for line in part.split("\n") if line.startswith("*")] == items(), "\n".join(items())


LABELS = (
    *(oracles.NEARER, oracles.NOISE, oracles.ROUNDING, oracles.OVERFLOWED, oracles.UNSPECIFIED, oracles.UNCOMPARED),
    *(VARIES, ORDER_DEPENDENT, FORWARD_ALONE, "slow"),
)


@pytest.mark.parametrize("label", LABELS)
def test_the_page_has_each_label_of_a_verdict(label: str) -> None:
    assert f"`{label}`" in (ROOT / "docs" / "judging.md").read_text(encoding="utf-8")


WORKER = ROOT / "runner" / "worker"
PACKAGES = ("judge", "comparison", "rerun", "rounding", "operators", "run")
MODULES = [WORKER / "tensors.py", *(path for name in PACKAGES for path in sorted((WORKER / name).glob("*.py")))]


def numbers(tree: ast.Module) -> set[str]:
    """Return the names of a module that it assigns numbers to."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and re.fullmatch(r"[-+*/<>().\d\se]+", ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_other_module_has_a_number_of_its_own(path: Path) -> None:
    assert numbers(ast.parse(path.read_text(encoding="utf-8"))) <= SIZES


def test_a_number_in_another_module_is_seen() -> None:
    assert numbers(ast.parse("NEAR = 2.0**-10\nFAR = 1 << 20\nNAME = 'x'\nMOST = OTHER")) == {"NEAR", "FAR"}


@pytest.mark.parametrize("name", ROWS)
def test_each_is_read(name: str) -> None:
    assert any(f"thresholds.{name}" in path.read_text(encoding="utf-8") for path in MODULES)
