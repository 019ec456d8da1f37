"""The order of rounds and reductions, over rounds that start no process."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.hunt import hunt
from runner.hunt.groups import (
    CASE,
    GROUP,
    Group,
    Red,
    Reduction,
    Report,
    Round,
    State,
    append_line,
    folder_of,
    groups_of,
    read_state,
)
from runner.hunt.hunt import Bounds, Hunt, Share
from tests.hunt.samples import HEAD, A, B, C, red, round_of, state_of

Scripted = list[Round | type[BaseException]]


class Rounds:
    """Gives rounds from a list, and makes the folders of new groups as the real one does."""

    settings, ledger = SimpleNamespace(slots=lambda: 2), None

    def __init__(self, folder: Path, rounds: Scripted) -> None:
        self.folder, self.rounds, self.asked = folder, rounds, list[int]()

    def say(self, text: str) -> None:
        pass

    def run(self, number: int, is_known: Any, deadline: float) -> Round:
        self.seconds = deadline - time.monotonic()
        self.asked.append(number)
        answer = self.rounds.pop(0)
        if isinstance(answer, type):
            raise answer
        for failure in answer.red:
            if not is_known(failure.signature_id):
                own = folder_of(self.folder, failure.signature_id)
                own.mkdir(parents=True, exist_ok=True)
                (own / CASE).write_text("", encoding="utf-8")
        return answer


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The groups that were reduced, in order, each with its budget. A reduction takes 30 s by its own account."""
    calls: list[tuple[str, float]] = []

    def reduce_group(folder: Path, settings: Any, ledger: Any, group: Group, share: Share, tick: Any) -> Reduction:
        calls.append((group.id, round(share.budget)))
        return Reduction(group.id, 30.0, before=5, after=1, complete=True)

    def report_group(folder: Path, settings: Any, group: Group, share: Share, tick: Any) -> Report:
        assert group.reduction is not None
        return Report(group.id, 20.0, unmet=int(group.id == B))

    monkeypatch.setattr(hunt, "reduce_group", reduce_group)
    monkeypatch.setattr(hunt, "report_group", report_group)
    return calls


def hunted(
    folder: Path, rounds: Scripted, bounds: Bounds, places: dict[str, str] | None = None
) -> tuple[Hunt, list[int], list[str]]:
    """A hunt that was run to its end or interrupted, the numbers of its rounds, and what it told."""
    state = read_state(folder)
    if state is None:
        append_line(folder, HEAD)
        state = State(HEAD)
    lines: list[str] = []
    scripted: Any = Rounds(folder, rounds)
    going = Hunt(folder, state, places or {}, scripted, bounds, lines.append)
    try:
        going.run()
    except KeyboardInterrupt:
        lines.append("interrupted")
    return going, scripted.asked, lines


def test_new_groups_are_reduced_the_worst_first(tmp_path: Path, reduced: list[tuple[str, float]]) -> None:
    rounds: Scripted = [
        round_of(0, red(A, severity="alias"), red(B, 1), red(C, 2, verdict="VACUOUS")),
        round_of(1, red(A, 11)),
    ]
    _, numbers, lines = hunted(tmp_path, rounds, Bounds(rounds=2, each=60.0))
    assert numbers == [0, 1] and reduced == [(B, 60.0), (A, 60.0)]
    assert lines[0].startswith("round 0: 8 variants, 3 red, 2 new groups\n  new: bbbbbbbb wrong-result: ")
    assert lines[1:] == [
        f"{B}: 5 -> 1 operators", f"{A}: 5 -> 1 operators", "round 1: 8 variants, 1 red, 0 new groups",
        f"{B}: report written; 1 rule not met", f"{A}: report written",
    ]  # fmt: skip
    data = json.loads((folder_of(tmp_path, A) / GROUP).read_text(encoding="utf-8"))
    assert (data["count"], data["round"], data["reduction"]["after"], data["report"]["unmet"]) == (2, 0, 1, 0)
    assert data["redraw"] == [f"runner generate --profile wide --seed 7 --first {n} --count 1" for n in (0, 11)]


