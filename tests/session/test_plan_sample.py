"""Which passes of living processes are asked again, and what that may cost."""

from __future__ import annotations

from runner.contract.job import Job
from runner.engine.messages import Outcome
from runner.session.plan import EVERY, SHARE, Sample

JOB = Job("k", "i", "here", "n", "", {})


def drawn(sample: Sample, count: int, cost: float = 0.0) -> list[int]:
    """Return the places of those drawn of so many passes of a second each, where each look costs ``cost`` seconds."""
    places = []
    for place in range(count):
        if sample.draws(Outcome(JOB, "result", 1.0, earlier_jobs=("x",), busy=1.0)):
            places.append(place)
            sample.spent += cost
    return places


def test_one_of_fifty_is_drawn_and_by_the_seed() -> None:
    places = drawn(Sample(1, 10_000), 10_000)
    assert 0.7 < len(places) * EVERY / 10_000 < 1.4
    assert drawn(Sample(1, 10_000), 10_000) == places != drawn(Sample(2, 10_000), 10_000)


def test_a_small_run_has_one_in_its_first_half() -> None:
    for planned in (2, 3, 20, 60, 1000):
        for seed in range(20):
            assert drawn(Sample(seed, planned), max(1, min(EVERY, planned // 2))), (planned, seed)


def test_a_process_that_had_run_nothing_needs_no_look() -> None:
    sample = Sample(0, 2)
    assert not sample.draws(Outcome(JOB, "result", 1.0, busy=1.0)) and drawn(sample, 1) == [0]


def test_looks_take_a_small_part_of_the_time_and_the_first_is_free() -> None:
    cost, count = 30.0, 10_000
    looks = len(drawn(Sample(0, count), count, cost))
    assert looks > 1 and (looks - 1) * cost <= SHARE * count
    assert len(drawn(Sample(0, 10), 100, 1000.0)) == 1
