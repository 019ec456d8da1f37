"""The tiers of models, chains, negatives and sizes that change: every file is read, every claim is counted, no two cases are alike."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from runner.builder.source import build
from runner.cases.model import Case, Node, Step, Variant
from runner.session.collect import Loaded, load
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("models", "chains", "negative")
TIERS = (*FOLDERS, "large", "dynamic", "core", "full")
NEEDED = 200
"""Operators of torch's database that have error inputs and must be rejected by a case, at least."""
NO_REASON = re.compile(r"unexplained|^$")


@cache
def suite(name: str) -> Loaded:
    return load([str(REPOSITORY / "suites" / f"{name}.suite.yaml")], allow_python=True)


@cache
def folder(name: str) -> Loaded:
    """All variants of a folder of cases, under the one backend of a spec file that is named itself."""
    return load([str(file) for file in sorted((REPOSITORY / "specs" / name).glob("*.spec.yaml"))], everything=True)


def cases(name: str) -> list[Case]:
    return list({(v.case.file, v.case.name): v.case for v in folder(name).variants}.values())


def ids(loaded: Loaded) -> set[tuple[str, str]]:
    return {(variant.case.file, variant.case.name) for variant in loaded.variants}


@pytest.mark.parametrize("name", TIERS)
def test_a_tier_is_read_and_runs_only_when_it_is_named(name: str) -> None:
    loaded = suite(name)
    assert loaded.diagnostics == () and loaded.remarks == ()
    assert [tier.manual for tier in loaded.suites] == [True]
    ways = {"inductor_dynamic", "inductor_scalar"} if name == "full" else set()
    assert {variant.backend.name for variant in loaded.variants} == {"aot_eager", "inductor", *ways}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_case_of_a_folder_is_in_its_tier(name: str) -> None:
    assert folder(name).diagnostics == ()
    files = {variant.case.file for variant in folder(name).variants}
    assert files == {str(file) for file in (REPOSITORY / "specs" / name).glob("*.spec.yaml")}
    tiers = ids(suite(name)) | (ids(suite("large")) if name == "chains" else set())
    assert tiers == ids(folder(name))


def test_what_needs_much_memory_is_in_the_tier_large_alone() -> None:
    assert ids(suite("large")) and not ids(suite("large")) & (ids(suite("chains")) | ids(suite("dynamic")))


@pytest.mark.parametrize("name", FOLDERS)
def test_cases_whose_sizes_change_are_the_tier_dynamic(name: str) -> None:
    changing = {
        (case.file, case.name)
        for case in cases(name)
        if any(call.params for call in case.calls) or set(case.dynamic) != {None}
    }
    tagged = {(case.file, case.name) for case in cases(name) if "dynamic" in case.tags}
    assert changing <= tagged
    assert tagged == {key for key in ids(suite("dynamic")) if f"/{name}/" in key[0]}


def test_the_page_of_the_suites_has_each_of_them_with_its_number_of_variants() -> None:
    page = (REPOSITORY / "docs" / "suites.md").read_text(encoding="utf-8")
    rows = {name: int(count) for name, count in re.findall(r"(?m)^\| `(\w+)` \| (\d+) \|", page)}
    files = {file.name.removesuffix(".suite.yaml") for file in (REPOSITORY / "suites").glob("*.suite.yaml")}
    assert rows == {name: len(suite(name).variants) for name in sorted(files)}


def test_the_tier_full_has_what_the_tiers_of_the_cpu_have() -> None:
    assert ids(suite("full")) == set().union(
        *(ids(suite(name)) for name in ("smoke", "operators", "chains", "models", "negative"))
    )
    assert {variant.id for variant in suite("core").variants} <= {variant.id for variant in suite("full").variants}


LEFT_OUT = {
    # torch 2.13 cannot trace these operators with symbolic sizes: nothing would be compiled.
    "inductor_dynamic": {"geqrf", "histogram_histogramdd"},
    # What the ledger knows of these is of vectorized code.
    "inductor_scalar": {"acosh_special_values", "remainder_special_values"},
}


@pytest.mark.parametrize("backend", LEFT_OUT)
def test_the_tier_full_runs_the_operators_of_core_in_two_more_ways(backend: str) -> None:
    def of(name: str, backend: str) -> set[str]:
        variants = [variant for variant in suite(name).variants if variant.backend.name == backend]
        return {variant.case.name for variant in variants if "/operators/" in variant.case.file}

    assert of("full", backend) | LEFT_OUT[backend] == of("core", "inductor")
    assert not of("full", backend) & LEFT_OUT[backend]


# --- negatives ---


def steps(chain: tuple[Node, ...]) -> Iterator[Step]:
    return (node for node in chain if isinstance(node, Step))


def test_every_negative_says_what_eager_raises() -> None:
    for case in cases("negative"):
        assert case.expect.raises is not None, case.name


def test_the_negatives_reach_the_operators_of_torchs_database() -> None:
    draft = script_module("draft_negatives")
    operators = {step.operator for case in cases("negative") for step in steps(case.chain)}
    names = {draft.name_of(entry) for entry in draft.entries()}
    rejected = {name for name in names if draft.spelling(name) in operators}
    assert len(rejected) >= NEEDED, sorted(names - rejected)
    assert len({draft.spelling(name) for name in rejected}) >= NEEDED


# --- all ---


def content(variant: Variant) -> tuple[object, ...]:
    """What a variant computes and expects: all but its names, its remarks and its ledger."""
    code = build(variant).text.split('"""', 2)[-1]
    case = variant.case
    calls = tuple(sorted(call.params.items()) for call in case.calls)
    return (
        code,
        variant.grad,
        variant.dynamic,
        variant.autocast,
        case.compile,
        str(case.config),
        str(calls),
        case.expect,
    )


def test_no_two_variants_are_alike() -> None:
    by_content: dict[str, set[str]] = collections.defaultdict(set)
    for name in FOLDERS:
        for variant in folder(name).variants:
            by_content[repr(content(variant))].add(variant.id)
    assert [alike for alike in by_content.values() if len(alike) > 1] == []


def test_a_copy_under_another_name_would_be_noticed() -> None:
    variant = folder("chains").variants[0]
    copy = replace(variant, case=replace(variant.case, name="copy", doc="other words", tags=()))
    assert content(copy) == content(variant)


@pytest.mark.parametrize("name", FOLDERS)
def test_each_entry_of_the_ledger_has_a_reason(name: str) -> None:
    for case in cases(name):
        for entry in case.known:
            assert entry.issue or not NO_REASON.search(entry.reason or ""), f"{case.name}: {entry.reason}"


@pytest.mark.parametrize("name", FOLDERS)
def test_names_are_unique_in_a_tier(name: str) -> None:
    counts = collections.Counter(case.name for case in cases(name))
    assert [case for case, times in counts.items() if times > 1] == []
