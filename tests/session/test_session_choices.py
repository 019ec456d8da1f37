"""A finding that a benchmark of torch brings about: it is asked again with the choice pinned either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.contract.job import Job
from runner.report.failure import render_failure
from runner.verdict.explained import PINS
from tests.handmade import loaded, variants, written
from tests.scripted import Script, run, verdicts, wrong

PADDED = {**wrong("stride"), "benchmarked": ["padding"]}
ENTRY = "{choice: padding, oracle: [stride], reason: machines differ}"


def script(main: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> Script:
    """Answers of the variant itself, and with either pin; the stages below pass."""
    answers = {"main": main, "padding-1": first, "padding-2": second}
    return lambda job, purpose: answers.get(purpose, {})


def test_a_choice_that_decides_is_named_with_what_both_pins_show(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "")
    code, engine, events = run(chosen, script(PADDED, {}, wrong("stride")))
    (event,) = verdicts(events)
    assert (code, event.verdict, [finding.choice for finding in event.findings]) == (1, "FAIL", ["padding"])
    configs = {job.key.rpartition("-")[2]: job.config for job in engine.jobs if "padding" in job.key}
    assert configs == {"1": PINS["padding"][0], "2": PINS["padding"][1]}
    assert "with shape_padding=False it passes, with force_shape_pad=True stride" in " ".join(event.notes)
    assert "stride at call 0, output (a benchmark chose: padding)" in render_failure(event)


@pytest.mark.parametrize(
    "pinned", [(wrong("stride"), wrong("stride")), ({}, {}), ({"ended": "broken"}, wrong("stride"))]
)
def test_a_choice_that_decides_nothing_is_not_named(tmp_path: Path, pinned: tuple[Any, Any]) -> None:
    (event,) = verdicts(run(variants(tmp_path, ""), script(PADDED, *pinned))[2])
    assert [finding.choice for finding in event.findings] == [None]
    assert not any("benchmark" in note for note in event.notes)


def test_without_a_benchmark_nothing_is_pinned(tmp_path: Path) -> None:
    _, engine, _ = run(variants(tmp_path, ""), script(wrong("stride"), {}, {}))
    assert not any("padding" in job.key for job in engine.jobs)


def test_a_case_that_pins_it_itself_is_not_asked_again(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "config: {torch._inductor.config.shape_padding: true}")
    _, engine, _ = run(chosen, script(PADDED, {}, {}))
    assert not any("padding" in job.key for job in engine.jobs)


def test_one_entry_of_a_suite_holds_for_cases_with_entries_of_their_own(tmp_path: Path) -> None:
    own = "known:\n  - {oracle: [value], sometimes: true, reason: own}"
    variants(tmp_path, own)
    suite = "suite: s\nspecs: [a.spec.yaml]\ndefaults:\n  known: [%s, {oracle: [dtype], reason: other}]\n"
    chosen = [*loaded(written(tmp_path, suite % ENTRY, "s.suite.yaml")).variants]
    assert [(known.reason, known.choice) for known in chosen[0].case.known] == [
        ("own", None), ("machines differ", "padding"),
    ]  # fmt: skip
    code, _, events = run(chosen, script(PADDED, {}, wrong("stride")))
    assert (code, verdicts(events)[0].verdict, verdicts(events)[0].known) == (0, "XFAIL", "machines differ")
    code, _, events = run(chosen, lambda job, purpose: {})
    assert (code, verdicts(events)[0].verdict) == (0, "PASS")
    code, _, events = run(chosen, script(PADDED, wrong("stride"), wrong("stride")))
    assert (code, verdicts(events)[0].verdict) == (1, "FAIL")


def test_suites_with_and_without_the_entry_can_run_together(tmp_path: Path) -> None:
    variants(tmp_path, "")
    plain = written(tmp_path, "suite: p\nspecs: [a.spec.yaml]\n", "p.suite.yaml")
    text = f"suite: s\nspecs: [a.spec.yaml]\ndefaults:\n  known: [{ENTRY}]\n"
    suite = written(tmp_path, text, "s.suite.yaml")
    for order in ([plain, suite], [suite, plain]):
        (variant,) = loaded(*order).variants
        assert [known.choice for known in variant.case.known] == ["padding"] and len(variant.suites) == 2


def test_a_failure_that_a_fresh_process_does_not_show_is_known_too(tmp_path: Path) -> None:
    chosen = variants(tmp_path, f"known:\n  - {ENTRY}")

    def answer(job: Job, purpose: str) -> dict[str, Any]:
        return {} if purpose in ("confirm", "as-user") else script(PADDED, {}, wrong("stride"))(job, purpose)

    code, _, events = run(chosen, answer)
    assert (code, verdicts(events)[0].verdict) == (0, "XFAIL")
