"""Shards' runs made one again, and all that is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import __version__
from runner.contract.finding import Finding
from runner.exit_codes import UsageError
from runner.record.events import (
    Event,
    Notice,
    RunFinished,
    RunResumed,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    VariantStarted,
)
from runner.record.journal import Journal
from runner.report.junit import render
from runner.report.table import build_grid
from runner.session.plan import Planned, plan, planned_event
from runner.session.settings import Shard
from runner.session.shards import check_stamps, chosen, merge, plan_hash
from tests.handmade import environment, loaded, written

Change = Callable[[list[Event]], list[Event]]

HERE = "/ci/here"
COUNT = 3


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> list[Planned]:
    folder = tmp_path_factory.mktemp("cases")
    text = "cases:\n" + "".join(
        f"  - {{name: c{number}, inputs: {{x: [2]}}, chain: [F.relu]}}\n" for number in range(8)
    )
    collection = loaded(written(folder, text), backends=["eager", "inductor"]).variants
    return plan(collection, [environment("2.6.0"), environment("2.13.0")])


def run(
    planned: Sequence[Planned], whole: Sequence[Planned], shard: str, cwd: str = HERE, **changes: Any
) -> list[Event]:
    """The events of one shard's run, in an order of its own; every fifth variant fails."""
    index = shard.partition("/")[0]
    start: dict[str, Any] = {
        "run": f"r{index}", "version": __version__, "argv": ("runner", "run"), "started": f"2026-01-02T03:04:0{index}",
        "host": f"box{index}", "folder": f".runner/runs/r{index}", "full": True, "cwd": cwd, "plan": plan_hash(whole),
        "shard": shard, "planned": len(planned), "total": len(whole),
        "environments": tuple({"python": f"{cwd}/{t}/python", "torch": t, "build": f"{t}+cpu", "version": "3.11"}
                              for t in ("2.6.0", "2.13.0")),
    }  # fmt: skip
    file = f"{cwd}/specs/a.spec.yaml"
    announced = [replace(planned_event(entry), number=entry.number, file=file) for entry in planned]
    finished = [_finished(event, file) for event in reversed(announced)]
    code = 1 if any(event.verdict == "FAIL" for event in finished) else 0
    begun = [VariantStarted(event.id, event.torch) for event in finished]
    return [RunStarted(**{**start, **changes}), *announced, *begun, *finished, RunFinished(code, 10.0)]


def _finished(event: VariantPlanned, file: str) -> VariantFinished:
    values = {name: getattr(event, name) for name in VariantPlanned.__dataclass_fields__}
    if event.number % 5:
        return VariantFinished(**values, verdict="PASS", seconds=1.0)
    finding = Finding("value", "it differs", "call 0, output", stage="inductor", place=f"{file}:3:5")
    return VariantFinished(
        **values, verdict="FAIL", seconds=1.0, findings=(finding,), oracles=("value",), entry=f"{file}:9:1"
    )


@pytest.fixture
def runs(planned: list[Planned]) -> list[list[Event]]:
    return [run(chosen(planned, Shard(i, COUNT)), planned, f"{i}/{COUNT}") for i in range(1, COUNT + 1)]


def only(events: Sequence[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def changed(events: list[Event], kind: type, **changes: Any) -> list[Event]:
    return [replace(event, **changes) if isinstance(event, kind) else event for event in events]  # type: ignore[type-var]


# --- what comes out ---


def test_shards_make_the_run_that_one_machine_would_have_made(planned: list[Planned], runs: list[list[Event]]) -> None:
    whole = run(planned, planned, "1/1")
    merged = merge(list(reversed(runs)), HERE)
    assert [event.number for event in only(merged, VariantPlanned)] == list(range(1, len(planned) + 1))
    assert only(merged, VariantPlanned) == only(whole, VariantPlanned)
    assert only(merged, VariantFinished) == list(reversed(only(whole, VariantFinished)))  # in the plan's order
    assert build_grid(merged) == build_grid(whole)
    start = only(whole, RunStarted)[0]
    alike = replace(merged[0], run=start.run, host=start.host, started=start.started)  # type: ignore[type-var]
    assert render([alike, *merged[1:]]) == render(whole)


def test_the_first_and_the_last_event_speak_of_all(planned: list[Planned], runs: list[list[Event]]) -> None:
    first, *_, last = merge(runs, HERE)
    assert isinstance(first, RunStarted)
    assert (first.run, first.argv) == ("r1+r2+r3", ("runner", "merge", "r1", "r2", "r3"))
    assert (first.host, first.started, first.folder) == ("box1, box2, box3", "2026-01-02T03:04:01", "")
    assert (first.plan, first.shard, first.full, first.cwd) == (plan_hash(planned), "", True, HERE)
    assert (first.planned, first.total) == (len(planned), len(planned))
    assert [entry["torch"] for entry in first.environments] == ["2.6.0", "2.13.0"]
    assert last == RunFinished(1, 30.0)


def test_environments_are_united(runs: list[list[Event]]) -> None:
    entry = {"python": "/elsewhere/python", "torch": "2.6.0", "build": "2.6.0+cpu", "version": "3.12"}
    runs[2] = changed(runs[2], RunStarted, environments=(entry,), full=False)
    first = merge(runs, HERE)[0]
    assert isinstance(first, RunStarted) and not first.full
    assert [(e["torch"], e["version"]) for e in first.environments] == [
        ("2.6.0", "3.11"), ("2.13.0", "3.11"), ("2.6.0", "3.12"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0, 0), 0), ((0, 1, 0), 1), ((1, 3, 0), 3), ((0, 4, 1), 4), ((0, 5, 0), 0), ((5, 5, 5), 5), ((5, 1, 0), 1)],
)
def test_the_worst_exit_code_stands(runs: list[list[Event]], codes: tuple[int, ...], code: int) -> None:
    green = [changed(events, VariantFinished, verdict="PASS") for events in runs]
    ended = [changed(events, RunFinished, exit_code=exit_code) for events, exit_code in zip(green, codes, strict=True)]
    assert merge(ended)[-1] == RunFinished(code, 30.0)


