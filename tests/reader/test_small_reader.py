"""``docs/reading-the-files.md``: a reader that is written from it alone reads the shipped files as ``runner`` does."""

from __future__ import annotations

import ast
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.builder.source import build
from runner.cases.model import Input, Variant
from runner.session.collect import load
from runner.session.plan import _tolerance
from runner.worker.tensors import tolerance_for
from tests.reader import small_reader
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "reading-the-files.md").read_text(encoding="utf-8")
FILES = sorted([*REPOSITORY.glob("specs/**/*.spec.yaml"), *REPOSITORY.glob("suites/*.suite.yaml")])
PLACES = ("output", "output[0]", "output[1]", "output['total'].x", "gradients")

Row = tuple[dict[str, small_reader.Tensor], list[tuple[float, float, bool]]]
"""What is compared of a variant: the tensors of its inputs, and its tolerance at PLACES."""


def plain(item: Input) -> Input:
    """Return an input as it is before its layout, and passed to the model."""
    parts = tuple(map(plain, item.items))
    return replace(item, layout=(), hidden=False, requires_grad=False, grad_after_layout=False, items=parts)


def truth(variant: Variant) -> Row:
    """Return what ``runner show`` prints of a variant, run by torch without memory: inputs before layouts, tolerance."""
    inputs = tuple(plain(item) for item in variant.case.inputs if item.kind != "view")
    case = replace(variant.case, inputs=inputs, calls=())
    tree = ast.parse(build(replace(variant, case=case, device="cpu")).text)
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "make_inputs"]
    namespace: dict[str, Any] = {"torch": torch}
    exec(ast.unparse(function), namespace)
    with torch.device("meta"):
        values = namespace["make_inputs"]()
    assert len(values) == len(inputs)
    tensors = dict(item for place, value in zip(inputs, values, strict=True) for item in named(place.name, value))
    overrides, dtype = _tolerance(variant.case.tolerance, {}), getattr(torch, variant.dtype)
    bounds = [tolerance_for(dtype, overrides, place) for place in PLACES]
    return tensors, [(bound.rtol, bound.atol, bound.exact) for bound in bounds]


def named(name: str, value: Any) -> list[tuple[str, small_reader.Tensor]]:
    """Return the tensors of an input, those of lists and dicts by their places."""
    if isinstance(value, torch.Tensor):
        return [(name, small_reader.Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch.")))]
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [item for place, part in parts for item in named(f"{name}[{place}]", part)]


def row(variant: small_reader.Variant) -> Row:
    """Return what the reader says of a variant."""
    return variant.inputs(), [variant.tolerance(place) for place in PLACES]


def label(name: str) -> str:
    """Return an id without device and backend, on which neither inputs nor tolerance depend."""
    return name.rpartition("@")[0].rpartition(",")[0]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


SPECS = [path for path in FILES if path.name.endswith(".spec.yaml")]
SUITES = [pytest.param(path, marks=pytest.mark.slow) for path in FILES if path not in SPECS]


@pytest.mark.parametrize("path", [*SPECS, *SUITES], ids=lambda path: path.name)
def test_the_ids_of_a_shipped_file_are_those_of_runner_list(path: Path) -> None:
    loaded = load([str(path)], allow_python=True)
    assert [variant.id for variant in loaded.variants] == [variant.id for variant in small_reader.read(path)]


def compare(path: Path) -> int:
    """Compare the inputs and the tolerance of each variant of a file, and return how many were compared."""
    variants = {label(variant.id): variant for variant in load([str(path)], allow_python=True).variants}
    read = {label(variant.id): variant for variant in small_reader.read(path)}
    chains = {name: variant for name, variant in variants.items() if variant.case.module is None}
    assert {name: row(read[name]) for name in chains} == {name: truth(variant) for name, variant in chains.items()}
    return len(chains)


def test_a_part_of_the_shipped_files_has_the_same_shapes_dtypes_and_tolerance() -> None:
    assert sum(compare(path) for path in REPOSITORY.glob("specs/seeds/*.spec.yaml")) >= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name.endswith(".spec.yaml")], ids=lambda path: path.name
)
def test_a_shipped_file_has_the_same_shapes_dtypes_and_tolerance(path: Path) -> None:
    if compare(path) == 0:
        pytest.skip("only models in Python")


def test_the_shipped_files_are_there() -> None:
    assert len(SPECS) >= 130 and len(SUITES) >= 15


def test_the_reader_uses_nothing_of_the_runner() -> None:
    tree = ast.parse((Path(__file__).with_name("small_reader.py")).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names} == {"yaml"}


def test_the_example_of_the_page_is_read_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script_module("format_page").write(script_module("format_page").examples(PAGE), tmp_path)
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"^\$ runner list read.spec.yaml -k dtype:float16\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    variants = small_reader.read(Path("read.spec.yaml"))
    half = [variant for variant in variants if variant.dtype == "float16"]
    assert [variant.id for variant in half] == shown.splitlines()
    assert [variant.id for variant in load(["read.spec.yaml"]).variants] == [variant.id for variant in variants]
    assert compare(Path("read.spec.yaml")) == 12
    last, full = half[-1], next(variant for variant in variants if variant.dtype == "float32")
    assert last.inputs() == {
        "x": small_reader.Tensor((6, 5), "float16"),
        "y": small_reader.Tensor((4,), "float16"),
        "index": small_reader.Tensor((1, 2), "int64"),
    }
    assert last.tolerance() == (0.001, 0.01, False) and full.tolerance() == (0.001, 1e-5, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('x: ["${n * 2}", 5]', 'x: ["${n * 2}", 6]'),
        ("[[0, 1]]", "[[0.0, 1]]"),
        ("atol: 0.01", "atol: 0.02"),
        ("train: [true, false]", "train: [false, true]"),
        ('exclude: [{n: 3, how: "1"}]', "exclude: [{n: 3, how: sum}]"),
    ],
)
def test_a_reader_that_reads_another_thing_is_seen(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader gets another text than the runner: the comparison must see each part of it."""
    script_module("format_page").write(script_module("format_page").examples(PAGE), tmp_path)
    monkeypatch.chdir(tmp_path)
    path = Path("read.spec.yaml")
    variants, text = load([str(path)]).variants, path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    read = small_reader.read(path)
    path.write_text(text, encoding="utf-8")
    assert [(variant.id, row(variant)) for variant in read] != [(variant.id, truth(variant)) for variant in variants]


def test_the_page_has_the_verdicts_and_no_others() -> None:
    schema = json.loads((REPOSITORY / "schema" / "events.schema.json").read_text(encoding="utf-8"))
    section = PAGE.partition("## Verdicts")[2].partition("\n## ")[0]
    assert {*re.findall(r"`([A-Z-]+)`", section)} == {*schema["definitions"]["verdict"]["enum"]}
