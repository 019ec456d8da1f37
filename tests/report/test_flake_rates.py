from __future__ import annotations

from runner.report.past_verdicts import rate_lines
from tests.report.events_sample import FILE, NASTY, finished


def test_what_wavers_is_named_and_the_others_are_counted() -> None:
    results = [
        finished(name="a", tally={"PASS": 20}),
        finished("FLAKY", name="b", tally={"PASS": 19, "FAIL": 1}),
        finished("FLAKY", name="c", tally={"PASS": 2, "FAIL": 18}),
        finished(name="d", tally={"PASS": 20}),
        finished("FAIL", name="e", tally={"FAIL": 20}),
        finished("SKIP", name="f"),
    ]
    assert rate_lines(results)[1:] == [
        f"  18 of 20   90.0 %   (69.9 % to 97.2 %)  {FILE}::c[float32,cpu]@inductor",
        f"   1 of 20    5.0 %    (0.9 % to 23.6 %)  {FILE}::b[float32,cpu]@inductor",
        "   0 of 20    0.0 %    (0.0 % to 16.1 %)  each of 2 others",
        "  20 of 20  100.0 %  (83.9 % to 100.0 %)  one other",
    ]
    assert rate_lines(results[:1])[1].endswith("  1 variant")


def test_without_stress_there_is_no_rate() -> None:
    assert rate_lines([finished(), finished("FLAKY", attempts=3)]) == []


def test_a_name_is_shown_and_not_obeyed() -> None:
    lines = rate_lines([finished("FLAKY", name=NASTY, torch="2.6.0", tally={"PASS": 1, "FAIL": 1})], several=True)
    assert "\x1b" not in lines[1] and "\n" not in lines[1] and lines[1].endswith(" torch 2.6.0")


def test_many_are_bounded() -> None:
    lines = rate_lines(finished("FLAKY", name=f"x{n}", tally={"PASS": n + 1, "FAIL": 1}) for n in range(60))
    assert len(lines) == 52 and lines[-1].endswith("and 10 more at most so often")