def test_a_red_verdict_is_red_whatever_its_shard_s_end_said(runs: list[list[Event]]) -> None:
    assert merge([changed(events, RunFinished, exit_code=0) for events in runs])[-1] == RunFinished(1, 30.0)


def test_what_shards_remarked_is_kept_once(runs: list[list[Event]]) -> None:
    for events in runs:
        events[1:1] = [Notice("the same"), Notice(f"of {events[0].run}", "error")]  # type: ignore[union-attr]
    notices = only(merge(runs), Notice)
    assert notices == [Notice("the same"), Notice("of r1", "error"), Notice("of r2", "error"), Notice("of r3", "error")]


def test_different_versions_of_the_runner_are_told(runs: list[list[Event]]) -> None:
    runs[1] = changed(runs[1], RunStarted, version="0.0.1")
    (notice,) = only(merge(runs), Notice)
    assert "different versions" in notice.message and "0.0.1" in notice.message


def test_checkouts_in_different_folders_make_one_report(planned: list[Planned], runs: list[list[Event]]) -> None:
    parts = [chosen(planned, Shard(i, 2)) for i in (1, 2)]
    apart = [run(parts[0], planned, "1/2", "/one/checkout"), run(parts[1], planned, "2/2", "/two")]
    merged = merge(apart, HERE)
    assert merged[1:] == [*merge(runs, HERE)[1:-1], RunFinished(1, 20.0)]
    assert {event.file for event in only(merged, VariantPlanned)} == {f"{HERE}/specs/a.spec.yaml"}
    outside = [changed(events, VariantPlanned, file="/lib/b.spec.yaml") for events in apart]
    assert {event.file for event in only(merge(outside, HERE), VariantPlanned)} == {"/lib/b.spec.yaml"}
    sibling = [changed(events, VariantPlanned, file="/two-more/b.spec.yaml") for events in apart]
    assert {event.file for event in only(merge(sibling, HERE), VariantPlanned)} == {"/two-more/b.spec.yaml"}


def test_a_resumed_shard_is_as_good_as_any(runs: list[list[Event]]) -> None:
    expected = merge(runs, HERE)
    *head, last = runs[1]
    half = len(head) - 4
    runs[1] = [*head[:half], RunFinished(2, 7.0, True), RunResumed("r2", "later", 3), *head[half:], last]
    merged = merge(runs, HERE)
    assert merged[:-1] == expected[:-1] and merged[-1] == RunFinished(1, 37.0)


def test_an_empty_shard_is_a_shard(planned: list[Planned]) -> None:
    pair = planned[:2]
    merged = merge([run(pair, pair, "1/2", argv=("runner", "run", "--durations=r")), run([], pair, "2/2")])
    assert len(only(merged, VariantFinished)) == 2


# --- what is refused ---


def refused(runs: Sequence[list[Event]]) -> str:
    with pytest.raises(UsageError) as error:
        merge(runs)
    return str(error.value)


def test_another_plan_is_refused(runs: list[list[Event]]) -> None:
    runs[1] = changed(runs[1], RunStarted, plan="feedfeedfeedfeed")
    text = refused(runs)
    assert "run r2" in text and "run r1" in text and "feedfeedfeedfeed" in text and "same cases" in text


def test_a_shard_twice_is_refused(planned: list[Planned], runs: list[list[Event]]) -> None:
    again = changed(runs[0], RunStarted, run="r9")
    text = refused([*runs, again])
    assert "run r1" in text and "run r9" in text and "the same shard" in text
    assert "the same shard" in refused([runs[0], *runs])


def test_missing_shards_are_named(runs: list[list[Event]]) -> None:
    assert "shard 2/3, 3/3" in refused(runs[:1])
    assert "shard 1/3;" in refused(runs[1:])


def test_runs_that_are_no_shards_are_refused(runs: list[list[Event]]) -> None:
    for changes in ({"shard": ""}, {"plan": ""}, {"shard": "9/3"}):
        text = refused([runs[0], changed(runs[1], RunStarted, **changes), runs[2]])
        assert "run r2 is no shard" in text and "--shard" in text
    assert "nothing to merge" in refused([])
    assert "does not say which run" in refused([runs[0], runs[1][1:], runs[2]])


