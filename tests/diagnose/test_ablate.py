"""Which changed settings are tried for a failure, and what their answers mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runner.cases.model import Variant
from runner.contract.finding import Finding
from runner.contract.record import Trust
from runner.diagnose.diagnosis import Change, ablation_jobs, changes_for, lacks, read_ablation
from runner.diagnose.harness import Answer, VariantEngine
from runner.verdict.signature import FailureSignature
from tests.handmade import environment, finding, variants

VALUE = FailureSignature("value", "inductor")
CRASH = FailureSignature("compile-error", "inductor", "InductorError", "no")
SIMD = "torch._inductor.config.cpp.simdlen"
CHANGE = Change("without vectorization", f"{SIMD} = 1", {SIMD: 1})
PLAIN = "class Model:\n    def forward(self, x):\n        return x\n\n\ndef make_inputs():\n    return torch.randn(3)\n"


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    return variants(tmp_path, "")[0]


@pytest.fixture
def engine(variant: Variant) -> Iterator[VariantEngine]:
    with VariantEngine(variant, environment()) as made:
        yield made


def names(variant: Variant, signature: FailureSignature, source: str = PLAIN) -> set[str]:
    return {change.name for change in changes_for(variant, signature, source)}


def test_a_wrong_value_of_inductor_gets_all_that_may_matter(variant: Variant) -> None:
    assert names(variant, VALUE) == {
        "with eager's roundings", "compiled with -O0", "without vectorization", "without fusion",
        "without pattern matching", "without layout changes", "without buffer reuse", "with dynamic shapes",
        "on one thread", "without gradients", "on cuda",
    }  # fmt: skip


def test_a_compiler_that_raises_is_not_asked_about_rounding_or_what_runs(variant: Variant) -> None:
    left = names(variant, VALUE) - names(variant, CRASH)
    assert left == {"with eager's roundings", "compiled with -O0", "without buffer reuse", "on one thread"}


@pytest.mark.parametrize("stage", ["dynamo", "aot"])
def test_below_inductor_its_flags_are_none_of_the_matter(variant: Variant, stage: str) -> None:
    assert names(variant, FailureSignature("value", stage)) == {"with dynamic shapes", "without gradients", "on cuda"}


def test_random_numbers_are_asked_about_where_the_model_draws_some(variant: Variant) -> None:
    name = "with inductor's own random numbers"
    assert name not in names(variant, VALUE)  # its inputs are drawn, but not by the model
    assert name in names(variant, VALUE, PLAIN.replace("return x", "return F.dropout(x)", 1))


def test_gradients_stay_where_they_are_what_is_wrong(variant: Variant) -> None:
    assert "without gradients" not in names(variant, FailureSignature("grad", "aot"))
    assert "without gradients" in names(variant, FailureSignature("value", "aot"))


def test_what_the_case_has_already_is_not_tried(tmp_path: Path) -> None:
    keys = f"dynamic: true\nthreads: 1\ngrad: off\nconfig: {{{SIMD}: 1}}"
    found = names(variants(tmp_path, keys)[0], VALUE)
    assert "with dynamic shapes" not in found and "without vectorization" not in found
    assert "on one thread" not in found and "without gradients" not in found
    assert {"with static shapes", "on 2 threads"} <= found


def test_changes_reach_the_jobs(engine: VariantEngine) -> None:
    wanted = changes_for(engine.variant, VALUE, PLAIN)
    made = {change.name: job for change, job in zip(wanted, ablation_jobs(engine, wanted), strict=True)}
    assert made["on cuda"] is None  # a torch for the CPU alone
    told = {name: job for name, job in made.items() if job is not None}
    assert told["without vectorization"].config[SIMD] == 1
    assert told["with dynamic shapes"].backend["dynamic"] is True
    assert told["on one thread"].threads == 1 and told["without gradients"].grad["mode"] == "off"
    helper = "torch._inductor.config.cpp_cache_precompile_headers"
    assert told["compiled with -O0"].config[helper] is False
    unaided = ablation_jobs(engine, [change for change in wanted if change.helpers], helpers=False)[0]
    assert unaided is not None and helper not in unaided.config
    assert len({job.key for job in told.values()}) == len(told)


def test_a_gpu_is_asked_where_torch_could_have_one(variant: Variant) -> None:
    with VariantEngine(variant, dataclasses.replace(environment(), build="2.13.0+cu130")) as engine:
        wanted = [change for change in changes_for(variant, VALUE, PLAIN) if change.name == "on cuda"]
        made = ablation_jobs(engine, wanted)[0]
    assert made is not None and made.device == "cuda"


def answer(findings: Sequence[Finding] = (), verdict: str = "", reason: str = "") -> Answer:
    trust = Trust(verdict, reason) if verdict else None
    return Answer(tuple(findings), trust)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (answer([finding("stride", None), finding("value", None)]), "same"),
        (answer([finding("stride", None)]), "other"),
        (answer(), "gone"),
        (answer(verdict="VACUOUS", reason="constant"), "gone"),
        (answer(verdict="INVALID", reason="eager raised"), "no answer"),
        (answer(verdict="FLAKY", reason="two eager runs"), "no answer"),
    ],
)
def test_what_became_of_the_failure(said: Answer, outcome: str) -> None:
    found = read_ablation(VALUE, CHANGE, said)
    assert found is not None and found.outcome == outcome
    assert bool(found.detail) == (outcome != "gone")


def test_the_same_oracle_with_another_error_is_another_failure() -> None:
    said = answer([finding("compile-error", None, "InductorError", message="yes")])
    found = read_ablation(CRASH, CHANGE, said)
    assert found is not None and found.outcome == "other"
    assert (
        read_ablation(CRASH, CHANGE, answer([finding("compile-error", None, "InductorError", message="no")])).outcome
        == "same"
    )  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "reason",
    [f"config: torch 2.6.0+cpu has no flag {SIMD}", f"config: torch 2.6.0+cpu has no torch._inductor.config.cpp (wanted {SIMD})"],
)  # fmt: skip
def test_a_flag_that_this_torch_lacks_is_left_out(reason: str) -> None:
    said = answer(verdict="INVALID", reason=reason)
    assert (
        read_ablation(VALUE, CHANGE, said) is None
        and lacks(said, {SIMD: 1})
        and not lacks(said, {"torch.other.flag": 1})
    )
    assert read_ablation(VALUE, CHANGE, answer(verdict="SKIP", reason="no device cuda here")) is None
