"""A diagnosis as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.contract.finding import Finding
from runner.diagnose.diagnosis import Ablation, Culprit, Diagnosis
from runner.report.diagnosis import blame, render, sentence
from runner.verdict.signature import FailureSignature

VALUE = Finding("value", "3 of 8 elements differ", "output", {"mismatched": 3, "elements": 8}, stage="inductor")
WHOLE = Diagnosis(
    id="a.spec.yaml::relu[float32,cpu]@inductor",
    torch="2.13.0",
    verdict="FAIL",
    reason="value at output: 3 of 8 elements differ",
    signature=FailureSignature("value", "inductor"),
    findings=(VALUE,),
    stages={"dynamo": "ok", "decomposition": "ok", "crossref": "ok", "inductor": "value"},
    culprit=Culprit("inductor", "lowerings", 1, "relu", "aten.relu.default"),
    ablations=(
        Ablation("without vectorization", "simdlen = 1", "same", "value at output"),
        Ablation("without fusion", "torch._inductor.config.a = 1, torch._inductor.config.b = 2", "same"),
        Ablation("on one thread", "threads: 1", "other", "stride at output: differs"),
        Ablation("with dynamic shapes", "dynamic=True", "gone"),
    ),
    seconds=12.34,
)


def test_the_whole_text() -> None:
    run = ["runner", "run", "'a.spec.yaml::relu[float32,cpu]@inductor'", "--seed", "3"]
    assert render(WHOLE, run) == (
        "FAIL a.spec.yaml::relu[float32,cpu]@inductor on torch 2.13.0\n"
        "  value at output: 3 of 8 elements differ\n"
        "  stages    dynamo ok · decomposition ok · crossref ok · inductor value\n"
        "  stage     inductor\n"
        "  signature value at inductor\n"
        "    mismatched 3 of 8 (37.5 %)\n"
        "\n"
        "to blame\n"
        "  inductor, subsystem lowerings, the 2nd application: relu (aten.relu.default)\n"
        "\n"
        "under one changed setting\n"
        "  without vectorization  same       simdlen = 1\n"
        "  without fusion         same       torch._inductor.config.a = 1, b = 2\n"
        "  on one thread          other      threads: 1\n"
        "                         stride at output: differs\n"
        "  with dynamic shapes    gone       dynamic=True\n"
        "\n"
        "go on with\n"
        "  runner reduce 'a.spec.yaml::relu[float32,cpu]@inductor' --seed 3  # the smallest case that fails alike\n"
        "  runner debug 'a.spec.yaml::relu[float32,cpu]@inductor' --seed 3  # a folder with everything the compiler did\n"
        "  runner issue 'a.spec.yaml::relu[float32,cpu]@inductor' --seed 3  # a bug report\n"
        "\n"
        "diagnosed in 12.3s"
    )


def test_of_a_variant_that_passes_it_says_so() -> None:
    passing = replace(WHOLE, verdict="PASS", reason="", signature=None, findings=(), labels=("explained-by-x",))
    lines = render(passing).splitlines()
    assert lines[1:] == ["  it passes: nothing to diagnose", "  explained-by-x"]


def test_an_invalid_case_is_not_the_compilers() -> None:
    invalid = replace(WHOLE, verdict="INVALID", reason="eager raised ValueError", signature=None, findings=())
    assert render(invalid).splitlines()[1:] == ["  nothing to diagnose: eager raised ValueError"]


def test_what_was_raised_is_shown_and_made_safe() -> None:
    error = {"type": "InductorError", "message": "first\x1b[31m line\n" + "more\n" * 20, "chain": ["InductorError"]}
    text = render(replace(WHOLE, findings=(Finding("compile-error", "raised", error=error), VALUE)))
    assert "    raised InductorError: first line\n" in text and "[... 15 more lines]" in text
    assert "\x1b" not in text and "  and 1 more finding\n" in text


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [
        (Culprit("aot_eager"), "backend aot_eager"),
        (Culprit("inductor", "post_grad_passes"), "inductor, subsystem post_grad_passes"),
        (Culprit("inductor", "joint_graph_passes", 0), "inductor, subsystem joint_graph_passes, the 1st application"),
        (
            Culprit(
                "inductor", "lowerings", 2, "relu_1", "aten.relu.default", "relu, the second of two", "net.spec.yaml:14"
            ),
            "inductor, subsystem lowerings, the 3rd application: relu_1 (aten.relu.default), "
            "of the step relu, the second of two, net.spec.yaml:14",
        ),
        (
            Culprit("inductor", "lowerings", 2, "relu", place="net.py:7"),
            "inductor, subsystem lowerings, the 3rd application: relu, of net.py:7",
        ),
        (
            Culprit("inductor", "inductor_emulate_precision_casts", None, "emulate_precision_casts = True"),
            "inductor: it goes away with emulate_precision_casts = True",
        ),
    ],
)
def test_a_culprit_in_words(culprit: Culprit, expected: str) -> None:
    assert sentence(culprit) == expected


def test_without_a_culprit_the_stage_and_the_reason_are_told() -> None:
    assert blame(replace(WHOLE, culprit=None, bisect_note="not asked for")) == "stage inductor; not asked for"
    assert blame(replace(WHOLE, culprit=Culprit("eager"), bisect_note="no parts")) == "backend eager; no parts"
