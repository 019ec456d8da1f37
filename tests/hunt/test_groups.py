"""Groups by signature: the worst first, and what makes one known."""

from __future__ import annotations

from runner.hunt.groups import Known, Triage, groups_of
from runner.hunt.state import Reduction, Report
from tests.hunt.samples import A, B, C, D, red, round_of, state_of


def test_the_worst_group_comes_first_and_those_without_a_failure_last() -> None:
    state = state_of(
        round_of(0, red(A, severity="exception"), red(C, verdict="VACUOUS", severity="")),
        round_of(1, red(A, 12, severity="exception"), red(B, 13)),
    )
    groups = groups_of(state)
    assert [(group.id, len(group.reds), group.round) for group in groups] == [(B, 1, 1), (A, 2, 0), (C, 1, 0)]
    assert [group.is_new for group in groups] == [True, True, False]


def test_a_group_with_a_triage_or_of_an_earlier_hunt_is_not_new() -> None:
    state = state_of(round_of(0, red(A), red(B, 1), red(C, 2)))
    known = Known({A: "earlier (bug)"}, {B: Triage("undefined")})
    assert {group.id: (group.is_new, group.is_pending, group.known) for group in groups_of(state, known)} == {
        A: (False, False, "earlier (bug)"),
        B: (False, False, ""),
        C: (True, True, ""),
    }


def test_a_ledger_must_explain_each_result_or_the_reduced_case() -> None:
    state = state_of(round_of(0, red(A, known="s.spec.yaml:3"), red(B, 1, known="s.spec.yaml:3"), red(C, 2)))
    state.add(round_of(1, red(B, 11)))
    state.add(Reduction(C, 1.0, known="s.spec.yaml:9"))
    assert {group.id: group.known for group in groups_of(state)} == {A: "s.spec.yaml:3", B: "", C: "s.spec.yaml:9"}


def test_groups_that_come_to_one_case_name_the_first_of_them() -> None:
    reductions = (Reduction(A, 1.0, case="11111111"), Reduction(B, 1.0, case="11111111"), Reduction(C, 1.0, "no"))
    state = state_of(round_of(0, red(A, severity="alias"), red(B, 1), red(C, 2)), reductions=reductions)
    assert {group.id: group.alike for group in groups_of(state)} == {A: "", B: A, C: ""}


def test_groups_of_one_cause_name_the_first_of_them_and_vague_ones_none() -> None:
    reductions = tuple(Reduction(key, 1.0, case=f"case of {key}") for key in (A, B, C, D))
    reports = (Report(A, 1.0, cause="11111111"), Report(B, 1.0, cause="11111111"), Report(C, 1.0), Report(D, 1.0))
    state = state_of(round_of(0, red(A), red(B, 1), red(C, 2), red(D, 3)), reductions=reductions, reports=reports)
    assert {group.id: group.alike for group in groups_of(state)} == {A: "", B: A, C: "", D: ""}


def test_one_report_serves_all_groups_of_one_case_and_none_is_made_without_a_case() -> None:
    reductions = (Reduction(A, 1.0, case="11111111"), Reduction(B, 1.0, case="11111111"), Reduction(C, 1.0, "no"))
    reds = round_of(0, red(A), red(B, 1), red(C, 2), red(D, 3))
    state = state_of(reds, reductions=reductions)
    assert [group.id for group in groups_of(state) if group.is_unreported] == [A]
    assert not any(group.is_unreported for group in groups_of(state, Known({}, {A: Triage("undefined")})))
    for report in (Report(A, 1.0), Report(A, 1.0, "it takes longer")):
        state = state_of(reds, reductions=reductions, reports=(report,))
        assert not any(group.is_unreported for group in groups_of(state))


def test_a_reduced_group_waits_no_more_and_stays_new() -> None:
    [group] = groups_of(state_of(round_of(0, red()), reductions=(Reduction(A, 1.0, "it does not fail"),)))
    assert (group.is_new, group.is_pending) == (True, False)
