"""What the events of a log cannot say together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.record.events import Event, RunFinished, RunResumed, RunStarted, VariantFinished, VariantPlanned
from runner.record.journal import Problems, Weight, audit
from tests.handmade import finding, played, variants
from tests.mutations import ended


@pytest.fixture
def events(tmp_path: Path) -> list[Event]:
    """Three variants, of which the second fails."""
    chosen = variants(tmp_path, "params: {n: [1, 2, 3]}")
    found = played(chosen, ["2.13.0"], lambda v, t: finding() if v.params["n"] == 2 else "PASS")
    return [replace(event, planned=3) if isinstance(event, RunStarted) else event for event in ended(found, 1)]


def problems_of(events: list[Event]) -> tuple[list[Event], list[str], Weight]:
    problems = Problems()
    return audit(events, problems), problems.lines(), problems.worst


def results(events: list[Event]) -> list[VariantFinished]:
    return [event for event in events if isinstance(event, VariantFinished)]


def test_a_run_as_it_is_has_no_problem(events: list[Event]) -> None:
    assert problems_of(events) == (events, [], Weight.USUAL)
    cut = events[:-2]  # killed
    assert problems_of(cut) == (cut, [], Weight.USUAL)
    resumed = [*cut, RunFinished(2, 1.0, True), RunResumed("r", "later", 2), *events[-2:]]
    assert problems_of(resumed) == (resumed, [], Weight.USUAL)
    assert problems_of(events[:3]) == (events[:3], [], Weight.USUAL)  # killed while it announced its plan
    early = [*events[:-2], RunFinished(1, 1.0)]  # --max-fail
    assert problems_of(early) == (early, [], Weight.USUAL)


def test_two_verdicts_that_agree_count_once(events: list[Event]) -> None:
    passed = results(events)[0]
    clean, lines, weight = problems_of([*events[:-1], replace(passed, seconds=2.0), events[-1]])
    assert clean == events and weight == Weight.USUAL
    assert lines == [f"{passed.id} (torch 2.13.0) finished twice, both times PASS; it counts once"]


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        ("PASS", "ERROR", "ERROR"),
        ("ERROR", "PASS", "ERROR"),
        ("SKIP", "XFAIL", "SKIP"),
        ("FLAKY", "INVALID", "INVALID"),
    ],
)
def test_of_two_verdicts_that_contradict_the_worse_counts(
    events: list[Event], first: str, second: str, counts: str
) -> None:
    one = results(events)[0]
    found = finding()
    one = replace(one, findings=(found,) if first == "XFAIL" else ())
    other = replace(one, verdict=second, findings=(found,) if second == "XFAIL" else ())
    changed = [replace(one, verdict=first) if event is results(events)[0] else event for event in events]
    clean, lines, weight = problems_of([*changed[:-1], other, events[-1]])
    assert [event.verdict for event in results(clean) if event.id == one.id] == [counts]
    assert lines == [f"{one.id} (torch 2.13.0) finished twice, {first} and {second}; {counts} counts"]
    assert weight == Weight.DOUBTFUL


def test_what_did_not_run_at_first_ran_later(events: list[Event]) -> None:
    first = replace(results(events)[0], verdict="NOT-RUN")
    place = events.index(results(events)[0])
    assert problems_of([*events[:place], first, *events[place:]]) == (events, [], Weight.USUAL)


def test_a_variant_planned_twice_counts_once(events: list[Event]) -> None:
    planned = next(event for event in events if isinstance(event, VariantPlanned))
    clean, lines, weight = problems_of([events[0], planned, *events[1:]])
    assert clean == events and weight == Weight.USUAL and "is planned twice; it counts once" in lines[0]
    clean, lines, weight = problems_of([*events[:-1], replace(planned, file="/elsewhere"), events[-1]])
    assert clean == events and weight == Weight.DOUBTFUL and "in different words; the first counts" in lines[0]


def edited(events: list[Event], **changes: object) -> list[Event]:
    """The failure with these changes."""
    return [
        replace(event, **changes) if isinstance(event, VariantFinished) and event.verdict == "FAIL" else event  # type: ignore[arg-type]
        for event in events
    ]


def test_edits_that_contradict_are_named(events: list[Event]) -> None:
    planned = [event for event in events if isinstance(event, VariantPlanned)]
    start = events[0]
    assert isinstance(start, RunStarted)
    failed = results(events)[1]
    cases: list[tuple[list[Event], list[str]]] = [
        (
            edited(events, verdict="PASS"),
            ["the verdict PASS, and 1 finding", "exit code 1, and none of 3 verdicts is red"],
        ),
        (edited(events, verdict="PASS", findings=(), oracles=()), ["exit code 1, and none of 3 verdicts is red"]),
        (edited(events, findings=()), ["the verdict FAIL, and no finding"]),
        (edited(events, verdict="XFAIL", findings=()), ["the verdict XFAIL, and no finding", "exit code 1, and none"]),
        (
            [event for event in events if event is not planned[1]],
            ["was never planned", "3 variants, and 2 are planned"],
        ),
        (
            [event for event in events if getattr(event, "id", "") != planned[0].id],
            ["announces 3 variants, and 2 are planned"],
        ),
        ([replace(start, planned=2), *events[1:]], ["announces 2 variants, and 3 are planned"]),
        (
            ended([event for event in events if event is not failed], 0),
            ["ended with exit code 0, and 1 of its variants have no verdict"],
        ),
    ]
    for changed, texts in cases:
        clean, lines, weight = problems_of(changed)
        assert clean == changed and weight == Weight.DOUBTFUL
        assert len(lines) == len(texts) and all(text in line for text, line in zip(texts, lines, strict=True)), lines
        assert all(line.endswith("this log was edited, or written by another program") for line in lines)


def test_a_skip_explains_the_exit_code_of_a_run_that_may_not_skip(events: list[Event]) -> None:
    skipped = edited(events, verdict="SKIP", findings=(), oracles=(), stage=None)
    assert not any("exit code" in line for line in problems_of(skipped)[1])


def test_a_start_that_is_not_the_first_or_not_the_only_one(events: list[Event]) -> None:
    clean, lines, weight = problems_of([*events[1:4], events[0], *events[4:]])
    assert weight == Weight.REFUSED and lines[0].startswith("3 events before run-started")
    assert clean == events
    clean, lines, weight = problems_of([*events, *events])
    assert sum(isinstance(event, RunStarted) for event in clean) == 1 and len(results(clean)) == 3
    assert weight == Weight.REFUSED and "run-started stands there 2 times" in lines[0]
