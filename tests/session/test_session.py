"""A session with an engine whose outcomes are scripted: what is asked for, and what becomes of a variant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Backend, Variant
from runner.contract.job import Job
from runner.record.events import Notice, VariantFinished, VariantPlanned, VariantStarted
from runner.report.table import cell_text
from runner.session.plan import plan
from runner.session.run import Session
from runner.verdict.explained import EMULATE_CASTS
from tests.handmade import environment, loaded, variants, written
from tests.scripted import FakeEngine, Script, context, only, passes, purpose, run, verdicts, wrong


@pytest.fixture
def batch(tmp_path: Path) -> list[Variant]:
    return variants(tmp_path, "")


def test_a_pass_is_one_job(batch: list[Variant]) -> None:
    code, engine, events = run(batch, passes)
    assert (code, engine.asked()) == (0, [("main", "inductor")])
    assert [type(event) for event in events] == [VariantPlanned, VariantStarted, VariantFinished]
    (event,) = verdicts(events)
    assert (event.verdict, event.findings, event.stages, event.repro, event.entry) == ("PASS", (), {}, "", None)


@pytest.mark.parametrize("cached", [True, False])
def test_jobs_list_loaded_code_in_runs_that_keep_results(batch: list[Variant], cached: bool) -> None:
    _, engine, _ = run(batch, passes, cached=cached)
    assert [job.lists_code for job in engine.jobs] == [cached]


# --- the ladder ---


def test_a_failure_climbs_the_ladder_and_is_located(batch: list[Variant]) -> None:
    code, engine, events = run(batch, only("main", "decomposition", **wrong()))
    assert code == 1
    assert engine.asked() == [
        ("main", "inductor"), ("dynamo", "eager"), ("aot", "aot_eager"), ("decomposition", "aot_eager_decomp_partition"),
    ]  # fmt: skip
    (event,) = verdicts(events)
    assert (event.verdict, event.stage, event.oracles) == ("FAIL", "decomposition", ("value",))
    assert event.stages == {"dynamo": "ok", "aot": "ok", "decomposition": "value", "inductor": "value"}
    assert event.repro.startswith("runner run ")


def test_the_ladder_reads_from_the_bottom_up_whichever_stage_answers_first(batch: list[Variant]) -> None:
    planned, events = plan(batch, [environment("2.13.0")]), []  # type: ignore[var-annotated]
    engine = FakeEngine(only("main", **wrong()), place=-1)
    events.extend(Session(planned, engine, context()).events())
    assert [*verdicts(events)[0].stages] == ["dynamo", "aot", "decomposition", "inductor"]


def test_what_only_the_backend_itself_shows_is_its_own(batch: list[Variant]) -> None:
    _, _, events = run(batch, only("main", **wrong()))
    assert verdicts(events)[0].stage == "inductor"


def test_another_kind_of_failure_below_is_not_the_same(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return wrong("value") if purpose == "main" else wrong("stride") if purpose == "dynamo" else {}

    (event,) = verdicts(run(batch, script)[2])
    assert (event.stage, event.stages["dynamo"]) == ("inductor", "stride")


def test_the_stage_shown_is_that_of_the_worst_finding(batch: list[Variant]) -> None:
    both = {"findings": [*wrong("stride")["findings"], *wrong("value")["findings"]]}
    _, _, events = run(batch, lambda job, purpose: both if purpose == "main" else wrong("value"))
    (event,) = verdicts(events)
    assert (event.oracles, event.severity, event.stage) == (("stride", "value"), "wrong-result", "dynamo")
    assert [finding.stage for finding in event.findings] == ["inductor", "dynamo"]
    assert cell_text(event) == "FAIL dynamo value+"


def test_a_custom_backend_is_tried_against_dynamo_alone(tmp_path: Path) -> None:
    variants(tmp_path, "")
    suite = written(tmp_path, "suite: s\nspecs: [a.spec.yaml]\nbackends: ['pkg:mine']\n", "s.suite.yaml")
    _, engine, events = run([*loaded(suite, allow_python=True).variants], only("main", **wrong()))
    assert engine.asked() == [("main", "pkg:mine"), ("dynamo", "eager")]
    assert verdicts(events)[0].stage == "backend"


def test_a_stage_that_was_not_tried_is_not_ok(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        if purpose == "aot":
            return {"ended": "broken", "phase": "load", "detail": "oops"}
        if purpose == "decomposition":  # a torch that has no such backend
            return {"trust": {"verdict": "INVALID", "reason": "no backend"}}
        return wrong() if purpose == "main" else {}

    code, _, events = run(batch, script)
    assert (code, verdicts(events)[0].stages) == (1, {"dynamo": "ok", "inductor": "value"})


def test_the_ledger_pins_the_stage_that_was_located(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "known:\n  - {stage: aot, oracle: [value], reason: known}")
    code, _, events = run(chosen, only("main", "aot", "decomposition", **wrong()))
    (event,) = verdicts(events)
    assert (code, event.verdict, event.known, event.repro) == (0, "XFAIL", "known", "")
    assert event.entry == f"{tmp_path / 'a.spec.yaml'}:6:9"
    code, _, events = run(chosen, only("main", **wrong()))
    (event,) = verdicts(events)
    assert (code, event.verdict, event.entry) == (1, "FAIL", f"{tmp_path / 'a.spec.yaml'}:6:9")
    code, _, events = run(chosen, only("main", **wrong()), no_known=True)
    assert (code, verdicts(events)[0].entry) == (1, None)
    code, _, events = run(chosen, passes)
    assert (code, verdicts(events)[0].verdict, verdicts(events)[0].entry) == (1, "XPASS", event.entry)


# --- deaths ---


@pytest.mark.parametrize("how", ["signal", "timeout", "memory", "no-result"])
@pytest.mark.parametrize(
    ("phase", "verdict", "ladder"),
    [
        ("load", "INVALID", 0),
        ("eager", "INVALID", 0),
        ("eager-again", "FLAKY", 0),
        ("backend", "ERROR", 3),
        ("judge", "ERROR", 3),
    ],
)
def test_whose_fault_a_death_is(batch: list[Variant], how: str, phase: str, verdict: str, ladder: int) -> None:
    code, engine, events = run(
        batch, only("main", ended=how, phase=phase, signal="SIGSEGV" if how == "signal" else None)
    )
    (event,) = verdicts(events)
    assert (code, event.verdict, len(engine.jobs) - 1) == (1, verdict, ladder)
    assert event.signal == ("SIGSEGV" if how == "signal" else None)
    assert bool(event.findings) is (verdict == "ERROR")


def test_a_death_of_the_float64_reference_is_retried_without_it(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return {"ended": "signal", "phase": "float64", "signal": "SIGSEGV"} if job.float64 else {}

    code, engine, events = run(batch, script)
    assert (code, [job.float64 for job in engine.jobs]) == (0, [True, False])
    (event,) = verdicts(events)
    assert event.verdict == "PASS"
    assert event.notes == ("float64 reference dropped: the process was ended by SIGSEGV while it ran",)


def test_the_ladder_does_not_die_of_it_again(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        if job.float64:
            return {"ended": "timeout", "phase": "float64"}
        return {"ended": "signal", "phase": "backend", "signal": "SIGSEGV"} if purpose == "main" else {}

    _, engine, events = run(batch, script)
    assert [job.float64 for job in engine.jobs] == [True, False, False, False, False]
    (event,) = verdicts(events)
    assert (event.stage, event.oracles) == ("inductor", ("signal",))


def test_a_death_of_the_reference_on_the_ladder_alone_blames_no_stage(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        if purpose == "main":
            return wrong("signal")
        return {"ended": "signal", "phase": "float64", "signal": "SIGSEGV"} if job.float64 else {}

    _, engine, events = run(batch, script)
    assert [(purpose(job), job.float64) for job in engine.jobs if purpose(job) == "dynamo"] == [
        ("dynamo", True),
        ("dynamo", False),
    ]
    (event,) = verdicts(events)
    assert (event.stage, event.notes) == ("inductor", ())


def test_a_broken_harness_is_no_failure_of_the_case(batch: list[Variant]) -> None:
    code, engine, events = run(batch, only("main", ended="broken", phase="load", detail="Traceback: oops"))
    assert (code, len(engine.jobs)) == (3, 1)
    notice = next(event for event in events if isinstance(event, Notice))
    assert notice.severity == "error" and notice.message.endswith("Traceback: oops")
    assert verdicts(events)[0].verdict == "ERROR"
    assert verdicts(events)[0].reason == "the harness failed; this says nothing about the backend"


WORKER_ERROR = {"ended": "worker-error", "phase": "backend", "detail": "Traceback\nValueError: oops"}


def test_a_worker_that_fails_over_a_case_costs_that_case_alone(tmp_path: Path) -> None:
    """Whatever a case does to its process, it makes no run end as one whose harness failed."""
    chosen = variants(tmp_path, "dtypes: [float32, float16]")
    code, engine, events = run(chosen, lambda job, purpose: WORKER_ERROR if job.dtype == "float32" else {})
    assert (code, len(engine.jobs)) == (1, 2) and not [event for event in events if isinstance(event, Notice)]
    assert [event.verdict for event in verdicts(events)] == ["ERROR", "PASS"]
    event = next(event for event in verdicts(events) if event.verdict == "ERROR")
    assert event.reason.startswith("the worker failed while it had this case") and event.reason.endswith(
        "ValueError: oops"
    )
    assert event.stack == "Traceback\nValueError: oops" and not event.findings
    long = {**WORKER_ERROR, "detail": "x" * 10**6 + "\nValueError: oops"}
    (event,) = verdicts(run(chosen[:1], lambda job, purpose: long)[2])
    assert len(event.stack) == 1 << 16 and event.reason.endswith("ValueError: oops")


def test_a_full_disk_under_a_compiler_is_an_error_of_the_variant(batch: list[Variant]) -> None:
    finding = wrong("compile-error")["findings"][0] | {"error": {"message": "a.cpp: No space left on device"}}
    code, _, events = run(batch, only("main", findings=[finding]))
    assert (code, verdicts(events)[0].verdict) == (1, "ERROR")
    assert verdicts(events)[0].reason == "this machine cannot compile: a.cpp: No space left on device"


@pytest.mark.parametrize("result", [{"trust": 3}, {"findings": [3]}, {"findings": 3}])
def test_an_answer_that_control_cannot_use_costs_its_variant_alone(
    batch: list[Variant], result: dict[str, Any]
) -> None:
    code, _, events = run(batch, only("main", **result))
    (event,) = verdicts(events)
    assert (code, event.verdict) == (1, "ERROR") and event.reason.startswith("its answer cannot be used: ")
    assert event.stack.startswith("Traceback")


# --- explained differences ---


def half(tmp_path: Path) -> list[Variant]:
    return variants(tmp_path, "dtypes: [float16]")


SMALL = wrong(abs_error_max=0.001, scale=1.0)


def test_a_difference_that_a_policy_explains_passes_with_a_label(tmp_path: Path) -> None:
    code, engine, events = run(half(tmp_path), only("main", **SMALL))
    assert code == 0
    assert [purpose(job) for job in engine.jobs] == ["main", "dynamo", "aot", "decomposition", EMULATE_CASTS]
    assert engine.jobs[-1].config == {EMULATE_CASTS: True} and engine.jobs[-1].backend["backend"] == "inductor"
    (event,) = verdicts(events)
    assert (event.verdict, event.findings, event.labels) == ("PASS", (), ("explained-by-emulate_precision_casts",))
    assert event.notes == (f"value at call 0, output: it differs; passes under {EMULATE_CASTS}",)


@pytest.mark.parametrize(
    "probe",
    [
        SMALL,
        {"ended": "timeout", "phase": "backend"},
        {"ended": "signal", "phase": "eager", "signal": "SIGSEGV"},
        {"trust": {"verdict": "VACUOUS", "reason": "nothing compiled"}},
        {"ended": "broken", "detail": "oops"},
    ],
)
def test_a_probe_that_does_not_pass_explains_nothing(tmp_path: Path, probe: dict[str, Any]) -> None:
    script: Script = lambda job, purpose: SMALL if purpose == "main" else probe if purpose == EMULATE_CASTS else {}  # noqa: E731
    code, _, events = run(half(tmp_path), script)
    assert (code, verdicts(events)[0].verdict, verdicts(events)[0].labels) == (1, "FAIL", ())


def test_an_explained_difference_is_no_known_failure(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "dtypes: [float16]\nknown:\n  - {oracle: [value], reason: rounding}")
    assert verdicts(run(chosen, only("main", **SMALL))[2])[0].verdict == "XPASS"


# --- the run ---


def test_a_skipped_variant_takes_no_process(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "requires: {torch: '>=2.7'}")
    code, engine, events = run(chosen, passes, ("2.6.0", "2.13.0"))
    assert (code, len(engine.jobs)) == (0, 1)
    assert [(e.torch, e.verdict) for e in verdicts(events)] == [("2.6.0", "SKIP"), ("2.13.0", "PASS")]
    assert verdicts(events)[0].reason == "needs torch >=2.7, this is 2.6.0"


def test_what_the_worker_skips(batch: list[Variant]) -> None:
    code, _, events = run(batch, only("main", trust={"verdict": "SKIP", "reason": "no triton"}))
    assert (code, verdicts(events)[0].verdict, verdicts(events)[0].reason) == (0, "SKIP", "no triton")


@pytest.mark.parametrize("doubt", ["INVALID", "FLAKY", "VACUOUS"])
def test_doubt_is_red_and_climbs_no_ladder(batch: list[Variant], doubt: str) -> None:
    code, engine, events = run(batch, only("main", trust={"verdict": doubt, "reason": "why"}))
    assert (code, len(engine.jobs), verdicts(events)[0].verdict) == (1, 1, doubt)


def test_fail_fast_starts_nothing_after_the_first_failure(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "params: {n: [1, 2, 3, 4, 5, 6, 7, 8]}")
    fails: Script = lambda job, purpose: {"trust": {"verdict": "FLAKY", "reason": "why"}}  # noqa: E731
    code, engine, events = run(chosen, fails, max_fail=1)
    assert code == 1
    assert len(verdicts(events)) == len(engine.jobs) == 1
    assert sum(isinstance(e, VariantPlanned) for e in events) == 8
    assert len(verdicts(run(chosen, fails)[2])) == 8


@pytest.mark.parametrize(("most", "slots", "ran"), [(3, 1, 3), (1, 4, 4), (99, 1, 8)])
def test_a_number_of_failures_stops_the_run(tmp_path: Path, most: int, slots: int, ran: int) -> None:
    chosen = variants(tmp_path, "params: {n: [1, 2, 3, 4, 5, 6, 7, 8]}")
    fails: Script = lambda job, purpose: {"trust": {"verdict": "FLAKY", "reason": "why"}}  # noqa: E731
    _, _, events = run(chosen, fails, max_fail=most, slots=slots)
    assert len(verdicts(events)) == ran  # what had started by then comes to its verdict


def test_a_deadline_ends_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "params: {n: [1, 2, 3]}")
    engine = FakeEngine(passes)
    session = Session(plan(chosen, [environment()]), engine, context(deadline=0.0))
    assert [*session.events()] == [] and (session.code, session.late, session.unfinished) == (0, True, 3)
    assert engine.jobs == []


# --- more than once ---


def test_a_red_variant_is_retried_until_it_does_otherwise(batch: list[Variant]) -> None:
    answers = iter([wrong(), wrong(), {}])
    script: Script = lambda job, purpose: next(answers) if purpose == "main" else {}  # noqa: E731
    code, _, events = run(batch, script, retries=5)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.attempts) == (1, "FLAKY", 3)
    assert event.tally == {}, "a retry is made because of the verdict before it, so their counts are no rate"
    assert event.reason.startswith("3 runs disagree: 2 FAIL, 1 PASS; run 1: value at call 0")
    assert sum(isinstance(e, VariantStarted) for e in events) == 1


def test_retries_have_an_end_and_a_pass_needs_none(batch: list[Variant]) -> None:
    _, engine, events = run(batch, only("main", **wrong()), retries=2)
    assert (verdicts(events)[0].verdict, verdicts(events)[0].attempts) == ("FAIL", 3)
    assert [purpose(job) for job in engine.jobs].count("main") == 3
    assert len(run(batch, passes, retries=2)[1].jobs) == 1


def test_stress_runs_all_and_finds_the_odd_one(batch: list[Variant]) -> None:
    answers = iter([{}, {}, {}, wrong(), {}])
    script: Script = lambda job, purpose: next(answers) if purpose == "main" else {}  # noqa: E731
    (event,) = verdicts(run(batch, script, stress=5)[2])
    assert (event.verdict, event.attempts, event.oracles) == ("FLAKY", 5, ("value",))
    assert event.reason.startswith("5 runs disagree: 4 PASS, 1 FAIL; run 4: value")
    assert event.tally == {"PASS": 4, "FAIL": 1}
    (event,) = verdicts(run(batch, passes, stress=5)[2])
    assert (event.verdict, event.attempts, event.tally) == ("PASS", 5, {"PASS": 5})


def test_what_time_went_into(batch: list[Variant]) -> None:
    script: Script = lambda job, purpose: {"busy": 2.0}  # noqa: E731
    (event,) = verdicts(run(batch, script)[2])
    assert event.spent["busy"] == 2.0
    (event,) = verdicts(run(batch, script, slow=0.5)[2])
    assert event.labels == ("slow",)


def test_ladders_of_several_variants_do_not_mix(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "params: {n: [1, 2]}")

    def script(job: Job, purpose: str) -> dict[str, Any]:
        if "n=1" in job.id:
            return wrong() if purpose in ("main", "aot", "decomposition") else {}
        return wrong("stride") if purpose == "main" and job.environment == "2.6.0" else {}

    code, _, events = run(chosen, script, ("2.6.0", "2.13.0"), slots=4)
    outcomes = {(e.params["n"], e.torch): (e.verdict, e.stage) for e in verdicts(events)}
    assert outcomes == {
        (1, "2.6.0"): ("FAIL", "aot"), (1, "2.13.0"): ("FAIL", "aot"), (2, "2.6.0"): ("FAIL", "inductor"), (2, "2.13.0"): ("PASS", None),
    }  # fmt: skip
    assert code == 1


def test_the_command_that_reproduces_a_variant(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "")
    options = {"imports": ("m",), "backend": ("inductor",), "device": ("cpu",), "default_python": "/other"}
    (event,) = verdicts(run(chosen, only("main", **wrong()), **options)[2])
    assert event.repro.endswith("::a[float32,cpu]@inductor' --import m --python /venvs/2.13.0/bin/python")
    own = [replace(v, backend=Backend("my:fn", "my:fn"), id=v.id.replace("@inductor", "@my:fn")) for v in chosen]
    (event,) = verdicts(run(own, only("main", **wrong()), backend=("my:fn",), default_python="/other")[2])
    assert "::a[float32,cpu]@my:fn' --backend my:fn --python" in event.repro


def test_what_runs_is_told_to_the_ticker(batch: list[Variant]) -> None:
    ticks: list[Any] = []
    engine = FakeEngine(only("main", **wrong()))
    assert [*Session(plan(batch, [environment()]), engine, context(), ticks.append).events()]
    assert [(batch[0].id, 1.0, "eager")] in ticks and ticks[-1] == []


def test_what_torch_lacks_is_said_once_in_a_run(tmp_path: Path) -> None:
    pair = variants(tmp_path, "params: {n: [2, 3]}")
    lacks = ("torch 9 has no counters: graphs are not counted", "torch 9 has no logs: nothing is logged")
    _, _, events = run(pair, lambda job, purpose: {"unchecked": lacks[: 1 + ("3" in job.id)]})
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert len(verdicts(events)) == 2 and sorted(notices) == sorted(lacks)
