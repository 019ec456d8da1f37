"""Every section of a comparison, and what stays out of it.

What pairs with what: two runs, two versions of torch, two backends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.contract.finding import Finding
from runner.exit_codes import UsageError
from runner.record.events import Event, RunFinished, VariantFinished
from runner.record.store import Log
from runner.report.difference import PAIRS, SECTIONS, Comparison, Pairing, Side, compare, fails_alike, sides
from runner.verdict.signature import assess
from tests.handmade import finding
from tests.report.events_sample import FILE, finished, planned, started

KEY = ("a", "")
VALUE, STRIDE = finding("value"), finding("stride")


def result(verdict: str, *findings: Finding, **fields: Any) -> VariantFinished:
    if verdict in ("FAIL", "ERROR", "XFAIL") and not findings:
        findings = (VALUE,)
    return assess(finished(verdict, findings=findings, **fields))


def side(results: Mapping[Pairing, VariantFinished]) -> Side:
    return Side("run", "log", (), (), results)


def difference(old: VariantFinished | None, new: VariantFinished | None) -> Comparison:
    return compare(*(side({KEY: event} if event else {}) for event in (old, new)))


def section(old: VariantFinished | None, new: VariantFinished | None) -> str:
    comparison = difference(old, new)
    assert len(comparison.changes) <= 1
    assert comparison.same == (comparison.pairs and not comparison.changes)
    return comparison.changes[0].section if comparison.changes else ""


@pytest.mark.parametrize("new", ["FAIL", "ERROR", "FLAKY", "VACUOUS", "INVALID"])
@pytest.mark.parametrize("old", ["PASS", "XPASS"])
def test_what_passed_and_is_red_is_broken(old: str, new: str) -> None:
    assert section(result(old), result(new, reason="why")) == "broken"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (result("FAIL", STRIDE), "broken"),
        (result("FLAKY", reason="two runs disagree"), "broken"),
        (result("XFAIL", STRIDE), "changed"),
        (result("FAIL"), "changed"),  # as the ledger said, which no longer says it: nothing broke
        (result("XFAIL"), ""),
        (result("PASS"), "fixed"),
        (result("XPASS"), "fixed"),
    ],
)
def test_what_failed_as_expected(new: VariantFinished, expected: str) -> None:
    assert section(result("XFAIL"), new) == expected


def test_a_failure_that_the_ledger_expects_now_breaks_nothing() -> None:
    assert section(result("PASS"), result("XFAIL")) == "expected"
    assert section(result("FAIL"), result("XFAIL")) == ""


def test_the_reason_tells_another_signature_from_another_expectation() -> None:
    (unexpected,) = difference(result("XFAIL"), result("FAIL")).changes
    (otherwise,) = difference(result("XFAIL"), result("XFAIL", STRIDE)).changes
    assert (unexpected.reason, otherwise.reason) == ("no longer expected", "other signature")


@pytest.mark.parametrize("old", ["FAIL", "ERROR", "FLAKY", "VACUOUS", "INVALID"])
def test_what_was_red_and_passes_is_fixed(old: str) -> None:
    assert section(result(old, reason="why"), result("PASS")) == "fixed"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (result("FAIL"), result("FAIL"), ""),
        (result("FAIL"), result("ERROR"), ""),
        (result("FAIL"), result("FAIL", STRIDE), "changed"),
        (result("FAIL"), result("FLAKY", VALUE, reason="N runs disagree"), "changed"),
        (result("FLAKY", reason="2 runs disagree"), result("FLAKY", reason="3 runs disagree"), ""),
        (result("FLAKY", reason="runs disagree"), result("INVALID", reason="eager itself: ValueError"), "changed"),
    ],
)
def test_what_is_red_on_both_sides_differs_by_its_signature(
    old: VariantFinished, new: VariantFinished, expected: str
) -> None:
    assert section(old, new) == expected


@pytest.mark.parametrize("empty", [None, result("SKIP", reason="no GPU"), result("NOT-RUN")])
@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "FLAKY"])
def test_what_has_a_verdict_on_one_side_is_new_or_gone(verdict: str, empty: VariantFinished | None) -> None:
    assert section(empty, result(verdict)) == "new"
    assert section(result(verdict), empty) == "gone"
    assert difference(empty, result(verdict)).pairs == 0
    assert section(empty, empty) == ""


def test_the_reason_of_a_skip_is_told() -> None:
    (change,) = difference(result("PASS"), result("SKIP", reason="no GPU")).changes
    assert change.reason == "SKIP: no GPU"


def test_a_log_without_signatures_is_compared_by_what_it_holds() -> None:
    origin = {"type": "KeyError", "message": "gone", "frame": "_inductor/ir.py:f"}
    error = {"type": "InductorError", "message": "KeyError: gone", "chain": ["InductorError"]}
    early = finished("ERROR", findings=(finding("compile-error", "inductor"),))
    early = replace(early, findings=(replace(early.findings[0], error=error),))
    late = assess(replace(early, operator="torch.sort", findings=(replace(early.findings[0], error={**error, "origin": origin}),)))  # fmt: skip
    assert not early.signature and late.signature != assess(early).signature
    assert fails_alike(early, late) and fails_alike(late, early)
    value_error = replace(late, findings=(replace(late.findings[0], error={**error, "type": "ValueError"}),))
    assert not fails_alike(early, value_error)


def test_a_signature_that_another_version_wrote_otherwise_is_made_anew() -> None:
    assert section(replace(result("FAIL"), signature="value by torch.sort"), result("FAIL")) == ""


def test_the_operator_of_a_wrong_value_counts_where_both_know_it() -> None:
    assert section(result("FAIL", operator="torch.sort"), result("FAIL", operator="torch.sum")) == "changed"


# --- times ------------------------------------------------------------------------------------


def timed(seconds: float, verdict: str = "PASS", **fields: Any) -> VariantFinished:
    return result(verdict, spent={"torch": seconds, "busy": seconds}, **fields)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (2.0, 4.0, "slower"),
        (2.1, 4.1, ""),  # 2 seconds, but less than twice
        (1.0, 2.9, ""),  # more than twice, but not 2 seconds
        (4.0, 2.0, ""),
        (0.0, 9.0, ""),  # nobody counted
    ],
)
def test_slower_takes_a_ratio_and_seconds(old: float, new: float, expected: str) -> None:
    assert section(timed(old), timed(new)) == expected


def test_the_reason_of_slower_has_the_seconds() -> None:
    (change,) = difference(timed(1.0), timed(5.0)).changes
    assert change.reason == "1.00s to 5.00s in torch, 5.0 times"


@pytest.mark.parametrize(
    "new",
    [
        timed(9.0, cached="run"),
        timed(9.0, attempts=3),
        timed(9.0, backend="aot_eager"),
        timed(9.0, "XPASS"),
    ],
)
def test_times_that_say_nothing_about_compiling_are_left_out(new: VariantFinished) -> None:
    assert section(timed(1.0), new) == ""
    assert difference(timed(1.0), new).times == ()


def test_no_variant_is_slower_where_all_of_its_backend_are() -> None:
    def slower(count: int, factor: float) -> Comparison:
        keys = [(str(number), "") for number in range(count)]
        old = {key: timed(1.0, name=key[0]) for key in keys}
        new = {key: timed(factor, name=key[0]) for key in keys}
        new["0", ""] = timed(9.0, name="0")
        old["other", ""], new["other", ""] = (timed(seconds, backend="aot_eager") for seconds in (1.0, 9.0))
        return compare(side(old), side(new))

    assert [change.id for change in slower(PAIRS, 1.4).changes] == ["0", "other"]
    assert [change.id for change in slower(PAIRS, 1.6).changes] == ["other"]
    assert [(t.backend, t.pairs, t.ratio, t.shifted) for t in slower(PAIRS, 1.6).times] == [
        ("inductor", PAIRS, 1.6, True),
        ("aot_eager", 1, 9.0, False),
    ]
    assert [change.id for change in slower(PAIRS - 1, 1.6).changes] == ["0", "other"]


def test_sections_come_in_order_with_their_counts() -> None:
    comparison = difference(result("PASS"), result("FAIL"))
    assert [*comparison.counts] == [*SECTIONS] and comparison.counts["broken"] == 1
    assert [change.id for change in comparison.section("broken")] == ["a"] and comparison.section("fixed") == []


def log(path: str, *results: tuple[str, str, str], end: Sequence[Event] = (RunFinished(0, 1.0),)) -> Log:
    """A run of (name, backend, torch)."""
    events = [finished("PASS", name, backend, torch) for name, backend, torch in results]
    return Log(Path(path), [started(run=path), *events, *end])


OLD = log("old", ("a", "inductor", "2.6.0"), ("b", "inductor", "2.6.0"))
NEW = log("new", ("b", "inductor", "2.13.0"), ("c", "inductor", "2.13.0"))
BOTH = log(
    "both",
    *((name, backend, torch) for name in "ab" for backend in ("eager", "inductor") for torch in ("2.6.0", "2.13.0")),
)


def ids(comparison: Comparison) -> list[str]:
    return [change.id for change in comparison.changes]


def paired(old: Side, new: Side) -> set[Pairing]:
    return old.results.keys() & new.results.keys()


def variant(name: str, backend: str = "inductor") -> str:
    return f"{FILE}::{name}[float32,cpu]@{backend}"


def test_two_runs_of_a_version_each_pair_by_id() -> None:
    old, new = sides(OLD, NEW)
    assert paired(old, new) == {(variant("b"), "")}
    assert ids(compare(old, new)) == [variant("c"), variant("a")]
    assert (old.torches, new.torches, old.run, new.log) == (("2.6.0",), ("2.13.0",), "old", "new")


def test_two_versions_of_one_run_pair_by_id() -> None:
    old, new = sides(BOTH, BOTH, ("2.6.0", "2.13.0"))
    assert len(old.results) == len(new.results) == len(paired(old, new)) == 4
    assert {e.torch for e in old.results.values()} == {"2.6.0"} and {e.torch for e in new.results.values()} == {"2.13.0"}  # fmt: skip


def test_two_backends_of_one_run_pair_by_label_and_version() -> None:
    old, new = sides(BOTH, BOTH, backend=("eager", "inductor"))
    assert len(paired(old, new)) == 4
    assert (f"{FILE}::a[float32,cpu]", "2.6.0") in new.results
    assert f"{FILE}::a[float32,cpu] torch 2.6.0" in ids(compare(old, replace(new, variants={})))
    assert (old.backends, new.backends) == (("eager",), ("inductor",))


def test_a_version_and_a_backend_together() -> None:
    _, new = sides(BOTH, BOTH, ("2.6", "2.13"), ("eager", "inductor"))
    assert [*new.results] == [(f"{FILE}::a[float32,cpu]", ""), (f"{FILE}::b[float32,cpu]", "")]
    assert {(e.torch, e.backend) for e in new.results.values()} == {("2.13.0", "inductor")}


def test_two_runs_of_the_same_versions_pair_version_by_version() -> None:
    old, new = sides(BOTH, Log(Path("again"), BOTH.events))
    assert len(paired(old, new)) == 8
    assert f"{variant('a')} torch 2.6.0" in ids(compare(old, replace(new, variants={})))


def test_a_version_picks_a_side_of_a_run_with_several() -> None:
    old, new = sides(BOTH, NEW, ("2.6", "2.13"))
    assert paired(old, new) == {(variant("b"), "")}


@pytest.mark.parametrize(
    ("old", "new", "torch", "backend", "message"),
    [
        (BOTH, BOTH, None, None, "both sides are one.*torch 2.6.0, 2.13.0 and backend eager, inductor"),
        (BOTH, BOTH, ("2.6", "2.6.0"), None, "both sides are one"),
        (BOTH, NEW, None, None, "nothing says which torch pairs with which.*both has.*new has"),
        (OLD, NEW, ("2.6", "2.6"), None, "--torch 2.6: no such version here: new has torch 2.13.0"),
        (BOTH, BOTH, ("2", "2.13.0"), None, "2.6.0 and 2.13.0 both fit"),
        (BOTH, BOTH, ("old", "2.13.0"), None, "--torch old: no such version"),
        (OLD, NEW, None, ("inductor", "eager"), "--backend eager: no such backend here: new has"),
        (OLD, Log(Path("new"), [started()]), None, ("inductor", "inductor"), "new has no variant"),
    ],
)
def test_what_does_not_pair_is_refused(
    old: Log, new: Log, torch: tuple[str, str] | None, backend: tuple[str, str] | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        sides(old, new, torch, backend)
    assert error.value.code == 4


def test_what_a_run_left_undone_is_counted() -> None:
    undone = Log(Path("new"), [started(), planned("a"), planned("b"), finished("PASS", "a"), RunFinished(2, 1.0, True)])
    old, new = sides(OLD, undone)
    assert (new.unfinished, new.whole, len(new.results)) == (1, False, 1)
    assert ids(compare(old, new)) == [variant("b")]
    assert not sides(OLD, log("new", ("a", "inductor", "2.13.0"), end=()))[1].whole
    assert sides(OLD, NEW)[1].whole