@pytest.mark.parametrize(
    ("bounds", "count"), [(Bounds(rounds=1, each=5.0), 1), (Bounds(30.0, 1), 1), (Bounds(23.0, 1), 0)]
)
def test_a_reduction_needs_some_time_unless_a_person_says_less(
    bounds: Bounds, count: int, tmp_path: Path, reduced: list[tuple[str, float]]
) -> None:
    """The round takes 20 s by its own account. A sixth of a short budget is enough for a reduction."""
    append_line(tmp_path, HEAD)
    append_line(tmp_path, round_of(0, red(A), running=16.0))
    hunted(tmp_path, [], bounds)
    assert len(reduced) == count


def test_known_and_judged_groups_are_counted_and_not_reduced(tmp_path: Path, reduced: list[tuple[str, float]]) -> None:
    (tmp_path / "triage.yaml").write_text("bbbbbbbb: {triage: undefined}\n", encoding="utf-8")
    going, _, _ = hunted(tmp_path, [round_of(0, red(A), red(B, 1), red(C, 2))], Bounds(rounds=1), {A: "earlier"})
    assert [call[0] for call in reduced] == [C]
    assert {group.id: len(group.reds) for group in going.groups()} == {A: 1, B: 1, C: 1}
    assert not folder_of(tmp_path, A).exists()
    assert (tmp_path / "triage.yaml").read_text(encoding="utf-8") == "bbbbbbbb: {triage: undefined}\n"


def test_the_record_says_what_earlier_hunts_knew(tmp_path: Path, reduced: list[tuple[str, float]]) -> None:
    hunted(tmp_path, [round_of(0, red(A), red(B, 1))], Bounds(rounds=1), {A: "earlier"})
    state = read_state(tmp_path)
    assert state is not None and {group.id: group.known for group in groups_of(state)} == {A: "earlier", B: ""}


def test_a_killed_hunt_goes_on_with_the_round_that_it_had_not_finished(
    tmp_path: Path, reduced: list[tuple[str, float]]
) -> None:
    rounds = [round_of(0, red(A)), round_of(1, red(A, 12), red(B, 13)), round_of(2)]
    whole, _, _ = hunted(tmp_path, [*rounds], Bounds(rounds=3))
    (tmp_path / "cut").mkdir()
    _, numbers, lines = hunted(tmp_path / "cut", [rounds[0], KeyboardInterrupt], Bounds(rounds=3))
    assert numbers == [0, 1] and lines[-1] == "interrupted"
    cut, numbers, _ = hunted(tmp_path / "cut", [*rounds[1:]], Bounds(rounds=3))
    assert numbers == [1, 2]
    assert cut.groups() == whole.groups()
    assert [call[0] for call in reduced] == [A, B, A, B]
    assert hunted(tmp_path / "cut", [], Bounds(rounds=3))[1] == [], "all of it is done"


def at(folder: Path, state: State, bounds: Bounds) -> Hunt:
    rounds: Any = None
    return Hunt(folder, state, {}, rounds, bounds, lambda text: None)


@pytest.mark.parametrize(
    ("budget", "reduced_for", "seconds"), [(200.0, 0.0, 40), (200.0, 30.0, 10), (90.0, 0.0, 10), (None, 30.0, math.inf)]
)
def test_reductions_keep_to_a_third_of_the_time(
    budget: float | None, reduced_for: float, seconds: float, tmp_path: Path
) -> None:
    """Two rounds took 80 s, so reductions may take 40 s, and no more than what the budget leaves."""
    reductions = (Reduction(B, reduced_for),) if reduced_for else ()
    state = state_of(round_of(0, red(A)), round_of(1), reductions=reductions)
    assert at(tmp_path, state, Bounds(budget)).allowance() == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize(
    ("reds", "bounds", "expected"),
    [
        ((), Bounds(110.0), False),
        ((), Bounds(121.0), True),
        ((red(A),), Bounds(121.0), False),
        ((red(A),), Bounds(181.0), True),
        ((), Bounds(121.0, rounds=2), False),
        ((), Bounds(rounds=3), True),
    ],
)
def test_a_round_begins_only_where_there_is_time_for_one_like_the_last(
    reds: tuple[Red, ...], bounds: Bounds, expected: bool, tmp_path: Path
) -> None:
    """Two rounds took 80 s, and one takes 40 s. A third of the budget is kept where a group waits to be reduced."""
    assert at(tmp_path, state_of(round_of(0, *reds), round_of(1)), bounds).has_time() is expected


