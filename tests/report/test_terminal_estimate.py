from __future__ import annotations

import pytest

from runner.record.events import VariantFinished
from runner.report.terminal import Estimate
from tests.report.events_sample import finished, planned


def seconds(name: str, time: float, **fields: object) -> VariantFinished:
    return finished(name=name, seconds=99.0, spent={"busy": time}, **fields)  # type: ignore[arg-type]


def estimate(earlier: dict[str, float], *names: str) -> Estimate:
    result = Estimate({planned(name).key: time for name, time in earlier.items()})
    for name in names:
        result.take(planned(name))
    return result


def key(name: str) -> str:
    return planned(name).id


def test_nothing_is_known_at_first() -> None:
    run = estimate({}, "a", "b", "c")
    assert run.seconds_left([(key("a"), 5.0)]) is None
    run.take(seconds("a", 4.0))
    assert run.seconds_left([]) == 8.0
    assert run.seconds_left([(key("b"), 1.0)]) == 7.0


def test_earlier_runs_are_believed() -> None:
    run = estimate({"a": 10.0, "b": 20.0}, "a", "b")
    assert run.seconds_left([]) == 30.0
    assert run.seconds_left([(key("b"), 5.0)]) == 25.0
    assert run.seconds_left([(key("a"), 1.0), (key("b"), 1.0)]) == 19.0, "two at once: the longest decides"
    assert run.seconds_left([]) == 20.0 - 5.0, "as many as ran at one time do so again"


def test_what_takes_longer_than_before_is_expected_to_end_now() -> None:
    run = estimate({"a": 10.0, "b": 2.0}, "a", "b")
    assert run.seconds_left([(key("a"), 1000.0)]) == 2.0


def test_the_pace_of_this_run_counts() -> None:
    names = [f"x{n}" for n in range(20)]
    run = estimate(dict.fromkeys(names, 10.0), *names)
    for name in names[:10]:
        run.take(seconds(name, 5.0))
    assert run.seconds_left([]) == pytest.approx(100.0 * 60.0 / 110.0)
    slow_estimate = estimate(dict.fromkeys(names, 10.0), *names)
    slow_estimate.take(seconds(names[0], 100.0))
    assert slow_estimate.seconds_left([]) == pytest.approx(190.0 * 110.0 / 20.0), (
        "one variant alone does not set the pace"
    )


def test_what_never_ran_takes_as_long_as_the_others() -> None:
    run = estimate({"a": 6.0, "b": 2.0}, "a", "b", "new")
    assert run.seconds_left([]) == 12.0
    run.take(seconds("b", 2.0))
    assert run.seconds_left([]) == 8.0


def test_skipped_and_cached_ones_say_nothing_of_others() -> None:
    run = estimate({}, "a", "b", "c", "d")
    run.take(seconds("a", 0.0, verdict="SKIP"))
    run.take(seconds("b", 50.0, cached="earlier"))
    assert run.seconds_left([]) is None
    run.take(seconds("c", 3.0))
    assert run.seconds_left([]) == 3.0


def test_a_run_that_goes_on_and_one_that_is_over() -> None:
    run = estimate({"a": 1.0}, "a")
    run.take(seconds("a", 1.0))
    run.take(seconds("a", 1.0))
    run.take(seconds("never planned", 1.0))
    assert run.seconds_left([]) == 0.0
