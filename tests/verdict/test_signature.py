"""When two failures count as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.verdict.signature import FailureSignature, main_signature, shows, signature_of
from tests.handmade import finding

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
