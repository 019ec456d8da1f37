"""The operators of ``specs/operators``: what they reach of torch's own database, and that no case repeats another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from runner.builder.source import build
from runner.cases.model import Variant
from runner.session.collect import Loaded, load
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "specs" / "operators"
SUITE = REPOSITORY / "suites" / "operators.suite.yaml"

DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64", "int64", "int32", "bool")
LINES = 400


@cache
def folder() -> Loaded:
    """Every variant of the folder."""
    return load([str(FOLDER)], everything=True)


@cache
def supported() -> Mapping[str, set[str]]:
    """The names of torch's database, each with the dtypes that it takes on the CPU."""
    database = script_module("draft_operators").database()
    return {
        name: {str(kind).removeprefix("torch.") for entry in entries for kind in entry.supported_dtypes("cpu")}
        for name, entries in database.items()
    }


def reached(variants: list[Variant]) -> Mapping[str, bool]:
    """Whether the variants reach each name of the database."""
    operators = script_module("draft_operators").operators_of(variants)
    answer: Mapping[str, bool] = script_module("operator_families").reached(supported(), operators)
    return answer


def test_every_case_is_read_and_built() -> None:
    loaded = folder()
    assert not loaded.diagnostics
    assert all(not build(variant).diagnostics for variant in loaded.variants)


def test_the_suite_holds_every_case_and_is_kept_out_of_its_folder() -> None:
    [suite] = load([str(SUITE)]).suites
    assert suite.manual
    assert {case.name for case in suite.cases} == {variant.case.name for variant in folder().variants}


@pytest.mark.slow
def test_the_cases_reach_nearly_every_name_of_the_database() -> None:
    answer = reached(list(folder().variants))
    missing = sorted(name for name, is_reached in answer.items() if not is_reached)
    assert len(missing) <= 0.05 * len(answer), missing


@pytest.mark.slow
def test_nearly_every_dtype_of_a_name_is_reached() -> None:
    by_dtype = defaultdict(list)
    for variant in folder().variants:
        by_dtype[variant.dtype].append(variant)
    pairs = {
        (name, dtype): is_reached
        for dtype in DTYPES
        for name, is_reached in reached(by_dtype[dtype]).items()
        if dtype in supported()[name]
    }
    missing = sorted(pair for pair, is_reached in pairs.items() if not is_reached)
    assert len(missing) <= 0.05 * len(pairs), missing


def test_a_name_is_reached_by_its_own_operator_alone() -> None:
    of = script_module("operator_families").reached
    assert of(["sin", "cos"], [("torch.sin", False)]) == {"sin": True, "cos": False}
    assert of(["__radd__", "add"], [("operator.add", False)]) == {"__radd__": False, "add": False}
    assert of(["__radd__"], [("operator.add", True)]) == {"__radd__": True}


def test_no_two_cases_are_alike() -> None:
    cases = {(variant.case.file, variant.case.name): variant for variant in folder().variants if variant.dtype}
    sources = Counter(build(replace(variant, dtype="float32")).text for variant in cases.values())
    assert [text for text, count in sources.items() if count > 1] == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.spec.yaml")), ids=lambda path: path.stem)
def test_a_file_stays_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES


def test_the_tier_core_has_a_call_for_each_argument_and_the_kinds_are_in_operators_alone() -> None:
    core = {variant.case.name for variant in load([str(SUITE.with_name("core.suite.yaml"))]).variants}
    calls = {
        variant.case.name: set(variant.case.tags) for variant in folder().variants if "arguments" in variant.case.tags
    }
    assert {name for name in calls if name in core} == {name for name, tags in calls.items() if "kinds" not in tags}
    assert {variant.dtype for variant in folder().variants if variant.case.name in calls} == {"float32"}


def test_the_tier_core_tells_the_two_approximations_of_gelu_apart() -> None:
    texts = [
        build(each).text
        for each in load([str(SUITE.with_name("core.suite.yaml"))]).variants
        if "gelu" in each.case.name or "arguments" in each.case.tags
    ]
    assert any('F.gelu(x, approximate="tanh")' in text for text in texts)


def test_the_shapes_that_matter_are_there() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.spec.yaml"))
    for part in (
        "shape: [0, 3]",
        "shape: []",
        "shape: [1]",
        "[3, 37]",
        "[2, 3, 2, 3, 2]",
        "channels_last",
        "Tensor.t",
        "Tensor.expand",
        "init: special",
    ):
        assert part in text, part
