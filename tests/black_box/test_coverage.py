"""``runner coverage`` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from .driver import REPOSITORY, run_in, write

pytest.importorskip("torch")
pytest.importorskip("numpy")

CASES = """\
cases:
  - name: doubled
    inputs: {x: {shape: [0, 3], requires_grad: true}}
    chain: [{operator.mul: [2, $x]}]
    grad: backward
  - name: relu
    inputs: {x: [1, 3]}
    chain: [F.relu]
    tags: [other]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("coverage")
    write(place, {"a.spec.yaml": CASES, "bad.spec.yaml": CASES.replace("F.relu", "F.rellu")})
    return place


def test_it_prints_tables_and_writes_json(folder: Path) -> None:
    result = run_in(folder, "coverage", "a.spec.yaml", "--json", "a.json")
    assert result.code == 0, result.text
    assert result.out.startswith("2 cases, 2 variants without their backends\n")
    rows = [line.split() for line in result.out.split("\n")]
    assert [row[5] for row in rows if row[:2] == ["names", "of"] and "database" in row] == ["3"]  # mul, __rmul__, relu
    assert ["empty", "1"] in rows and ["backward", "1"] in rows
    document = json.loads((folder / "a.json").read_text())
    schema = json.loads((REPOSITORY / "schema" / "coverage.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(document)
    assert document["database"]["names"]["covered"] == ["__rmul__", "mul", "nn.functional.relu"]
    assert document["database"]["backward"]["covered"] == ["__rmul__", "mul"]


def test_it_lists_what_is_missing_of_a_selection(folder: Path) -> None:
    result = run_in(folder, "coverage", "a.spec.yaml", "-k", "tag:other", "--missing")
    assert result.code == 0, result.text
    lines = result.out.split("\n")
    assert "mul: not exercised" in lines and "jiterator_unary: cannot be written in a case" in lines
    assert any(line.startswith("nn.functional.relu: without bfloat16") for line in lines)


def test_what_a_run_reached_is_held_against_the_compiler_s_tables(folder: Path) -> None:
    result = run_in(
        folder, "run", "a.spec.yaml", "-k", "tag:other", "--backend", "aot_eager_decomp_partition", "--coverage"
    )
    assert result.code == 0, result.text
    covered = run_in(folder, "coverage", "a.spec.yaml", "--run", "latest", "--json", "reached.json")
    assert covered.code == 0, covered.text
    document = json.loads((folder / "reached.json").read_text())
    assert document["constructs"]["C++ parallel loop"] == 0, "nothing generates code"
    compiler = document["compiler"]
    assert compiler["operator"] == {"covered": ["aten.relu"], "missing": []}
    assert compiler["lowering"]["covered"] == [] and "aten.relu" in compiler["lowering"]["missing"]
    [row] = [line.split() for line in covered.out.split("\n") if line.startswith("lowerings")]
    assert row[1:] == ["0", str(len(compiler["lowering"]["missing"])), "0.0%"]
    assert "line" not in compiler, "--coverage counts no lines"


def test_a_run_without_coverage_is_refused(stand_in_here: None, folder: Path) -> None:
    plain = run_in(folder, "run", "a.spec.yaml", "-k", "tag:other", "--backend", "eager")
    assert plain.code == 0, plain.text
    refused = run_in(folder, "coverage", "a.spec.yaml", "--run", "latest")
    assert refused.code == 4 and "runner run --coverage records it" in refused.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("a.spec.yaml", "-k", "nothing"), 5, "nothing selected"),
        (("bad.spec.yaml",), 4, "did you mean 'F.relu'"),
        (("none.spec.yaml",), 4, "no such file"),
        (("a.spec.yaml", "--python", "x", "--python", "y"), 4, "--python: one Python has the operator database"),
        (("a.spec.yaml", "--json", "a.spec.yaml"), 4, "this command reads that file"),
    ],
)
def test_what_has_no_coverage_is_refused(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    result = run_in(folder, "coverage", *words)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


def test_lines_of_the_compiler_are_counted_on_request(folder: Path) -> None:
    run = run_in(folder, "run", "a.spec.yaml", "-k", "tag:other", "--backend", "aot_eager", "--coverage-lines")
    assert run.code == 0, run.text
    covered = run_in(folder, "coverage", "a.spec.yaml", "--run", "latest", "--missing", "--json", "lines.json")
    assert covered.code == 0, covered.text
    part = json.loads((folder / "lines.json").read_text())["compiler"]["line"]
    assert len([line for line in part["covered"] if line.startswith("_functorch/")]) > 500, "aot_eager runs AOTAutograd"
    assert len(part["missing"]) > 10 * len(part["covered"]), "and nothing of Inductor's lowerings"
    assert "\nline _inductor/scheduler.py:" in covered.out
    assert "lowering aten.relu: not reached" in covered.out.split("\n")
