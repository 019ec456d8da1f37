"""What kills a mutant: a finding, a death, a timeout that comes again alone, and no rule that excuses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Unclaimed
from runner.contract.finding import Finding
from runner.contract.job import Job, Record, Trust
from runner.contract.lines import Lines
from runner.contract.mutant import NOT_PLANTED, Mutant
from runner.engine.messages import Outcome
from runner.mutants.campaign import Passed, affected_cases, choose_cases
from runner.mutants.trial import FACTOR, SLACK, Trial, is_plain, try_mutant
from runner.session.plan import Planned, RunContext
from tests.handmade import environment, variants

MUTANT = Mutant("_inductor/ir.py", 7, 0, 1, "(2)", "digest", "constant")
Answer = Callable[[Job], Outcome]


def result(job: Job, *findings: Finding, trust: Trust | None = None, **fields: Any) -> Outcome:
    record = Record(findings=findings, trust=trust, **fields).to_json()
    return Outcome(job, "result", 1.0, "judge", record, busy=1.5)


def passes(job: Job) -> Outcome:
    return result(job)


def dies(job: Job) -> Outcome:
    return Outcome(job, "signal", 1.0, "backend", signal="SIGSEGV", busy=1.5)


def hangs(job: Job) -> Outcome:
    return Outcome(job, "timeout", 1.0, "backend", busy=1.5)


def hangs_beside_others(job: Job) -> Outcome:
    return passes(job) if job.alone else hangs(job)


def finds(oracle: str, path: str = "call 0, output") -> Answer:
    return lambda job: result(job, Finding(oracle, "it differs", path))


def doubts(verdict: Any, reason: str = "why") -> Answer:
    return lambda job: result(job, trust=Trust(verdict, reason))


def tried(folder: Path, *answers: Answer, unclaimed: Unclaimed | None = None) -> tuple[Trial, list[Job]]:
    """A mutant against as many cases as answers, each of which is given for all jobs of its case."""
    cases = [
        Planned(each, environment()) for each in variants(folder, f"params: {{n: {[*range(1, len(answers) + 1)]}}}")
    ]
    cases = [case for case in cases if case.variant.backend.name == "inductor"]
    if unclaimed is not None:
        backend = replace(cases[0].variant.backend, unclaimed=unclaimed)
        cases = [replace(case, variant=replace(case.variant, backend=backend)) for case in cases]
    by_id = dict(zip([case.variant.id for case in cases], answers, strict=True))
    steps = try_mutant(MUTANT, [(case, 2.0) for case in cases], 9, RunContext())
    asked: list[Job] = []
    jobs: Sequence[Job] = next(steps)
    while True:
        asked += jobs
        try:
            jobs = steps.send([by_id[job.id](job) for job in jobs])
        except StopIteration as end:
            return end.value, asked


@pytest.mark.parametrize(
    ("answer", "fate", "oracle", "plainly"),
    [
        (passes, "survived", "", False),
        (dies, "killed", "signal", True),
        (hangs, "killed", "timeout", True),
        (hangs_beside_others, "survived", "", False),
        (finds("value"), "killed", "value", True),
        (finds("value", "call 0, grad of input x"), "killed", "value", False),
        (finds("stride"), "killed", "stride", False),
        (doubts("INVALID"), "killed", "INVALID", True),
        (doubts("VACUOUS"), "killed", "VACUOUS", False),
        (doubts("SKIP"), "survived", "", False),
        (doubts("BROKEN", "the disk is full"), "survived", "", False),
        (doubts("INVALID", f"{NOT_PLANTED}another file"), "invalid", "", False),
    ],
)
def test_the_fate_of_a_mutant(tmp_path: Path, answer: Answer, fate: str, oracle: str, plainly: bool) -> None:
    trial, _ = tried(tmp_path, answer)
    assert (trial.fate, trial.oracle, trial.plainly) == (fate, oracle, plainly)


def test_the_first_kill_ends_the_trial(tmp_path: Path) -> None:
    trial, asked = tried(tmp_path, passes, finds("dtype"), passes)
    assert len(trial.tried) == 2 and trial.case == trial.tried[-1] and trial.reaching == 9
    assert {job.mutant["text"] for job in asked} == {"(2)"} and trial.seconds == 3.0


def test_a_case_has_time_in_proportion_to_what_it_usually_takes(tmp_path: Path) -> None:
    _, asked = tried(tmp_path, hangs_beside_others)
    assert [job.timeout for job in asked] == [SLACK + FACTOR * 2.0] * 2 and [job.alone for job in asked] == [
        False,
        True,
    ]


@pytest.mark.parametrize("is_explained", [True, False])
def test_a_finding_that_other_random_numbers_may_explain_needs_the_whole_run(
    tmp_path: Path, is_explained: bool
) -> None:
    """Under the flag with which eager and compiled code draw alike, the finding vanishes or stays."""

    def answer(job: Job) -> Outcome:
        is_flagged = "fallback_random" in str(job.config) and is_explained
        is_compiled = job.backend["backend"] == "inductor"
        return result(job, *[Finding("rng", "it differs", "state")] * (is_compiled and not is_flagged))

    trial, asked = tried(tmp_path, answer)
    assert trial.fate == ("survived" if is_explained else "killed") and len(asked) > 2
    assert ("PASS" in str(trial.notes)) == is_explained


@pytest.mark.parametrize("precision", ["bfloat16", None])
def test_a_precision_that_the_backend_does_not_claim_kills_nothing(tmp_path: Path, precision: str | None) -> None:
    def answer(job: Job) -> Outcome:
        numbers = {"precision": precision} if precision else {}
        return result(
            job, *[Finding("value", "it differs", "call 0, output", numbers)] * (job.backend["backend"] == "inductor")
        )

    trial, _ = tried(tmp_path, answer, unclaimed=Unclaimed(precision={"float32": "bfloat16"}))
    assert trial.fate == ("survived" if precision else "killed") and ("SKIP" in str(trial.notes)) == bool(precision)


@pytest.mark.parametrize("change", [{"fate": "eaten"}, {"oracle": 7}, {"tried": [[]]}, {"reaching": "9"}, {"more": 1}])
def test_a_strangers_trial_of_other_types_is_refused(change: dict[str, Any]) -> None:
    data = Trial(MUTANT, "survived").to_json()
    assert Trial.from_json(data) == Trial(MUTANT, "survived")
    with pytest.raises(TypeError):
        Trial.from_json({**data, **change})


def test_half_of_the_cases_are_the_fastest_and_the_rest_is_spread(tmp_path: Path) -> None:
    cases = [Planned(each, environment()) for each in variants(tmp_path, f"params: {{n: {[*range(1, 41)]}}}")]
    every = [Passed(case, float(n), 1.0, Lines(["line _inductor/ir.py:7"])) for n, case in enumerate(cases)]
    chosen, reaching = choose_cases(MUTANT, [*every, Passed(cases[0], 0.0, 1.0, Lines(["line _inductor/ir.py:8"]))], 8)
    assert reaching == len(every) and [each.seconds for each in chosen[:4]] == [0, 1, 2, 3]
    rest = [each.seconds for each in chosen[4:]]
    assert len(rest) == 4 and rest == sorted(rest) and rest[-1] > len(every) / 2


def test_the_cases_that_a_change_of_the_line_can_affect(tmp_path: Path) -> None:
    cases = [Planned(each, environment()) for each in variants(tmp_path, f"params: {{n: {[*range(1, 41)]}}}")]
    passes = [
        Passed(case, 1.0, float(n), Lines([f"line _inductor/ir.py:{7 if n % 4 == 0 else 8}"]))
        for n, case in enumerate(cases)
    ]
    chosen, reaching = affected_cases(passes)(MUTANT)
    assert reaching == 10 and [each.slot_seconds for each in chosen] == [*range(0, 40, 4)], "cheap ones first"


def test_what_a_plain_comparison_of_outputs_sees() -> None:
    assert is_plain([Finding("shape", "", "call 0, output[1]")])
    assert not is_plain([Finding("alias", "", "call 0, output"), Finding("value", "", "input x")])
    assert asdict(MUTANT)["line"] == 7