def test_the_first_round_leaves_a_third_of_the_budget_to_reductions(
    tmp_path: Path, reduced: list[tuple[str, float]]
) -> None:
    going, _, lines = hunted(tmp_path, [replace(round_of(0), unfinished=3)], Bounds(30.0, 1))
    rounds: Any = going.rounds
    assert rounds.seconds == pytest.approx(20.0, abs=1)
    assert lines == ["round 0: 8 variants, 0 red, 0 new groups; no time for 3 variants"]


def test_a_reduction_that_the_end_of_the_budget_cuts_short_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reduce_group(folder: Path, settings: Any, ledger: Any, group: Group, share: Share, tick: Any) -> Reduction:
        going._earlier += 40.0
        return Reduction(group.id, 1.0, "it takes longer than 10s")

    monkeypatch.setattr(hunt, "reduce_group", reduce_group)
    rounds: Any = Rounds(tmp_path, [round_of(0, red(A))])
    append_line(tmp_path, HEAD)
    going = Hunt(tmp_path, State(HEAD), {}, rounds, Bounds(40.0, 1), lambda text: None)
    going.run()
    state = read_state(tmp_path)
    assert state is not None and len(state.rounds) == 1 and not state.reductions


def test_half_of_an_edit_of_the_triage_does_not_end_a_hunt(tmp_path: Path, reduced: list[tuple[str, float]]) -> None:
    going, _, _ = hunted(tmp_path, [round_of(0, red(A))], Bounds(rounds=1))
    (tmp_path / "triage.yaml").write_text("aaaaaaaa: {triage: bug}\n", encoding="utf-8")
    assert not any(group.is_new for group in going.groups())
    (tmp_path / "triage.yaml").write_text("aaaaaaaa: {tri", encoding="utf-8")
    assert not any(group.is_new for group in going.groups())


def test_the_files_of_a_group_are_not_a_reason_to_draw_its_case_again(tmp_path: Path) -> None:
    """A group that a ledger explained at first has no folder; the first result that it does not explain makes one."""
    answers: dict[str, bool] = {}
    state = State(HEAD, [round_of(0, red(A, known="s.spec.yaml:1"), red(B, 1))])
    folder_of(tmp_path, B).mkdir(parents=True)
    (folder_of(tmp_path, B) / CASE).touch()
    rounds: Any = SimpleNamespace(
        run=lambda number, ask, deadline: answers.update({key: ask(key) for key in (A, B, C)}) or round_of(1)
    )
    append_line(tmp_path, HEAD)
    Hunt(tmp_path, state, {C: "earlier"}, rounds, Bounds(rounds=2), lambda text: None)._round()
    assert answers == {A: False, B: True, C: True}


def reducing(folder: Path, monkeypatch: pytest.MonkeyPatch, body: Any) -> Hunt:
    """A hunt on eight slots, whose three groups wait; ``body`` reduces each."""
    monkeypatch.setattr(hunt, "reduce_group", body)
    monkeypatch.setattr(hunt, "report_group", lambda folder, settings, group, *arguments: Report(group.id, 1.0))
    append_line(folder, HEAD)
    state = State(HEAD, [round_of(0, red(A), red(B, 1), red(C, 2))])
    rounds: Any = Rounds(folder, [])
    rounds.settings = SimpleNamespace(slots=lambda: 8)
    return Hunt(folder, state, {}, rounds, Bounds(rounds=1), lambda text: None)


