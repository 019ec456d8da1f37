"""What a session makes of a failure that a second process shows, or does not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Variant
from runner.contract.job import Job
from runner.contract.settings import AS_USER
from runner.engine.caches import make_cache_key
from runner.engine.fingerprint import Fingerprint
from runner.record.events import Notice
from tests.handmade import loaded, variants, written
from tests.scripted import Script, only, purpose, run, verdicts, wrong

KERNELS = Path(__file__).resolve().parents[2] / "specs" / "kernels"


@pytest.fixture
def batch(tmp_path: Path) -> list[Variant]:
    return variants(tmp_path, "")


def test_a_failure_is_confirmed_in_a_fresh_process(batch: list[Variant]) -> None:
    code, engine, events = run(batch, only("main", "as-user", **wrong()), confirm=True)
    assert (code, engine.asked()[0], engine.asked()[1]) == (1, ("main", "inductor"), ("as-user", "inductor"))
    assert [job.isolation for job in engine.jobs] == ["fork", "fresh", "fork", "fork", "fork"]
    (event,) = verdicts(events)
    assert (event.verdict, event.labels, event.notes) == ("FAIL", (), ())


def test_a_user_who_sees_something_else_confirms_nothing(batch: list[Variant]) -> None:
    code, engine, events = run(batch, only("main", "confirm", **wrong()), confirm=True)
    assert (code, engine.asked()[-1], engine.jobs[-1].isolation) == (1, ("confirm", "inductor"), "fresh")
    (event,) = verdicts(events)
    assert (event.verdict, event.labels, event.stages["as-user"]) == ("FAIL", (), "ok")


# --- graphs of earlier runs ---

FACTS = {"fingerprints": {"2.13.0": Fingerprint("digest")}}


def loads(job: Job) -> dict[str, Any]:
    """What a job says that loads a graph if it may."""
    return {"stored_graphs": int(bool(job.graphs))}


def key_of(job: Job) -> str:
    """The key of the graphs that a job of the one variant here may load."""
    return make_cache_key(replace(job, seed=0), FACTS["fingerprints"]["2.13.0"])


def test_a_first_job_may_load_graphs_and_a_pass_stands(batch: list[Variant]) -> None:
    code, engine, events = run(batch, lambda job, purpose: loads(job), **FACTS)
    assert (code, [job.graphs for job in engine.jobs]) == (0, [key_of(engine.jobs[0])])
    (event,) = verdicts(events)
    assert (event.verdict, event.stored_graphs) == ("PASS", 1)


@pytest.mark.parametrize("again", [{}, wrong()])
def test_what_fails_with_a_loaded_graph_is_compiled_again(batch: list[Variant], again: dict[str, Any]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return {**(wrong() if job.graphs or purpose != "main" else again), **loads(job)}

    _, engine, events = run(batch, script, confirm=True, **FACTS)
    mains = [(job.graphs, job.cacheable) for job in engine.jobs if purpose(job) == "main"]
    assert mains == [(key_of(engine.jobs[0]), True), ("", False)]
    assert not any(job.graphs for job in engine.jobs if purpose(job) != "main")
    (event,) = verdicts(events)
    assert (event.verdict, event.stored_graphs) == ("FAIL" if again else "PASS", 0)
    assert (engine.asked()[1:] == [("main", "inductor")]) == (not again), "nothing else runs before that"


def test_a_failure_that_loaded_nothing_is_not_asked_again(batch: list[Variant]) -> None:
    _, engine, _ = run(batch, only("main", **wrong()), **FACTS)
    assert [purpose(job) for job in engine.jobs].count("main") == 1


@pytest.mark.parametrize(("ended", "count"), [("signal", 2), ("no-result", 2), ("timeout", 1)])
def test_a_death_may_be_that_of_a_loaded_graph(batch: list[Variant], ended: str, count: int) -> None:
    signal = {"signal": "SIGSEGV"} if ended == "signal" else {}
    _, engine, _ = run(batch, only("main", ended=ended, **signal), **FACTS)
    assert [purpose(job) for job in engine.jobs].count("main") == count


def test_a_pass_against_the_ledger_is_compiled_again(tmp_path: Path) -> None:
    chosen = variants(tmp_path, 'known: [{torch: ">=2", stage: inductor, oracle: [value], reason: r}]')
    _, engine, events = run(chosen, lambda job, purpose: loads(job), **FACTS)
    assert [job.graphs for job in engine.jobs] == [key_of(engine.jobs[0]), ""]
    assert [event.verdict for event in verdicts(events)] == ["XPASS"]


# --- the row of a run as a user ---


def test_a_user_who_sees_the_failure_has_a_row_and_no_note(batch: list[Variant]) -> None:
    (event,) = verdicts(run(batch, only("main", "confirm", "as-user", **wrong()), confirm=True)[2])
    assert list(event.stages.items())[-2:] == [("inductor", "value"), ("as-user", "value")]
    assert (event.verdict, event.stage, event.notes) == ("FAIL", "inductor", ())


def test_a_user_who_does_not_see_the_failure_is_a_note_and_no_other_verdict(batch: list[Variant]) -> None:
    (event,) = verdicts(run(batch, only("main", "confirm", **wrong()), confirm=True)[2])
    assert (event.verdict, event.stage, event.stages["as-user"]) == ("FAIL", "inductor", "ok")
    assert len(event.notes) == 1 and event.notes[0].startswith("under torch's own settings this passes")


def test_a_user_who_sees_another_failure_is_a_note(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return wrong("stride") if purpose == "as-user" else wrong() if purpose in ("main", "confirm") else {}

    (event,) = verdicts(run(batch, script, confirm=True)[2])
    assert (event.verdict, event.oracles, event.stages["as-user"]) == ("FAIL", ("value",), "stride")
    assert event.notes == (
        "under torch's own settings this fails in another way: stride at call 0, output: it differs",
    )


@pytest.mark.parametrize(
    "answer", [{"ended": "timeout"}, {"ended": "memory"}, {"ended": "broken"}, {"trust": {"verdict": "FLAKY", "reason": "why"}}]
)  # fmt: skip
def test_a_run_as_a_user_that_says_nothing_has_no_row(batch: list[Variant], answer: dict[str, Any]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return answer if purpose == "as-user" else wrong() if purpose in ("main", "confirm") else {}

    (event,) = verdicts(run(batch, script, confirm=True)[2])
    assert (event.verdict, event.notes, "as-user" in event.stages) == ("FAIL", (), False)


def test_a_user_has_torchs_settings_and_the_case_s_own(tmp_path: Path) -> None:
    flag = "torch._inductor.config.cpp.simdlen"
    for keys, threads, config in (("", 0, {}), (f"threads: 3\nconfig: {{{flag}: 1}}", 3, {flag: 1})):
        _, engine, _ = run(variants(tmp_path, keys), only("main", "confirm", **wrong()), confirm=True)
        jobs = {purpose(job): job for job in engine.jobs}
        user, confirmed = jobs["as-user"], jobs["confirm"]
        assert (user.threads, user.config, user.isolation) == (threads, config, "fresh")
        assert (AS_USER in user.variables, AS_USER in confirmed.variables) == (True, False)
        assert user.source == confirmed.source and user.seed == confirmed.seed


def test_without_a_confirmation_nothing_runs_as_a_user(batch: list[Variant]) -> None:
    _, engine, events = run(batch, only("main", **wrong()))
    assert "as-user" not in [task for task, _ in engine.asked()] and "as-user" not in verdicts(events)[0].stages


def test_a_failure_that_a_fresh_process_does_not_show_is_flaky(batch: list[Variant]) -> None:
    code, _, events = run(batch, only("main", **wrong()), confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.labels) == (1, "FLAKY", ("order-dependent",))
    assert event.reason.startswith("run again in a fresh process: passes; at first: value at call 0")
    assert event.findings and event.notes[0].startswith("order-dependent: beside other jobs: value; alone in a fresh")


@pytest.mark.parametrize(
    ("fresh", "verdict"), [("nonfinite", "FAIL"), ("value", "FAIL"), ("stride", "FLAKY"), ("rng", "FLAKY")]
)
def test_garbage_is_a_nan_now_and_a_number_then(batch: list[Variant], fresh: str, verdict: str) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return wrong(fresh) if job.isolation == "fresh" else wrong("value") if purpose == "main" else {}

    (event,) = verdicts(run(batch, script, confirm=True)[2])
    assert (event.verdict, event.stage) == (verdict, "inductor")


def test_another_exception_in_the_fresh_process_is_a_disagreement(batch: list[Variant]) -> None:
    def error(name: str) -> dict[str, Any]:
        return {"findings": [{"oracle": "compile-error", "message": "m", "error": {"type": name, "message": "m"}}]}

    def script(job: Job, purpose: str) -> dict[str, Any]:
        return error("A") if purpose == "main" else error("B") if purpose == "confirm" else {}

    assert verdicts(run(batch, script, confirm=True)[2])[0].verdict == "FLAKY"


@pytest.mark.parametrize("answer", [{}, {"trust": {"verdict": "SKIP", "reason": "why"}}])
def test_what_does_not_fail_is_not_confirmed(batch: list[Variant], answer: dict[str, Any]) -> None:
    assert len(run(batch, only("main", **answer), confirm=True)[1].jobs) == 1


def test_a_known_failure_is_not_confirmed(tmp_path: Path) -> None:
    chosen = variants(tmp_path, "known:\n  - {oracle: [value], reason: known}")
    code, engine, events = run(chosen, only("main", **wrong()), confirm=True)
    assert (code, verdicts(events)[0].verdict) == (0, "XFAIL")
    assert not {"confirm", "as-user"} & {purpose for purpose, _ in engine.asked()}


@pytest.mark.parametrize("phase", ["eager", "eager-again", "backend"])
@pytest.mark.parametrize("killed", ["main", "dynamo", "confirm"])
def test_a_process_killed_from_outside_is_asked_again_alone(batch: list[Variant], killed: str, phase: str) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        if purpose == killed and not job.alone:
            return {"ended": "signal", "signal": "SIGKILL", "phase": phase}
        return wrong() if killed != "main" and purpose in ("main", "confirm") else {}

    _, engine, events = run(batch, script, confirm=True)
    (event,) = verdicts(events)
    assert (event.verdict, event.signal) == ("PASS" if killed == "main" else "FAIL", None)
    assert event.labels == (("order-dependent",) if killed == "main" else ())
    assert event.stage == (None if killed == "main" else "inductor")
    assert [(purpose(job), job.isolation) for job in engine.jobs if job.alone] == [(killed, "fresh")]


def test_a_process_that_is_killed_twice_was_no_accident(batch: list[Variant]) -> None:
    code, engine, events = run(batch, only("main", ended="signal", signal="SIGKILL", phase="backend"), confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.signal, event.labels) == (1, "ERROR", "SIGKILL", ())
    assert [purpose(job) for job in engine.jobs] == ["main", "main", "dynamo", "aot", "decomposition", "as-user"]


@pytest.mark.parametrize("how", [{"ended": "timeout"}, {"ended": "memory"}])
def test_what_a_busy_machine_may_have_done_counts_alone(batch: list[Variant], how: dict[str, Any]) -> None:
    code, engine, events = run(batch, only("main", phase="backend", **how), confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.labels) == (0, "PASS", ("order-dependent",))
    assert [job.alone for job in engine.jobs if purpose(job) == "confirm"] == [True]
    code, engine, events = run(batch, only("main", "confirm", phase="backend", **how), confirm=True)
    assert (code, verdicts(events)[0].verdict) == (1, "ERROR")
    assert [purpose(job) for job in engine.jobs].count("confirm") == 1


@pytest.mark.parametrize("how", [{"ended": "timeout"}, {"ended": "memory"}])
@pytest.mark.parametrize("isolation", ["auto", "living"])
def test_a_fresh_process_that_was_too_slow_has_more_time_alone(
    batch: list[Variant], how: dict[str, Any], isolation: str
) -> None:
    again = "main" if isolation == "living" else "confirm"

    def script(job: Job, purpose: str) -> dict[str, Any]:
        if purpose == "as-user":
            return {}
        return how if (purpose, job.isolation, job.alone) == (again, "fresh", False) else wrong()

    code, engine, events = run(batch, script, isolation=isolation, confirm=True)
    assert (code, verdicts(events)[0].verdict, verdicts(events)[0].labels) == (1, "FAIL", ())
    slow, patient = (job for job in engine.jobs if (purpose(job), job.isolation) == (again, "fresh"))
    assert (slow.alone, patient.alone, patient.timeout) == (False, True, 3 * slow.timeout)


def test_one_that_is_too_slow_twice_disagrees(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return {"ended": "timeout"} if purpose == "confirm" else {} if purpose == "as-user" else wrong()

    code, engine, events = run(batch, script, confirm=True)
    assert (code, verdicts(events)[0].verdict) == (1, "FLAKY")
    assert [purpose(job) for job in engine.jobs].count("confirm") == 2


@pytest.mark.parametrize("part", ["module: {file: model.py, name: Model}", "kernels"])
def test_python_of_a_case_has_a_process_of_its_own(tmp_path: Path, part: str) -> None:
    """What it leaves behind must not meet the next variant."""
    head = ""
    if part == "kernels":
        shutil.copy(KERNELS / "add.py", tmp_path)
        head = (KERNELS / "pointwise.spec.yaml").read_text(encoding="utf-8").partition("  dropout:")[0]
        part = "params: {}, chain: [{triton.add: [$x, $x]}]"
    else:
        written(tmp_path, "import torch\nModel = torch.nn.ReLU\n", "model.py")
    text = f"{head}cases:\n  - {{name: a, inputs: {{x: [4]}}, {part}}}\n"
    options = {"allow_python": True, "backends": ["triton" if head else "aot_eager"]}
    chosen = [*loaded(written(tmp_path, text), **options).variants]
    for isolation in ("living", "fresh"):
        jobs = run(chosen, only("none"), isolation=isolation)[1].jobs
        expected = "fork" if isolation == "living" else isolation
        assert {(job.isolation, job.foreign) for job in jobs} == {(expected, True)}


def test_what_is_foreign_to_torch(batch: list[Variant]) -> None:
    def is_foreign(variant: Variant, **options: Any) -> bool:
        return run([variant], only("none"), **options)[1].jobs[0].foreign

    assert not is_foreign(batch[0]) and is_foreign(batch[0], imports=("mine",))
    assert is_foreign(replace(batch[0], backend=replace(batch[0].backend, backend="mine:compile")))


def test_a_failure_of_a_living_process_is_judged_in_one_of_its_own(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return {**wrong(), "earlier_jobs": ("x", "y")} if job.isolation == "living" else {}

    code, engine, events = run(batch, script, isolation="living", confirm=True)
    assert code == 0 and {purpose(job) for job in engine.jobs} == {"main"}
    assert [job.isolation for job in engine.jobs] == ["living", "fresh", "fresh", "fresh"]
    assert [job.cacheable for job in engine.jobs] == [True, True, False, False], "further opinions are new ones"
    (event,) = verdicts(events)
    assert (event.verdict, event.labels) == ("PASS", ("order-dependent",))
    assert event.notes == ("order-dependent: in one process after x, y: value; alone in a fresh process: passes",)


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (wrong(), "FLAKY"),
        ({"ended": "signal", "signal": "SIGSEGV", "phase": "backend"}, "FLAKY"),
        ({"ended": "timeout", "phase": "backend"}, "PASS"),
        ({"trust": {"verdict": "FLAKY", "reason": "two eager runs disagree"}}, "PASS"),
    ],
)
def test_a_living_process_that_nothing_had_run_in_is_one_of_its_own(
    batch: list[Variant], first: dict[str, Any], verdict: str
) -> None:
    code, _, events = run(
        batch, lambda job, purpose: first if job.isolation == "living" else {}, isolation="living", confirm=True
    )
    (event,) = verdicts(events)
    assert (code, event.verdict, event.labels) == (int(verdict == "FLAKY"), verdict, ("order-dependent",))
    if verdict == "FLAKY":
        assert event.findings and event.reason.startswith("run again in a fresh process: passes; at first: ")


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(("last", "oracle"), [(wrong(), "value"), (wrong("stride"), "stride")])
def test_what_fails_alone_now_and_then_is_nobody_elses_fault(
    batch: list[Variant], number: int, last: dict[str, Any], oracle: str
) -> None:
    jobs: list[Job] = []

    def script(job: Job, purpose: str) -> dict[str, Any]:
        jobs.append(job)
        return {**wrong(), "earlier_jobs": ("x",)} if len(jobs) == 1 else last if len(jobs) == number + 1 else {}

    code, _, events = run(batch, script, isolation="living", confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.oracles, event.labels) == (1, "FLAKY", (oracle,), ())
    assert event.reason == (
        f"in {number - 1} of {number} fresh processes it passes, in the last: {oracle}; at first, after others: value"
    )
    assert [job.isolation for job in jobs] == ["living"] + ["fresh"] * number


def test_what_a_busy_machine_ended_after_others_is_asked_once(batch: list[Variant]) -> None:
    def script(job: Job, purpose: str) -> dict[str, Any]:
        return {"ended": "timeout", "phase": "backend", "earlier_jobs": ("x",)} if job.isolation == "living" else {}

    code, engine, events = run(batch, script, isolation="living", confirm=True)
    assert (code, verdicts(events)[0].verdict, len(engine.jobs)) == (0, "PASS", 2)


def test_a_failure_that_a_living_process_and_a_fresh_one_share(batch: list[Variant]) -> None:
    code, engine, events = run(batch, only("main", **wrong()), isolation="living", confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.stage, event.labels) == (1, "FAIL", "inductor", ())
    assert [job.isolation for job in engine.jobs] == ["living", *["fresh"] * 5]


# --- passes of living processes ---


def after_others(answer: dict[str, Any], *alone: dict[str, Any]) -> Script:
    """That answer in a process that had run others, and these in turn in processes of its own, the last one ever after."""
    mains = iter(alone)

    def script(job: Job, purpose: str) -> dict[str, Any]:
        if job.isolation == "living":
            return {**answer, "earlier_jobs": ("x", "y")}
        return next(mains, alone[-1]) if purpose == "main" else alone[-1]

    return script


def test_a_pass_after_others_is_asked_again(batch: list[Variant]) -> None:
    code, engine, events = run(batch, after_others({}, {}), isolation="living", confirm=True)
    assert [(job.isolation, job.cacheable) for job in engine.jobs] == [("living", True), ("fresh", False)]
    (event,) = verdicts(events)
    assert (code, event.verdict, event.labels, event.notes) == (0, "PASS", (), ())


@pytest.mark.parametrize(
    ("alone", "verdict"), [(wrong(), "FAIL"), ({"trust": {"verdict": "VACUOUS", "reason": "why"}}, "VACUOUS")]
)
def test_a_pass_that_depends_on_its_neighbours_is_an_error_of_the_runner(
    batch: list[Variant], alone: dict[str, Any], verdict: str
) -> None:
    code, _, events = run(batch, after_others({}, alone), isolation="living", confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.labels) == (3, verdict, ("order-dependent",))
    (notice,) = [event.message for event in events if isinstance(event, Notice)]
    assert (
        notice.startswith(f"{batch[0].id}: the harness failed") and "in one process after x, y: passes; alone" in notice
    )


def test_a_pass_that_a_compiler_gives_now_and_then_is_not_the_runners_error(batch: list[Variant]) -> None:
    code, _, events = run(batch, after_others({}, wrong(), {}), isolation="living", confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict) == (1, "FLAKY")


@pytest.mark.parametrize("answer", [{"ended": "timeout"}, {"ended": "memory"}])
def test_a_process_that_had_no_time_says_nothing_about_a_pass(batch: list[Variant], answer: dict[str, Any]) -> None:
    code, _, events = run(batch, after_others({}, answer), isolation="living", confirm=True)
    assert (code, verdicts(events)[0].verdict) == (0, "PASS")


# --- a known failure that shows only now and then ---


@pytest.fixture
def wavering(tmp_path: Path) -> list[Variant]:
    return variants(tmp_path, "known:\n  - {oracle: [value], stage: inductor, reason: now and then, sometimes: true}")


@pytest.mark.parametrize("earlier", [(), ("x",)])
def test_a_known_failure_that_a_fresh_process_does_not_show_is_expected(
    wavering: list[Variant], earlier: tuple[str, ...]
) -> None:
    """In the first process; or, after others, in that one and in the last of three of its own."""
    mains: list[Job] = []

    def script(job: Job, purpose: str) -> dict[str, Any]:
        if purpose != "main":
            return {}
        mains.append(job)
        return {**wrong(), "earlier_jobs": earlier} if len(mains) == 1 or (earlier and len(mains) == 3) else {}

    code, _, events = run(wavering, script, isolation="living", confirm=True)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.known, event.stage) == (0, "XFAIL", "now and then", "inductor")
    assert event.entry is not None and len(mains) == (3 if earlier else 2)


@pytest.mark.parametrize("odd", [{**wrong("stride")}, {"ended": "signal", "signal": "SIGSEGV", "phase": "backend"}])
@pytest.mark.parametrize("place", [1, 3])
def test_another_failure_is_not_hidden_by_it(wavering: list[Variant], odd: dict[str, Any], place: int) -> None:
    mains: list[Job] = []

    def script(job: Job, purpose: str) -> dict[str, Any]:
        if purpose != "main":
            return {}
        mains.append(job)
        failure = odd if len(mains) == place else wrong()
        return {**failure, "earlier_jobs": ("x",)} if len(mains) in (1, 3) else {}

    code, _, events = run(wavering, script, isolation="living", confirm=True)
    assert (code, verdicts(events)[0].verdict) == (1, "FLAKY")


def test_without_the_ledger_it_is_flaky(wavering: list[Variant]) -> None:
    script = lambda job, purpose: wrong() if job.isolation == "living" else {}  # noqa: E731
    code, _, events = run(wavering, script, isolation="living", confirm=True, no_known=True)
    assert (code, verdicts(events)[0].verdict) == (1, "FLAKY")


def test_repeated_runs_of_it_agree(wavering: list[Variant]) -> None:
    answers = iter([{}, wrong(), {}])
    code, _, events = run(wavering, lambda job, purpose: next(answers) if purpose == "main" else {}, stress=3)
    (event,) = verdicts(events)
    assert (code, event.verdict, event.attempts, event.oracles) == (0, "XFAIL", 3, ("value",))
    answers = iter([{}, wrong(), wrong("stride")])
    code, _, events = run(wavering, lambda job, purpose: next(answers) if purpose == "main" else {}, stress=3)
    (event,) = verdicts(events)
    assert (code, event.verdict) == (1, "FLAKY") and "run 3: stride" in event.reason