def test_shards_of_different_counts_are_refused(planned: list[Planned], runs: list[list[Event]]) -> None:
    quarter = run(chosen(planned, Shard(2, 4)), planned, "2/4")
    assert "different numbers of shards" in refused([runs[0], quarter, runs[2]])


def interrupted(events: list[Event]) -> list[Event]:
    return changed(events, RunFinished, interrupted=True)


def killed(events: list[Event]) -> list[Event]:
    return events[:-1]


def killed_again(events: list[Event]) -> list[Event]:
    return [*events, RunResumed("r2", "later", 3)]


def stopped_early(events: list[Event]) -> list[Event]:
    victim = only(events, VariantFinished)[0]
    return [event for event in events if event is not victim]


@pytest.mark.parametrize(
    ("change", "says"),
    [(interrupted, "interrupted"), (killed, "not finished"), (killed_again, "not finished"), (stopped_early, "no verdict for 1 of its")],
)  # fmt: skip
def test_an_unfinished_shard_is_refused_with_how_to_finish_it(
    runs: list[list[Event]], change: Change, says: str
) -> None:
    runs[1] = change(runs[1])
    text = refused(runs)
    assert says in text and "shard 2/3 (run r2 on box2)" in text and "runner resume .runner/runs/r2" in text


def unannounced(events: list[Event]) -> list[Event]:
    victim = only(events, VariantPlanned)[0]
    return [event for event in events if event is not victim]


def lines_lost(events: list[Event]) -> list[Event]:
    victim = only(events, VariantPlanned)[0]
    return [event for event in events if getattr(event, "id", "") != victim.id]


@pytest.mark.parametrize("change", [unannounced, lines_lost])
def test_a_log_that_lacks_lines_is_refused(runs: list[list[Event]], change: Change) -> None:
    runs[1] = change(runs[1])
    assert "lacks lines" in refused(runs) and "run r2" in refused(runs)


def test_a_verdict_on_what_was_not_announced_is_refused_whatever_the_counts_say(runs: list[list[Event]]) -> None:
    runs[1] = changed(unannounced(runs[1]), RunStarted, planned=0)
    assert "lacks lines" in refused(runs)


def test_a_variant_in_two_shards_is_refused(planned: list[Planned]) -> None:
    first, second = planned[:10], planned[9:]
    text = refused([run(first, planned, "1/2"), run(second, planned, "2/2")])
    assert planned[9].variant.id in text and "run r1" in text and "run r2" in text and "--durations" in text


def test_a_variant_in_no_shard_is_refused(planned: list[Planned]) -> None:
    text = refused([run(planned[:10], planned, "1/2"), run(planned[11:], planned, "2/2")])
    assert f"{len(planned)} variants are planned, and these shards hold {len(planned) - 1}" in text


def test_a_variant_of_another_shard_is_refused_where_ids_alone_cut(planned: list[Planned]) -> None:
    ids = sorted({entry.variant.id for entry in planned})
    halves = [[entry for entry in planned if entry.variant.id in half] for half in (ids[:8], ids[8:])]
    text = refused([run(half, planned, f"{index}/2") for index, half in enumerate(halves, 1)])
    assert "belongs to another shard than shard 1/2" in text
    for words in (("--durations", "r"), ("--durations=r",), ("--dur", "r")):
        parts = [
            run(half, planned, f"{index}/2", argv=("runner", "run", *words)) for index, half in enumerate(halves, 1)
        ]
        assert len(only(merge(parts), VariantFinished)) == len(planned)
    with pytest.raises(UsageError):
        merge([run(half, planned, f"{index}/2", argv=("runner", "--device")) for index, half in enumerate(halves, 1)])


def test_two_variants_in_one_place_are_refused(planned: list[Planned]) -> None:
    second_shard = [replace(entry, number=entry.number - 1) for entry in planned[10:]]
    assert "the same place" in refused([run(planned[:10], planned, "1/2"), run(second_shard, planned, "2/2")])


# --- stamps ---


def test_stamps_are_read_from_every_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with Journal(path, stamp={"plan": "abc", "shard": "1/2"}) as log:
        log.write(Notice("one"))
        log.write(Notice("two"))
    check_stamps(path)
    with path.open("ab") as file:
        file.write(b'torn {"plan": "x"\n[1]\n\n')
    check_stamps(path)


@pytest.mark.parametrize("stamp", [{"plan": "abc", "shard": "2/2"}, {"plan": "abd", "shard": "1/2"}, {}])
def test_a_log_that_two_shards_wrote_is_refused(tmp_path: Path, stamp: dict[str, str]) -> None:
    path = tmp_path / "events.jsonl"
    for owner in ({"plan": "abc", "shard": "1/2"}, stamp):
        with Journal(path, stamp=owner) as log:
            log.write(Notice("a line"))
    with pytest.raises(UsageError) as error:
        check_stamps(path)
    assert "events.jsonl" in str(error.value) and "shard 1/2 of plan abc" in str(error.value)
