"""Groups by signature: the worst first, and what makes one known; the triage that people write, and the state as text.

An entry of a ledger explains little beside its own case, and earlier hunts count by id.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.cases.limits import Limits
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.hunt import groups
from runner.hunt.groups import (
    TRIAGE,
    Reduction,
    Report,
    Triage,
    append_line,
    groups_of,
    read_triage,
    render,
    write_empty_triage,
)
from tests.handmade import finding, loaded, variants, written
from tests.hunt.samples import HEAD, A, B, C, D, red, round_of, state_of


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
    known = {A: "earlier (bug)"}, {B: Triage("undefined")}
    assert {group.id: (group.is_new, group.is_pending, group.known) for group in groups_of(state, *known)} == {
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
    assert not any(group.is_unreported for group in groups_of(state, {}, {A: Triage("undefined")}))
    for report in (Report(A, 1.0), Report(A, 1.0, "it takes longer")):
        state = state_of(reds, reductions=reductions, reports=(report,))
        assert not any(group.is_unreported for group in groups_of(state))


def test_a_reduced_group_waits_no_more_and_stays_new() -> None:
    [group] = groups_of(state_of(round_of(0, red()), reductions=(Reduction(A, 1.0, "it does not fail"),)))
    assert (group.is_new, group.is_pending) == (True, False)


def test_a_hunt_begins_with_an_empty_triage_and_leaves_a_written_one_alone(tmp_path: Path) -> None:
    assert read_triage(tmp_path) == {}
    write_empty_triage(tmp_path)
    assert read_triage(tmp_path) == {}
    (tmp_path / TRIAGE).write_text("aaaaaaaa: {triage: bug}\n")
    write_empty_triage(tmp_path)
    assert read_triage(tmp_path) == {"aaaaaaaa": Triage("bug")}


def test_what_people_say_is_read(tmp_path: Path) -> None:
    (tmp_path / TRIAGE).write_text(
        '"12345678": {triage: by-design, reason: the docs say so}\n"1e234567": {triage: duplicate, link: https://example.org/1}\n'
    )
    triage = read_triage(tmp_path)
    assert triage == {
        "12345678": Triage("by-design", "the docs say so"),
        "1e234567": Triage("duplicate", link="https://example.org/1"),
    }
    assert [str(entry) for entry in triage.values()] == ["by-design the docs say so", "duplicate https://example.org/1"]


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "# aaaaaaaa: {triage: bug}\r\n", "---\n  # none\n...\n", "{}\n"])
def test_a_file_without_entries_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / TRIAGE).write_text(text)
    assert read_triage(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aaaaaaaa: bug", "expected a mapping"),
        ("aaaaaaaa: {triage: bugs}", "triage is 'bugs', which is not one of its words"),
        ("aaaaaaaa: {triage: 3}", "expected text"),
        ("aaaaaaaa: {triage: duplicate}", "duplicate needs a reason or a link"),
        ("aaaaaaaa: {triage: bug, why: x}", "no key 'why' of a group"),
        ("../x: {triage: bug}", "is no id of a signature"),
        ("12345678: {triage: bug}", "the key 12345678 is not text"),
        ("[]", "expected a mapping"),
        ("~", "expected a mapping"),
        ("{", "is missing here"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / TRIAGE).write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_triage(tmp_path)
    assert "triage.yaml:1:" in str(error.value)


def test_the_table_names_each_group_and_the_lines_below_count() -> None:
    state = state_of(
        round_of(0, red(A), red(B, 1, severity="exception", signature="compile-error"), red(C, 2)),
        round_of(1, red(A, 10)),
        reductions=(Reduction(A, 20.0, before=9, after=2, complete=True),),
    )
    text = render(state, groups_of(state, {C: "old (bug)"}, {B: Triage("by-design", "so")}))
    rows = [line.split() for line in text.splitlines()]
    assert ["wrong-result", A, "value", "of", "torch.sin", "2", "case_0", "new", "9", "->", "2"] in rows
    assert ["wrong-result", C, "value", "of", "torch.sin", "1", "case_2", "known:", "old", "(bug)"] in rows
    assert ["exception", B, "compile-error", "1", "case_1", "by-design", "so"] in rows
    assert "2 rounds, 16 variants: 12 PASS, 4 FAIL" in text
    assert "0.20 variants a second; 8.00s of drawing, 72.0s of running, 20.0s of reducing and reporting" in text
    assert "1 new group, 36.0 an hour; 1 known, 1 with a triage" in text
    assert "remaining: 1 report to write" in text
    state.add(Report(A, 10.0, culprit="inductor, subsystem lowerings"))
    text = render(state, groups_of(state, {B: "old", C: "old"}))
    assert "9 -> 2       inductor, subsystem lowerings" in text and "30.0s of reducing and reporting" in text
    assert "remaining: nothing" in text


def test_what_waits_and_what_was_cut_short_is_told() -> None:
    reductions = (Reduction(A, 20.0, before=9, after=4), Reduction(B, 2.0, "it does not fail: PASS"))
    state = state_of(round_of(0, red(A), red(B, 1), red(C, 2)), reductions=reductions)
    text = render(state, groups_of(state))
    assert "9 -> 4?" in text and "it does not fail: PASS" in text and "  waits" in text
    assert "remaining: 1 group to reduce, 1 report to write" in text


def test_the_status_counts_what_had_no_time() -> None:
    rounds = replace(round_of(0), unfinished=3), replace(round_of(1), unfinished=4)
    assert "2 rounds, 16 variants: 16 PASS, 0 FAIL; no time for 7 more\n" in render(state_of(*rounds), [])


def test_a_hunt_without_a_round_has_a_status() -> None:
    assert "no group: no round has ended\n\n0 rounds, 0 variants: none\n0 new groups; 0 known" in render(state_of(), [])


def test_a_guided_hunt_counts_what_it_reached() -> None:
    rounds = [
        replace(round_of(0), reached=("step torch.sin", "pass binary_folding")),
        replace(round_of(1), reached=("step torch.cos", "pair torch.sin torch.cos", "\x1b[31m odd")),
    ]
    assert "reached: 2 steps, 1 pair, 1 pass\n" in render(state_of(*rounds), [])
    assert "reached" not in render(state_of(round_of(0)), [])
    lines = replace(round_of(0), reached=("line a.py:1-10,20", "line b.py:3", "line nonsense"))
    assert "reached: 12 lines\n" in render(state_of(lines), [])


LEDGER = """
    cases:
      - name: crash
        inputs: {x: [4]}
        chain: [F.relu, torch.sin]
        known: [{stage: inductor, oracle: [compile-error], error: KeyError, reason: r}]
      - name: wrong
        inputs: {x: [4]}
        chain: [F.relu]
        known: [{stage: inductor, oracle: [value], torch: '>=2.12', reason: r}]
    """
DRAWN = """
    cases:
      - name: drawn
        inputs: {x: [4]}
        chain: [F.relu, torch.cos, torch.sin]
    """
CRASH = finding("compile-error", "inductor", "InductorError", "KeyError")


def test_an_entry_with_an_exception_explains_a_case_that_holds_its_operators(tmp_path: Path) -> None:
    ledger = groups.read_ledger([str(written(tmp_path, LEDGER))], Limits())
    [variant] = loaded(written(tmp_path, DRAWN, "b.spec.yaml")).variants
    assert ledger.explain(variant, "2.13.0", [CRASH]).endswith("a.spec.yaml:5")
    assert ledger.explain(variant, "2.13.0", [finding("compile-error", "inductor", "TypeError")]) == ""
    assert ledger.explain(variant, "2.13.0", [finding("compile-error", "dynamo", "KeyError")]) == ""
    [relu_variant] = variants(tmp_path, "", "c.spec.yaml")  # relu alone
    assert ledger.explain(relu_variant, "2.13.0", [CRASH]) == ""


def test_a_ledger_of_its_own_file_names_operators_itself(tmp_path: Path) -> None:
    text = """
        known:
          - {operators: [F.relu], oracle: [value], reason: r}
          - {signature: value of F.relu, dtype: float32, reason: r}
        """
    path = written(tmp_path, text, "acme.ledger.yaml")
    ledger = groups.read_ledger([], Limits(), [str(path)])
    [variant] = loaded(written(tmp_path, DRAWN, "b.spec.yaml")).variants
    assert ledger.explain(variant, "2.13.0", [finding()], reduced=True).endswith("acme.ledger.yaml:2")
    assert ledger.explain(variant, "2.13.0", [finding()]) == "", "as drawn it may fail for another reason"
    names = ("value of F.relu", "1a2b3c4d")
    assert ledger.explain(variant, "2.13.0", [finding()], signature=names).endswith("acme.ledger.yaml:3")


def test_an_entry_about_values_explains_only_a_reduced_case_of_the_same_operators(tmp_path: Path) -> None:
    ledger = groups.read_ledger([str(written(tmp_path, LEDGER))], Limits())
    [variant] = loaded(written(tmp_path, DRAWN, "b.spec.yaml")).variants
    [relu] = variants(tmp_path, "", "c.spec.yaml")
    assert ledger.explain(relu, "2.13.0", [finding()], reduced=True).endswith("a.spec.yaml:9")
    assert ledger.explain(relu, "2.11.0", [finding()], reduced=True) == "", "the entry is of later versions"
    assert ledger.explain(relu, "2.13.0", [finding()]) == "", "as drawn it may fail for another reason"
    assert ledger.explain(variant, "2.13.0", [finding()], reduced=True) == "", "it has other operators"


def test_a_path_that_names_no_file_is_refused() -> None:
    assert groups.read_ledger([], Limits()).entries == ()
    with pytest.raises(UsageError, match="--known"):
        groups.read_ledger(["nowhere"], Limits())


def test_a_broken_ledger_is_no_ledger(tmp_path: Path) -> None:
    broken = written(tmp_path, LEDGER.replace("[compile-error]", "compile-error"))
    with pytest.raises(InputError, match="expected a list"):
        groups.read_ledger([str(broken)], Limits())


def test_groups_of_earlier_hunts_are_known_with_their_triage(tmp_path: Path) -> None:
    append_line(tmp_path, HEAD)
    append_line(tmp_path, round_of(0, red(A), red(B, 1), red(C, 2, verdict="VACUOUS")))
    (tmp_path / TRIAGE).write_text("bbbbbbbb: {triage: undefined}\n")
    assert groups.is_hunt(str(tmp_path)) and not groups.is_hunt(str(tmp_path / "none"))
    assert groups.known_groups([str(tmp_path)]) == {A: str(tmp_path), B: f"{tmp_path} (undefined)"}
