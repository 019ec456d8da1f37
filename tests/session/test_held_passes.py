"""Passes of which a ledger in a file of its own speaks: XPASS where none of an entry's variants fails, else PASS."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.contract.job import Job
from runner.record.events import VariantFinished
from runner.session.collect import Loaded, collect
from runner.session.held_passes import HeldPasses
from runner.session.plan import plan
from runner.session.run import Session
from runner.session.settings import RunSettings
from runner.session.shards import ledger_texts, plan_hash
from tests.handmade import environment, variants, written
from tests.scripted import FakeEngine, Script, context, run, verdicts, wrong

ENTRY = "{operators: [F.relu], oracle: [value], reason: r}"
LATER = "2.13.0"


def collected(folder: Path, *entries: str, select: str | None = None) -> Loaded:
    variants(folder, "params: {n: [1, 2, 3]}")
    path = written(folder, "known:\n" + "".join(f"  - {entry}\n" for entry in entries), "acme.ledger.yaml")
    return collect([folder / "a.spec.yaml"], RunSettings(ledger=(str(path),), select=select))


def failing(*numbers: int, oracle: str = "value") -> Script:
    """A script in which the variants of these ``n`` are wrong, at each stage."""
    return lambda job, purpose: wrong(oracle) if any(f"n={number}," in job.key for number in numbers) else {}


def words(events: list[VariantFinished]) -> dict[object, str]:
    return {event.params["n"]: event.verdict for event in events}


def told(loaded: Loaded, script: Script) -> tuple[int, dict[object, str]]:
    code, _, events = run([*loaded.variants], script)
    return code, words(verdicts(events))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_passes_stay_passes_while_one_variant_fails(tmp_path: Path, number: int) -> None:
    expected = {1: "PASS", 2: "PASS", 3: "PASS"} | {number: "XFAIL"}
    assert told(collected(tmp_path, ENTRY), failing(number)) == (0, expected)


def test_where_none_fails_each_pass_is_red(tmp_path: Path) -> None:
    code, _, events = run([*collected(tmp_path, ENTRY).variants], failing())
    results = verdicts(events)
    assert (code, words(results)) == (1, {1: "XPASS", 2: "XPASS", 3: "XPASS"})
    assert results[0].entry == f"{tmp_path / 'acme.ledger.yaml'}:2:5" and results[0].known == "r"
    assert "acme.ledger.yaml:2)" in results[0].reason and results[0].signature.startswith("XPASS: ")


def test_another_failure_is_red_and_holds_the_entry(tmp_path: Path) -> None:
    expected = {1: "FAIL", 2: "PASS", 3: "PASS"}
    assert told(collected(tmp_path, ENTRY), failing(1, oracle="stride")) == (1, expected)


def test_one_entry_may_be_fixed_beside_one_that_holds(tmp_path: Path) -> None:
    fixed = "{case: a, params: {n: 3}, oracle: [value], reason: s}"
    assert told(collected(tmp_path, ENTRY, fixed), failing(1)) == (1, {1: "XFAIL", 2: "PASS", 3: "XPASS"})


@pytest.mark.parametrize("entry", ["{oracle: [value], sometimes: true, reason: r}", "{case: b, reason: r}"])
def test_an_entry_that_expects_nothing_here_keeps_nothing_back(tmp_path: Path, entry: str) -> None:
    assert told(collected(tmp_path, entry), failing()) == (0, {1: "PASS", 2: "PASS", 3: "PASS"})


def test_it_does_not_count_without_the_ledger(tmp_path: Path) -> None:
    loaded = collected(tmp_path, ENTRY)
    planned = plan(loaded.variants, [environment(LATER)])
    session = Session(planned, FakeEngine(failing(1)), context(no_known=True), held=HeldPasses(()))
    events = [event for event in session.events() if isinstance(event, VariantFinished)]
    assert words(events) == {1: "FAIL", 2: "PASS", 3: "PASS"}


def test_nothing_is_fixed_where_variants_were_left_out(tmp_path: Path) -> None:
    loaded = collected(tmp_path, ENTRY, select="not n=1")
    planned = plan(loaded.variants, [environment(LATER)])
    held = HeldPasses(planned, [(variant, LATER) for variant in loaded.left_out])
    session = Session(planned, FakeEngine(failing()), context(), held=held)
    assert [event.verdict for event in session.events() if isinstance(event, VariantFinished)] == ["PASS", "PASS"]


def test_a_run_that_goes_on_knows_what_failed_before(tmp_path: Path) -> None:
    loaded = collected(tmp_path, ENTRY)
    planned = plan(loaded.variants, [environment(LATER)])
    _, _, events = run([*loaded.variants], failing(1))
    for count, word in ((1, "PASS"), (0, "XPASS")):
        past = verdicts(events)[:count]
        rest = planned[count:]
        held = HeldPasses(planned if count else rest, past=past)
        session = Session(rest, FakeEngine(failing()), context(), held=held)
        assert {event.verdict for event in session.events() if isinstance(event, VariantFinished)} == {word}


def test_a_run_that_is_cut_short_gives_what_it_held_back(tmp_path: Path) -> None:
    planned = plan(collected(tmp_path, ENTRY).variants, [environment(LATER)])

    def stops(job: Job, purpose: str) -> dict[str, object]:
        if "n=2," in job.key:
            raise KeyboardInterrupt
        return {}

    session = Session(planned, FakeEngine(stops), context())
    with pytest.raises(KeyboardInterrupt):
        assert not [event for event in session.events() if isinstance(event, VariantFinished)]
    assert words(session.held.rest()) == {1: "PASS"} and session.held.rest() == []


def test_each_torch_is_asked_for_itself(tmp_path: Path) -> None:
    def old(job: Job, purpose: str) -> dict[str, object]:
        return wrong() if "2.6" in job.key and "n=1," in job.key else {}

    _, _, events = run([*collected(tmp_path, ENTRY).variants], old, ("2.6.0", LATER))
    by_torch = {torch: words([e for e in verdicts(events) if e.torch == torch]) for torch in ("2.6.0", LATER)}
    assert by_torch["2.6.0"] == {1: "XFAIL", 2: "PASS", 3: "PASS"}
    assert set(by_torch[LATER].values()) == {"XPASS"}


def test_the_signature_is_asked_when_the_operator_is_known(tmp_path: Path) -> None:
    pinned = '{oracle: [value], signature: "%s", reason: r}'
    loaded = collected(tmp_path, pinned % "value of F.gelu at dynamo")
    _, _, events = run([*loaded.variants], failing(1))
    (failure,) = (event for event in verdicts(events) if event.verdict == "FAIL")
    for name in (failure.signature, failure.signature_id):
        code, word = told(collected(tmp_path, pinned % name), failing(1))
        assert (code, word) == (0, {1: "XFAIL", 2: "PASS", 3: "PASS"})


def test_the_plan_changes_with_the_ledger_and_the_cases_do_not(tmp_path: Path) -> None:
    first, second = collected(tmp_path, ENTRY).variants, collected(tmp_path, "{reason: s}").variants
    assert first[0].case == second[0].case
    assert plan_hash(plan(first, [environment()])) == plan_hash(plan(second, [environment()]))
    assert ledger_texts(first) != ledger_texts(second) and len(ledger_texts(first)) == 1
    assert ledger_texts(variants(tmp_path, "")) == []
