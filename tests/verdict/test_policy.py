"""Findings and entries of the ledger in, verdicts out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Known, Variant
from runner.contract.job import Trust
from runner.contract.oracles import ORACLES
from runner.diagnostics import Span
from runner.verdict.policy import Verdict, answering, applies, decide, excuse_wavering, explains, is_crash, ranked
from tests.handmade import finding, loaded, variants, written

HERE = Span("a.spec.yaml", 7, 9)


def known(**values: Any) -> Known:
    return Known(HERE, **{"issue": "https://example.org/1", **values})


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    return variants(tmp_path, "params: {n: [2]}")[0]


def with_ledger(folder: Path, *entries: str, keys: str = "") -> Variant:
    lines = "".join(f"\n  - {entry}" for entry in entries)
    return variants(folder, f"{keys}\nknown:{lines}")[0]


# --- applies ---


@pytest.mark.parametrize(
    ("selectors", "applying"),
    [
        ({}, True),
        ({"backend": ("inductor",)}, True),
        ({"backend": ("aot_eager", "inductor")}, True),
        ({"backend": ("aot_eager",)}, False),
        ({"backend": ("!aot_eager",)}, True),
        ({"backend": ("!inductor", "!aot_eager")}, False),
        ({"backend": ("!aot_eager", "eager")}, False),
        ({"device": ("cpu",)}, True),
        ({"device": ("cuda",)}, False),
        ({"dtype": ("float32", "float16")}, True),
        ({"dtype": ("float16",)}, False),
        ({"platform": (sys.platform,)}, True),
        ({"platform": ("beos",)}, False),
        ({"threads": (2,)}, True),  # what a case runs with that says nothing
        ({"threads": (1,)}, False),
        ({"params": {"n": 2}}, True),
        ({"params": {"n": 5}}, False),
        ({"params": {"m": None}}, False),  # no such param is not a param that is null
        ({"params": {"n": 2}, "dtype": ("float16",)}, False),
        ({"stage": "dynamo"}, True),
        ({"stage": "inductor"}, True),
        ({"stage": "backend"}, False),
    ],
)
def test_an_entry_applies_when_all_that_it_names_matches(
    variant: Variant, selectors: dict[str, Any], applying: bool
) -> None:
    assert applies(known(**selectors), variant, "2.13.0") is applying


@pytest.mark.parametrize(
    ("selectors", "applying"),
    [
        ({"case": ("a",)}, True),
        ({"case": ("b", "?")}, True),
        ({"case": ("A", "a*b", "")}, False),
        ({"case": ("a.spec.yaml::*",)}, True),
        ({"case": ("*::a",)}, True),
        ({"case": ("spec.yaml::a",)}, False),  # whole names of folders and files alone
        ({"case": ("b.spec.yaml::a",)}, False),
        ({"operators": ("F.relu",)}, True),
        ({"operators": ("aten.rel*",)}, True),
        ({"operators": ("F.gelu", "nn.ReLU")}, True),
        ({"operators": ("F.gelu",)}, False),
        ({"operators": ("F.relu",), "case": ("b",)}, False),
    ],
)
def test_an_entry_may_select_cases_by_name_and_by_operators(
    variant: Variant, selectors: dict[str, Any], applying: bool
) -> None:
    assert applies(known(**selectors), variant, "2.13.0") is applying


def test_an_entry_may_pin_the_signature_of_the_whole_failure() -> None:
    entry = known(oracle=("value",), signature="value of F.relu")
    assert explains(entry, finding("value"), ("value of F.relu", "1a2b3c4d"))
    assert not explains(entry, finding("value"), ("value of F.gelu", "1a2b3c4d"))
    assert not explains(entry, finding("value"))
    assert explains(known(signature="1a2b3c4d"), finding("stride"), ("value of F.relu", "1a2b3c4d"))


@pytest.mark.parametrize(
    ("torch", "version", "applying"),
    [
        ("<=2.6", "2.6.0", True),
        ("<=2.6", "2.6.1+cpu", True),
        ("<=2.6", "2.7.0", False),
        ("<=2.13", "2.13.1", True),
        ("<=2.13", "2.14.0.dev20260101+cpu", False),
        (">=2.7,<2.9", "2.8.0", True),
        (">=2.7,<2.9", "2.9.0", False),
        ("==2.13", "2.13.0+cu126", True),
        ("!=2.13", "2.13.0", False),
        ("<=2.13.0", "2.13.1", False),
    ],
)
def test_ranges_of_torch(variant: Variant, torch: str, version: str, applying: bool) -> None:
    assert applies(known(torch=torch), variant, version) is applying


def test_a_stage_implies_the_backends_that_contain_it(tmp_path: Path) -> None:
    path = tmp_path / "a.suite.yaml"
    variants(tmp_path, "")
    path.write_text(
        "suite: s\nspecs: [a.spec.yaml]\nbackends: [eager, aot_eager, inductor, {name: mine, backend: 'pkg:mine'}]\n"
    )
    from tests.handmade import loaded

    suite_variants = loaded(path, allow_python=True).variants
    stages = ("dynamo", "aot", "decomposition", "inductor", "backend")
    fit = {v.backend.name: [s for s in stages if applies(known(stage=s), v, "2.13.0")] for v in suite_variants}
    assert fit == {
        "eager": ["dynamo"],
        "aot_eager": ["dynamo", "aot"],
        "inductor": ["dynamo", "aot", "decomposition", "inductor"],
        "mine": ["dynamo", "backend"],
    }
    own = next(v for v in suite_variants if v.backend.name == "mine")
    assert applies(known(backend=("pkg:mine",)), own, "2.13.0") and applies(known(backend=("mine",)), own, "2.13.0")
    assert not applies(known(backend=("!pkg:mine",)), own, "2.13.0")
    assert not applies(known(backend=("!mine",)), own, "2.13.0")


def test_a_device_means_each_of_its_kind(tmp_path: Path) -> None:
    on_cuda = variants(tmp_path, "devices: ['cuda:1']")[0]
    assert applies(known(device=("cuda",)), on_cuda, "2.13.0")
    assert applies(known(device=("cuda:1",)), on_cuda, "2.13.0")
    assert not applies(known(device=("cuda:0",)), on_cuda, "2.13.0")


# --- explains ---


@pytest.mark.parametrize(
    ("pinned", "explaining"),
    [
        ({}, True),
        ({"stage": "inductor"}, True),
        ({"stage": "aot"}, False),
        ({"oracle": ("value", "compile-error")}, True),
        ({"oracle": ("value",)}, False),
        ({"error": "CppCompileError"}, True),  # the wrapper's cause
        ({"error": "^BackendCompilerFailed$"}, False),  # of several lines
        ({"error": "(?m)^BackendCompilerFailed$"}, True),
        ({"error": "no member named"}, True),  # the message
        ({"error": "ValueError"}, False),
        ({"stage": "inductor", "oracle": ("compile-error",), "error": "ValueError"}, False),
    ],
)
def test_what_an_entry_pins_must_be_what_was_found(pinned: dict[str, Any], explaining: bool) -> None:
    failure = finding(
        "compile-error", "inductor", "BackendCompilerFailed", "CppCompileError", message="no member named x"
    )
    assert explains(known(**pinned), failure) is explaining


def test_a_pattern_of_an_entry_cannot_hang() -> None:
    failure = finding("compile-error", "inductor", "Failed", message="a" * 100_000)
    assert not explains(known(error=r"((\w|\W)+)+QQ"), failure)
    assert explains(known(error="a{1000}"), failure)
    long = finding("compile-error", "inductor", "Failed", message="a" * 20_000 + "b")
    assert not explains(known(error="b"), long)  # so far nobody looks


def test_a_pinned_error_needs_one(variant: Variant) -> None:
    assert not explains(known(error="ValueError"), finding("value"))


def test_the_first_entry_that_explains_any_finding_answers() -> None:
    findings = [finding("stride"), finding("value")]
    first, second, third = known(oracle=("grad",)), known(oracle=("value",)), known(oracle=("stride",))
    assert answering([first, second, third], findings) is second
    assert answering([first], findings) is None
    assert answering([first], []) is None


# --- ranked, crashes ---


def test_findings_stand_in_the_order_of_the_gates() -> None:
    findings = [finding(oracle) for oracle in ("later-than-all", "rng", "value", "shape", "missing-error", "signal")]
    assert [f.oracle for f in ranked(findings)] == [
        "signal",
        "missing-error",
        "shape",
        "value",
        "rng",
        "later-than-all",
    ]
    assert len({row.name for row in ORACLES}) == len(ORACLES)


def test_findings_of_one_oracle_keep_their_order() -> None:
    findings = [finding(message=str(n)) for n in range(3)]
    assert [f.message for f in ranked(findings)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("failure", "crash"),
    [
        (finding("signal"), True),
        (finding("timeout"), True),
        (finding("compile-error", "aot", "RuntimeError"), True),
        (finding("missing-error"), False),
        (finding("error-type", "dynamo", "ValueError"), False),
        (finding("error-type", "dynamo", "Unsupported", "IndexError"), True),
        (finding("value"), False),
    ],
)
def test_crashes(failure: Any, crash: bool) -> None:
    assert is_crash(failure) is crash


# --- decide ---


def test_nothing_found_is_a_pass(variant: Variant) -> None:
    assert decide(variant, "2.13.0", [], None) == Verdict("PASS")


def test_a_wrong_answer_fails_and_no_answer_is_an_error(variant: Variant) -> None:
    assert decide(variant, "2.13.0", [finding("value")], None) == Verdict("FAIL", "value at call 0, output: it differs")
    findings = [finding("value"), finding("signal")]
    assert decide(variant, "2.13.0", findings, None).word == "ERROR"  # the gravest speaks


def test_a_failure_as_the_ledger_says(tmp_path: Path) -> None:
    variant = with_ledger(
        tmp_path, '{torch: "<=2.13", stage: inductor, oracle: [value], issue: "https://example.org/1"}'
    )
    verdict = decide(variant, "2.13.0", [finding("value")], None)
    entry = variant.case.known[0]
    assert verdict == Verdict("XFAIL", "https://example.org/1", "https://example.org/1", entry.span)
    assert (entry.span.file, entry.span.line, entry.span.column) == (str(tmp_path / "a.spec.yaml"), 6, 9)


def test_outside_its_range_an_entry_says_nothing(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, '{torch: "<=2.6", oracle: [value], reason: old}')
    assert decide(variant, "2.13.0", [finding("value")], None).word == "FAIL"
    assert decide(variant, "2.13.0", [], None).word == "PASS"
    assert decide(variant, "2.6.0", [finding("value")], None).word == "XFAIL"


def test_a_failure_that_went_away_is_red(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, '{stage: inductor, oracle: [value, grad], error: Bang, reason: "as it is"}')
    verdict = decide(variant, "2.13.0", [], None)
    assert verdict.word == "XPASS"
    assert verdict.reason == "passes, and the ledger says it fails: value or grad at stage inductor with Bang (line 6)"
    assert (verdict.known, verdict.entry) == ("as it is", variant.case.known[0].span)


@pytest.mark.parametrize(
    "failure",
    [
        finding("stride"),
        finding("value", "aot"),
        finding("compile-error", "inductor", "ValueError"),
    ],
)
def test_another_signature_is_red(tmp_path: Path, failure: Any) -> None:
    variant = with_ledger(tmp_path, "{stage: inductor, oracle: [value], reason: known}")
    verdict = decide(variant, "2.13.0", [failure], None)
    assert verdict.word == ("ERROR" if failure.oracle == "compile-error" else "FAIL")
    assert verdict.reason.endswith("; the ledger expects value at stage inductor (line 6)")
    assert verdict.entry == variant.case.known[0].span


def test_any_entry_may_explain(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, "{oracle: [grad], reason: one}", "{oracle: [value], reason: two}")
    verdict = decide(variant, "2.13.0", [finding("value")], None)
    assert (verdict.word, verdict.known, verdict.entry) == ("XFAIL", "two", variant.case.known[1].span)


def test_a_second_failure_beside_a_known_one_is_red(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, "{stage: inductor, oracle: [stride], reason: known}")
    findings = [finding("stride"), finding("value")]
    verdict = decide(variant, "2.13.0", findings, None)
    assert verdict.word == "FAIL"
    assert verdict.reason == "value at call 0, output: it differs; the ledger expects stride at stage inductor (line 6)"
    full_ledger = with_ledger(tmp_path, "{oracle: [stride], reason: one}", "{oracle: [value], reason: two}")
    assert decide(full_ledger, "2.13.0", findings, None).word == "XFAIL"


def test_wavering_is_not_excused_where_a_second_failure_shows(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, SOMETIMES)
    assert excuse_wavering(variant, "2.13.0", [[finding("value"), finding("stride")]]) is None


def test_the_ledger_can_be_left_out(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, "{oracle: [value], reason: known}")
    assert decide(variant, "2.13.0", [finding("value")], None, use_known=False).word == "FAIL"
    assert decide(variant, "2.13.0", [], None, use_known=False) == Verdict("PASS")


@pytest.mark.parametrize("doubt", ["INVALID", "SKIP"])
def test_an_invalid_case_says_nothing_about_a_compiler(tmp_path: Path, doubt: str) -> None:
    variant = with_ledger(tmp_path, "{oracle: [value], reason: known}")
    for findings in ([], [finding("value")]):
        assert decide(variant, "2.13.0", findings, Trust(doubt, "why")) == Verdict(doubt, "why")


@pytest.mark.parametrize("doubt", ["FLAKY", "VACUOUS"])
def test_doubt_comes_after_findings_and_before_an_entry_that_did_not_come_true(tmp_path: Path, doubt: str) -> None:
    variant = with_ledger(tmp_path, "{oracle: [value], reason: known}")
    trust = Trust(doubt, "why")
    assert decide(variant, "2.13.0", [finding("value")], trust).word == "XFAIL"
    assert decide(variant, "2.13.0", [finding("stride")], trust).word == "FAIL"
    assert decide(variant, "2.13.0", [], trust) == Verdict(doubt, "why")


# --- failures that show only now and then ---

SOMETIMES = "{oracle: [value], reason: r, sometimes: true}"


def test_a_pass_is_a_pass_where_the_failure_shows_only_now_and_then(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, SOMETIMES)
    assert decide(variant, "2.13.0", [], None) == Verdict("PASS")
    assert decide(variant, "2.13.0", [finding("value")], None).word == "XFAIL"
    assert decide(variant, "2.13.0", [finding("stride")], None).word == "FAIL"
    assert decide(variant, "2.13.0", [], Trust("VACUOUS", "why")).word == "VACUOUS"


def test_an_entry_beside_it_must_still_come_true(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, SOMETIMES, "{oracle: [stride], reason: always}")
    verdict = decide(variant, "2.13.0", [], None)
    assert (verdict.word, verdict.known) == ("XPASS", "always")


def test_wavering_is_excused_where_each_failure_is_expected(tmp_path: Path) -> None:
    variant = with_ledger(tmp_path, SOMETIMES)
    value_findings, stride_findings = [finding("value")], [finding("stride")]
    verdict = excuse_wavering(variant, "2.13.0", [value_findings, value_findings])
    assert verdict is not None and (verdict.word, verdict.known) == ("XFAIL", "r")
    assert excuse_wavering(variant, "2.13.0", [value_findings, stride_findings]) is None
    assert excuse_wavering(variant, "2.13.0", []) is None
    certain = with_ledger(tmp_path, "{oracle: [value], reason: r}")
    assert excuse_wavering(certain, "2.13.0", [value_findings]) is None


@pytest.mark.parametrize(
    ("keys", "unclaimed", "mode", "word"),
    [
        ("grad: backward", "gradients: true", "forward", "PASS"),
        ("grad: backward", "dynamic: true", "backward", "XPASS"),
        ("grad: [forward, backward]", "gradients: true", "backward", "XPASS"),
        ("grad: backward\n    expect: {raises: ValueError}", "gradients: true", "backward", "XPASS"),
    ],
)
def test_a_forward_alone_refutes_no_entry(tmp_path: Path, keys: str, unclaimed: str, mode: str, word: str) -> None:
    case = f"cases:\n  - name: a\n    inputs: {{x: {{shape: [2], requires_grad: true}}}}\n    chain: [F.relu]\n    known: [{{oracle: [grad], reason: r}}]\n    {keys}\n"
    suite = f"suite: s\nspecs: [a.spec.yaml]\nbackends: [{{name: mine, backend: eager, unclaimed: {{{unclaimed}}}}}]\n"
    written(tmp_path, case)
    *_, variant = loaded(written(tmp_path, suite, "s.suite.yaml")).variants
    assert (variant.grad.mode, variant.forward_alone) == (mode, mode == "forward")
    assert decide(variant, "2.13.0", (), None).word == word
    assert decide(variant, "2.13.0", (finding("grad", "dynamo"),), None).word == "XFAIL"
