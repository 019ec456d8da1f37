"""The self-test's own judgement: what counts as caught, and as quiet."""

from __future__ import annotations

import dataclasses

import pytest

from runner.selftest import BUGS, SPEC, Planted, Result, judge, table, variants
from tests.report.events_sample import finished

PLANTED = Planted("scaled", "gradient", "some:backend", ("grad",))


def result(
    verdict: str = "FAIL", oracles: tuple[str, ...] = ("grad",), stage: str | None = "backend", twin: str = "PASS"
) -> Result:
    outcome = finished(verdict=verdict, oracles=oracles, stage=stage)
    return Result(PLANTED, outcome, finished(verdict=twin))


def test_a_failure_under_the_right_word_at_the_right_stage_is_caught() -> None:
    assert result().caught and result("ERROR").caught and result(oracles=("stride", "grad")).caught


@pytest.mark.parametrize(
    "missed",
    [
        result("PASS", (), None),
        result(oracles=("value",)),
        result(stage="dynamo"),
        result("INVALID", (), None),
        result("FLAKY"),
        result("XFAIL"),
    ],
)
def test_anything_else_is_missed(missed: Result) -> None:
    assert not missed.caught
    assert "MISSED" in table([missed]) and "0 of 1 caught" in table([missed])


def test_a_twin_that_is_not_quiet_is_told() -> None:
    assert result().quiet and not result(twin="FAIL").quiet
    assert "0 of 1 twins quiet" in table([result(twin="FAIL")])


def test_every_bug_has_its_case_and_its_twin() -> None:
    ids = {v.id for v in variants()}
    for bug in BUGS:
        assert {f"selftest::{bug.case}@{bug.bug}", f"selftest::{bug.case}@{bug.twin}"} <= ids
    assert len({bug.bug for bug in BUGS}) == len(BUGS)
    assert SPEC.is_file()


def test_results_are_paired_by_id() -> None:
    bugs = BUGS[:1]
    events = [finished(id=v.id, verdict="FAIL", oracles=("value",), stage="backend") for v in variants(bugs)]
    events[-1] = dataclasses.replace(events[-1], verdict="PASS")
    (paired,) = judge(events, bugs)
    assert paired.caught and paired.quiet
    with pytest.raises(KeyError):
        judge(events[:1], bugs)
