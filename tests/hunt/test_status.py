"""The state of a hunt as text."""

from __future__ import annotations

from dataclasses import replace

from runner.hunt.groups import Known, Triage, groups_of, render
from runner.hunt.state import Reduction, Report
from tests.hunt.samples import A, B, C, red, round_of, state_of


def test_the_table_names_each_group_and_the_lines_below_count() -> None:
    state = state_of(
        round_of(0, red(A), red(B, 1, severity="exception", signature="compile-error"), red(C, 2)),
        round_of(1, red(A, 10)),
        reductions=(Reduction(A, 20.0, before=9, after=2, complete=True),),
    )
    text = render(state, groups_of(state, Known({C: "old (bug)"}, {B: Triage("by-design", "so")})))
    rows = [line.split() for line in text.splitlines()]
    assert ["wrong-result", A, "value", "of", "torch.sin", "2", "case_0", "new", "9", "->", "2"] in rows
    assert ["wrong-result", C, "value", "of", "torch.sin", "1", "case_2", "known:", "old", "(bug)"] in rows
    assert ["exception", B, "compile-error", "1", "case_1", "by-design", "so"] in rows
    assert "2 rounds, 16 variants: 12 PASS, 4 FAIL" in text
    assert "0.20 variants a second; 8.00s of drawing, 72.0s of running, 20.0s of reducing and reporting" in text
    assert "1 new group, 36.0 an hour; 1 known, 1 with a triage" in text
    assert "remaining: 1 report to write" in text
    state.add(Report(A, 10.0, culprit="inductor, subsystem lowerings"))
    text = render(state, groups_of(state, Known({B: "old", C: "old"})))
    assert "9 -> 2       inductor, subsystem lowerings" in text and "30.0s of reducing and reporting" in text
    assert "remaining: nothing" in text


def test_what_waits_and_what_was_cut_short_is_told() -> None:
    reductions = (Reduction(A, 20.0, before=9, after=4), Reduction(B, 2.0, "it does not fail: PASS"))
    state = state_of(round_of(0, red(A), red(B, 1), red(C, 2)), reductions=reductions)
    text = render(state, groups_of(state))
    assert "9 -> 4?" in text and "it does not fail: PASS" in text and "  waits" in text
    assert "remaining: 1 group to reduce, 1 report to write" in text


def test_a_hunt_without_a_round_has_a_status() -> None:
    assert "no group: nothing was red\n\n0 rounds, 0 variants: none\n0 new groups; 0 known" in render(state_of(), [])


def test_a_guided_hunt_counts_what_it_reached() -> None:
    rounds = [
        replace(round_of(0), reached=("step torch.sin", "pass binary_folding")),
        replace(round_of(1), reached=("step torch.cos", "pair torch.sin torch.cos", "\x1b[31m odd")),
    ]
    assert "reached: 2 steps, 1 pair, 1 pass\n" in render(state_of(*rounds), [])
    assert "reached" not in render(state_of(round_of(0)), [])
    lines = replace(round_of(0), reached=("line a.py:1-10,20", "line b.py:3", "line nonsense"))
    assert "reached: 12 lines\n" in render(state_of(lines), [])