def test_reductions_share_the_slots_and_go_on_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=60)
    shares: list[Share] = []

    def reduce_group(folder: Path, settings: Any, ledger: Any, group: Group, share: Share, tick: Any) -> Reduction:
        shares.append(share)
        together.wait()
        return Reduction(group.id, 1.0)

    reducing(tmp_path, monkeypatch, reduce_group).run()
    assert [(share.slots, share.beside, share.budget) for share in shares] == [(2, 3, 120.0)] * 3
    state = read_state(tmp_path)
    assert state is not None and set(state.reductions) == {A, B, C}


def test_an_interrupted_reduction_ends_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce_group(folder: Path, settings: Any, ledger: Any, group: Group, share: Share, tick: Any) -> Reduction:
        if group.id == B:
            raise KeyboardInterrupt
        for _ in range(6000):
            tick()
            time.sleep(0.01)
        return Reduction(group.id, 1.0)

    with pytest.raises(KeyboardInterrupt):
        reducing(tmp_path, monkeypatch, reduce_group).run()
    state = read_state(tmp_path)
    assert state is not None and not state.reductions


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The groups that were reported, in order, each with its budget. B has no smaller case."""
    calls: list[tuple[str, float]] = []

    def reduce_group(folder: Path, settings: Any, ledger: Any, group: Group, *arguments: Any) -> Reduction:
        return Reduction(group.id, 1.0, "it does not fail" if group.id == B else "")

    def report_group(folder: Path, settings: Any, group: Group, share: Share, tick: Any) -> Report:
        calls.append((group.id, round(share.budget)))
        return Report(group.id, 20.0)

    monkeypatch.setattr(hunt, "reduce_group", reduce_group)
    monkeypatch.setattr(hunt, "report_group", report_group)
    return calls


def test_a_resumed_hunt_writes_the_reports_that_a_killed_one_had_not_written(
    tmp_path: Path, reported: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> Report:
        raise KeyboardInterrupt

    rounds: Scripted = [round_of(0, red(A), red(B, 1)), round_of(1, red(C, 12))]
    with monkeypatch.context() as patch:
        patch.setattr(hunt, "report_group", interrupt)
        _, numbers, lines = hunted(tmp_path, rounds, Bounds(rounds=2))
    assert numbers == [0, 1] and lines[-1] == "interrupted", "reports come after all rounds"
    for _ in range(2):
        _, numbers, _ = hunted(tmp_path, [], Bounds(rounds=2))
        assert numbers == [] and reported == [(A, 120.0), (C, 120.0)], "each once"
    state = read_state(tmp_path)
    assert state is not None and set(state.reports) == {A, C}


@pytest.mark.parametrize(("budget", "count"), [(90.0, 0), (120.0, 1), (None, 1)])
def test_a_report_needs_some_time(
    budget: float | None, count: int, tmp_path: Path, reported: list[tuple[str, float]]
) -> None:
    """The round and the reduction took 41 s by their own account."""
    append_line(tmp_path, HEAD)
    append_line(tmp_path, round_of(0, red(A)))
    append_line(tmp_path, Reduction(A, 1.0))
    going, _, _ = hunted(tmp_path, [], Bounds(budget, 1, each=200.0))
    assert len(reported) == count and [group.is_unreported for group in going.groups()] == [not count]
    assert all(call[1] <= (budget or 200.0) - 40.0 for call in reported if budget)


@pytest.mark.parametrize(("budget", "expected"), [(170.0, False), (185.0, True)])
def test_a_report_that_waits_has_some_of_the_time(budget: float, expected: bool, tmp_path: Path) -> None:
    """Two rounds took 80 s, a reduction 1 s, a third round takes 40 s, and the report 60 s."""
    state = state_of(round_of(0, red(A)), round_of(1), reductions=(Reduction(A, 1.0),))
    assert at(tmp_path, state, Bounds(budget)).has_time() is expected
