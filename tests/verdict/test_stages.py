"""The ladder."""

from __future__ import annotations

import pytest

from runner.verdict.stages import LADDER, STAGES, below, contains, in_order, locate, stage_of
from tests.handmade import finding


@pytest.mark.parametrize(
    ("backend", "stage"),
    [
        ("eager", "dynamo"),
        ("aot_eager", "aot"),
        ("aot_eager_decomp_partition", "decomposition"),
        ("inductor", "inductor"),
        ("aot_eager_decomp_partition_crossref", "decomposition"),
        ("cudagraphs", "backend"),
        ("pkg.mod:compile", "backend"),
    ],
)
def test_the_last_stage_of_a_backend(backend: str, stage: str) -> None:
    assert stage_of(backend) == stage


def test_what_is_tried_for_a_failure() -> None:
    assert below("inductor") == [*LADDER[:3]]
    assert below("aot_eager") == [("dynamo", "eager")]
    assert below("eager") == []
    assert below("pkg:mine") == [("dynamo", "eager")]


def test_a_backend_contains_the_stages_below_its_own() -> None:
    assert [stage for stage in STAGES if contains("aot_eager_decomp_partition", stage)] == [
        "dynamo",
        "aot",
        "decomposition",
    ]
    assert contains("pkg:mine", "backend") and contains("pkg:mine", "dynamo")
    assert not contains("pkg:mine", "aot") and not contains("inductor", "backend")


def stages(*located: object) -> list[str | None]:
    return [f.stage for f in located]  # type: ignore[attr-defined]


def test_the_first_stage_that_shows_the_same_kind_of_failure_is_to_blame() -> None:
    by_stage = {"dynamo": [], "aot": [finding("value", None)], "decomposition": [finding("value", None)]}
    assert stages(*locate([finding("value", None)], "inductor", by_stage)) == ["aot"]
    assert stages(*locate([finding("value", None)], "inductor", {"dynamo": [], "aot": []})) == ["inductor"]
    assert stages(*locate([finding("value", None)], "pkg:mine", {"dynamo": []})) == ["backend"]
    assert stages(*locate([finding("value", None)], "eager", {})) == ["dynamo"]


def test_a_wrong_error_and_a_missing_one_are_of_one_kind() -> None:
    by_stage = {"dynamo": [finding("missing-error", None)]}
    assert stages(*locate([finding("error-type", None)], "inductor", by_stage)) == ["dynamo"]
    assert stages(*locate([finding("value", None)], "inductor", by_stage)) == ["inductor"]


def test_each_finding_has_a_stage_of_its_own() -> None:
    by_stage = {"dynamo": [finding("stride", None)], "aot": [finding("grad", None)]}
    findings = [finding("shape", None), finding("grad", None), finding("rng", None)]
    assert stages(*locate(findings, "inductor", by_stage)) == ["dynamo", "aot", "inductor"]


def test_an_earlier_stage_counts_even_if_the_one_after_it_passes() -> None:
    by_stage = {"dynamo": [finding("signal", None)], "aot": []}
    assert stages(*locate([finding("timeout", None)], "inductor", by_stage)) == ["dynamo"]


@pytest.mark.parametrize("backend", ["triton", "triton-compiled"])
def test_a_launched_kernel_has_no_ladder(backend: str) -> None:
    assert (stage_of(backend), below(backend)) == ("backend", [])
    assert contains(backend, "backend") and not any(contains(backend, stage) for stage in STAGES)


def test_a_ladder_goes_from_the_bottom_up_whatever_answered_first() -> None:
    answered = {"inductor": "value", "backend": "ok", "aot": "ok", "dynamo": "ok"}
    assert [*in_order(answered).items()] == [("dynamo", "ok"), ("aot", "ok"), ("inductor", "value"), ("backend", "ok")]
