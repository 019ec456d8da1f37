"""The table in ``docs/troubleshooting.md``: complete, its commands are commands, its tests are tests."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from runner.cli.main import build_parser, resolved_words

from .driver import REPOSITORY, run_in, spec, write

TOOLS = [
    "info logs",
    "debug logs",
    "minifier after Dynamo",
    "minifier after AOTAutograd",
    "accuracy minifier after Dynamo",
    "accuracy minifier after AOTAutograd",
    "explain",
    "record and replay",
    "function filter",
    "Inductor debug logs",
    "Inductor trace",
    "compile times",
    "graph-break finder",
    "recompile profiler",
    "fallback_random",
]
"""The tools of PyTorch's page, in its order."""

COLUMNS = ["tool", "in torch 2.0", "today", "command", "test"]
RANDOM = "torch._inductor.config.fallback_random"


def table() -> list[list[str]]:
    """The first table of the page, cell by cell, without the line of dashes."""
    text = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return [row for row in rows if set(row[0]) - set("- ")]


ROWS = table()[1:]


@cache
def functions_in(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def test_every_tool_has_a_row_that_is_full() -> None:
    assert table()[0] == COLUMNS
    assert [row[0] for row in ROWS] == TOOLS
    assert all(len(row) == len(COLUMNS) and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "_"))
def test_the_command_is_one_and_the_test_is_there(row: list[str]) -> None:
    commands = [code for code in re.findall(r"`([^`]*)`", row[3]) if code.startswith("runner ")]
    assert commands, row
    for command in commands:
        build_parser().parse_args(resolved_words(shlex.split(command)[1:]))
    (named,) = re.findall(r"`(tests/[^`]*)`", row[4])
    path, _, function = named.partition("::")
    name, _, parameter = function.partition("[")
    assert (REPOSITORY / path).is_file(), path
    assert name in functions_in(REPOSITORY / path), named
    if parameter:
        assert f'"{parameter.removesuffix("]")}"' in (REPOSITORY / path).read_text(), named


def test_fallback_random_makes_random_operators_comparable(tmp_path: Path) -> None:
    """Without the flag the numbers differ, and the verdict says what explains that."""
    case = "name: {}\ninputs: {{x: [64, 64]}}\ntrain: true\nconfig: {{{}}}\nchain: [{{F.dropout: [$_, 0.5, true]}}]"
    write(tmp_path, {"a.spec.yaml": spec(case.format("own", f"{RANDOM}: false"), case.format("eagers", ""))})
    result = run_in(tmp_path, "run", "a.spec.yaml", "--backend", "aot_eager_decomp_partition", "-j", 2)
    assert result.code == 0, result.text
    labels = {name: event["labels"] for name, event in result.finished.items()}
    assert [name.partition("[")[0] for name, marks in labels.items() if "explained-by-fallback_random" in marks] == [
        "own"
    ]
