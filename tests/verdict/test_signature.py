"""When two failures count as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.contract.finding import Finding
from runner.verdict.signature import (
    FailureSignature,
    assess,
    id_of,
    main_signature,
    result_signature,
    shows,
    signature_of,
)
from tests.handmade import finding
from tests.report.events_sample import failure, finished

LOWERING = FailureSignature("compile-error", "inductor", "LoweringException", "no lowering for N")


def test_a_signature_matches_itself() -> None:
    assert LOWERING.matches(replace(LOWERING))


@pytest.mark.parametrize("change", [{"oracle": "runtime-error"}, {"error": "TypeError"}, {"pattern": "no lowering"}])
def test_oracle_exception_and_message_count(change: dict[str, str]) -> None:
    assert not LOWERING.matches(replace(LOWERING, **change))  # type: ignore[arg-type]


def test_the_stage_counts_where_both_name_one() -> None:
    assert not LOWERING.matches(replace(LOWERING, stage="aot"))
    assert LOWERING.matches(replace(LOWERING, stage=None))
    assert replace(LOWERING, stage=None).matches(LOWERING)


def test_the_message_of_a_wrong_value_does_not_count() -> None:
    assert signature_of(finding(message="3 of 24 differ")) == signature_of(finding(message="all of them differ"))


def test_one_finding_of_several_shows_a_signature() -> None:
    crash = finding("compile-error", "inductor", "LoweringException", message="no lowering for 7")
    assert shows(LOWERING, [finding(), crash])
    assert not shows(LOWERING, [finding()])
    assert not shows(LOWERING, [])


def test_the_main_signature_is_that_of_the_first_by_rank() -> None:
    crash = finding("signal", "inductor")
    assert main_signature([finding(), crash]) == main_signature([crash, finding()])
    assert main_signature([]) is None


# --- results ----------------------------------------------------------------------------------


def raised(message: str = "no", frame: str = "_inductor/ir.py:f", kind: str = "KeyError", **changes: object) -> Finding:
    """A compile error with what the worker says of its origin."""
    error = {
        "type": "InductorError",
        "message": f"{kind}: {message}",
        "origin": {"type": kind, "message": message, "frame": frame},
    }
    return replace(finding("compile-error", message="it raised"), error=error, **changes)  # type: ignore[arg-type]


def text(*findings: Finding, operator: str = "", verdict: str = "FAIL") -> str:
    return result_signature(finished(verdict, findings=findings, operator=operator))


def test_the_parts_of_a_signature() -> None:
    assert text(finding(), operator="torch.sort") == "value of torch.sort at inductor"
    assert text(finding(stage=None)) == "value"
    assert text(raised("list index")) == "compile-error at inductor: KeyError: list index in _inductor/ir.py:f"
    missing = finding("missing-error", message="eager raised ValueError: n must be 3; got 4; compiled returned")
    assert text(missing, operator="F.f") == "missing-error of F.f at inductor: ValueError: n must be N; got N"
    bare = finding("missing-error", message="eager raised ValueError; compiled returned")
    assert text(bare) == "missing-error at inductor: ValueError"


@pytest.mark.parametrize(
    ("message", "variation"),
    [
        ("size (3, 4) at dimension -1", "size (7,) at dimension 0"),
        ("size [], stride []", "size [1, s77], stride [3, 1]"),
        ("expected Float but found Half", "expected Double but found BFloat16"),
        ("expected torch.float32", "expected torch.complex64"),
        ("torch.FloatTensor [5, 8]", "torch.cuda.DoubleTensor [3]"),
        ("type int8_t without overflow", "type int16_t without overflow"),
        ("error: no matching function for \u2018f(int, long)\u2019", "error: no matching function for \u2018f(double)\u2019"),
        ("'arg0_1' in buf12 at 0x7f00", "'x' in buf3 at 0xdeadbeef"),
        ("/root/.cache/a/b.cpp:21, tmp2 < 4L", "/tmp/c/d.cpp:7, tmp15 < 100L"),
        ("first line\nx = 3", "first line\nsomething else"),
    ],
)  # fmt: skip
def test_shapes_dtypes_and_names_do_not_count(message: str, variation: str) -> None:
    assert text(raised(message)) == text(raised(variation)) != text(raised("another message"))


def test_two_bugs_have_two_signatures() -> None:
    texts = [
        text(raised()),
        text(raised(frame="_inductor/scheduler.py:fuse")),
        text(raised(kind="IndexError")),
        text(raised(stage="aot")),
        text(finding()),
        text(finding(stage="aot")),
        text(finding(), operator="torch.sort"),
        text(finding("nonfinite")),
        text(finding("signal", "inductor", "SIGSEGV")),
        text(finding("signal", "inductor", "SIGABRT")),
    ]
    assert len({id_of(message) for message in texts}) == len(texts)


def test_the_compiler_s_own_class_and_the_numbers_of_a_value_do_not_count() -> None:
    older = raised()
    older = replace(older, error={**(older.error or {}), "type": "BackendCompilerFailed"})
    assert text(older) == text(raised())
    assert text(finding(message="3 of 24 differ")) == text(finding(message="all of them differ"))
    assert text(replace(finding(), path="output[3]")) == text(finding())


def test_an_old_log_has_the_outer_exception_alone() -> None:
    old = finding("compile-error", "inductor", "InductorError", message="KeyError: 'buf4'")
    assert text(old) == "compile-error at inductor: InductorError: KeyError: '…'"


def test_the_worst_finding_speaks_and_says_where_it_is_worth_less_than_usual() -> None:
    stride, value = finding("stride"), finding()
    result = assess(failure(findings=(stride, value)))
    assert (result.severity, result.signature) == ("wrong-result", "value at inductor")
    result = assess(failure(findings=(replace(finding("mutation"), severity="metadata"),), operator="torch.t"))
    assert (result.severity, result.signature) == ("metadata", "mutation (metadata) at inductor")
    assert result.signature_id == id_of(result.signature)


def test_an_operator_and_its_form_in_place_are_one_group() -> None:
    texts = {
        assess(failure(findings=(finding(),), operator=name)).signature for name in ("torch.log1p", "Tensor.log1p_")
    }
    assert texts == {"value of torch.log1p at inductor"}


@pytest.mark.parametrize("verdict", ["INVALID", "VACUOUS", "FLAKY", "XPASS"])
def test_a_doubt_speaks_by_its_reason(verdict: str) -> None:
    first = assess(finished(verdict, reason="3 runs disagree: 2 PASS (a.yaml:3:1)", findings=(finding(),)))
    assert first.signature == f"{verdict}: N runs disagree: N PASS (…)"
    assert first.severity == "wrong-result"
    assert result_signature(finished(verdict, reason="5 runs disagree: 1 PASS (b.yaml:9:9)")) == first.signature


def test_green_results_have_one_only_where_something_was_found() -> None:
    for verdict in ("PASS", "SKIP", "NOT-RUN"):
        result = assess(finished(verdict, reason="because"))
        assert (result.severity, result.signature, result.signature_id) == (None, "", "")
    assert text(finding(), verdict="XFAIL") == "value at inductor"
