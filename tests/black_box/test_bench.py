"""``runner bench`` as a person runs it: figures that fit together, reasons for what has none, and nothing judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from .driver import KNOWN_ISA, REPOSITORY, Result, run_in, spec, write

CASES = spec(
    "name: quick\ninputs: {x: [8, 8]}\nchain: [F.relu, {operator.mul: [$_, 2]}]",
    "name: wrong\ninputs: {x: [2, 3]}\nchain: [{Tensor.view: [$_, 7]}]",
    "name: elsewhere\ninputs: {x: [2]}\nchain: [F.relu]\nrequires: {torch: '<2'}",
    "name: refused\ninputs: {x: [2]}\nchain: [{operator.mul: [$_, 2]}, {builtin.print: [$_]}]\ncompile: {fullgraph: true}",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench")
    write(path, {"a.spec.yaml": CASES, "broken.spec.yaml": "cases:\n  - name: x\n    chian: [F.relu]\n"})
    return path


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    words = ("a.spec.yaml", "--backend", "aot_eager", "--json", "a.json", "--plot", "a.svg", "-n", 12)
    return run_in(folder, "bench", *words)


@pytest.fixture(scope="module")
def rows(result: Result) -> dict[str, dict[str, Any]]:
    document = json.loads((result.cwd / "a.json").read_text())
    schema = json.loads((REPOSITORY / "schema" / "bench.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(document)
    return {row["id"].partition("::")[2].partition("[")[0]: row for row in document["rows"]}


@pytest.mark.nightly
def test_what_can_be_timed_is(result: Result, rows: dict[str, dict[str, Any]]) -> None:
    assert result.code == 0, result.text
    row = rows["quick"]
    assert row["status"] == "timed" and row["cold"]["seconds"] > 0 and row["warm"]["seconds"] > 0
    assert row["speedup"] == row["eager"]["seconds"]["median"] / row["compiled"]["seconds"]["median"]
    assert row["eager"]["seconds"]["count"] >= 12 and row["graphs"] == 1
    assert row["moved"] == {"bytes": 2 * 8 * 8 * 4, "source": "inputs+outputs"}
    assert row["of_copy"] > 0 and row["threads"] >= 1
    assert "quick[float32,cpu]@aot_eager" in result.out and "geometric mean of 1 variant" in result.out


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("wrong", "eager-error", "eager raised RuntimeError: shape '[7]' is invalid"),
        ("elsewhere", "skip", "needs torch <2"),
        ("refused", "compile-error", "the backend raised Unsupported"),
    ],
)
def test_what_cannot_be_timed_has_a_line_with_the_reason(
    result: Result, rows: dict[str, dict[str, Any]], name: str, status: str, reason: str
) -> None:
    assert rows[name]["status"] == status and reason in rows[name]["reason"]
    line = next(line for line in result.out.split("not timed\n")[1].splitlines() if f"::{name}[" in line)
    assert status in line and reason in line


def test_the_plot_has_a_bar_for_what_was_timed(result: Result, rows: dict[str, dict[str, Any]]) -> None:
    root = ElementTree.parse(result.cwd / "a.svg").getroot()
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    bars = [element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("class") != "paper"]
    assert len(bars) == 1 and sum("not timed" in text for text in texts) == 3
    assert any(text.startswith(f"{rows['quick']['speedup']:.2f} (") for text in texts)


@pytest.mark.nightly
def test_inductor_finds_in_the_full_cache_what_it_missed_in_the_empty_one(folder: Path) -> None:
    result = run_in(folder, "bench", "a.spec.yaml::quick", "--backend", "inductor", "--json", "-", env=KNOWN_ISA)
    assert result.code == 0, result.text
    (row,) = json.loads(result.out)["rows"]  # nothing else is on standard output
    assert row["cold"]["caches"]["graph_misses"] == 1 and row["cold"]["caches"]["graph_hits"] == 0
    assert row["warm"]["caches"]["graph_misses"] == 0 and row["warm"]["caches"]["graph_hits"] == 1
    assert row["generated"] == 1 and row["moved"] == {"bytes": 2 * 8 * 8 * 4, "source": "inductor"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a.spec.yaml", "-k", "nobody"], 5, "nothing selected"),
        (["a.spec.yaml", "--plot", "a.png"], 4, "ends in .svg or .html"),
        (["a.spec.yaml", "--json", "no/a.json"], 4, "--json no/a.json: there is no folder"),
        (["a.spec.yaml", "-n", "0"], 4, "no whole number from 1"),
        (["a.spec.yaml", "-j", "2"], 4, "unrecognized arguments: -j"),
        (["broken.spec.yaml"], 4, "broken.spec.yaml:3:5"),
        (["missing.spec.yaml"], 4, "missing.spec.yaml"),
        (["a.spec.yaml::elsewhere", "--backend", "eager"], 5, "needs torch <2"),
    ],
)
def test_exit_codes_say_whether_anything_was_timed(folder: Path, words: list[str], code: int, message: str) -> None:
    result = run_in(folder, "bench", *words)
    assert result.code == code and message in result.text
