"""Which steps a reduction tries to keep first.

What counts as the same failure: by hand-made outcomes instead of runs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import SIGNATURE, variant

from runner.cases.model import Variant
from runner.contract.finding import Finding, pattern_of
from runner.contract.job import Job
from runner.diagnose.diagnosis import Culprit
from runner.diagnose.harness import VariantEngine
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.reduce.reducer import EngineJudge, _copy, alike, backends_for, relative_error, suspects
from runner.session.plan import Environment
from runner.verdict.signature import FailureSignature, signature_of
from tests.handmade import finding, loaded, written

CASE = """\
cases:
  - name: a
    inputs: {x: [4, 8]}
    chain:
      - torch.sin
      - torch.relu
      - torch.cos
      - F.relu
"""


@pytest.mark.parametrize(
    ("step", "place", "numbers"),
    [
        ("relu, the second of two", "a.spec.yaml:8", (3,)),
        ("relu, the first of two", "a.spec.yaml:6", (1,)),
        ("cos", "a.spec.yaml:7", (2,)),
        ("cos", "a.spec.yaml:6", ()),
        (None, "model.py:7", ()),
        (None, None, ()),
    ],
)
def test_the_step_that_a_diagnosis_blames(
    step: str | None, place: str | None, numbers: tuple[int, ...], tmp_path: Path
) -> None:
    case = loaded(written(tmp_path, CASE)).variants[0].case
    culprit = Culprit("inductor", "lowerings", 1, "relu", step=step, place=place)
    assert suspects(case, finding(), culprit) == numbers


def test_the_step_on_the_line_of_an_error(tmp_path: Path) -> None:
    case = loaded(written(tmp_path, CASE)).variants[0].case
    sin = case.chain[0].span
    error_finding = finding(place=f"{sin.file}:{sin.line}:{sin.column}")
    assert suspects(case, error_finding) == (0,)
    assert suspects(case, error_finding, Culprit("inductor", step="cos", place="a.spec.yaml:7")) == (2, 0)


def test_a_copy_of_python_replaces_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    file, target = tmp_path / "model.py", tmp_path / "out" / "model.py"
    file.write_text("a = 1\n")
    assert _copy(str(file), target) == _copy(str(file), target) == target and target.read_text() == "a = 1\n"
    target.write_text("mine\n")
    with pytest.raises(UsageError, match="is not a copy of"):
        _copy(str(file), target)
    target.unlink()
    os.mkfifo(target)
    with pytest.raises(UsageError, match="is not a copy of"):
        _copy(str(file), target)


HERE = Environment("0", "python", "2.13.0", "2.13.0+cpu", "3.11.2")
WRONG = {"oracle": "value", "message": "off", "path": "output", "numbers": {"abs_error_max": 1.0, "scale": 2.0}}


class Engine:
    """Answers jobs by what ``says`` gives for them: findings, or a trust."""

    def __init__(self, says: Callable[[Job], Any]) -> None:
        self.says, self.jobs, self.cancelled = says, list[Job](), 0
        self.queue: list[Job] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.queue.append(job)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        outcomes = []
        for job in self.queue:
            answer = self.says(job)
            if isinstance(answer, Outcome):
                outcomes.append(answer)
            else:
                record = (
                    {"findings": answer, "trust": None}
                    if isinstance(answer, list)
                    else {"findings": [WRONG], "trust": answer}
                )
                outcomes.append(Outcome(job, "result", 0.1, result=record))
        self.queue = []
        return outcomes

    def cancel_all(self) -> list[Job]:
        self.cancelled += 1
        self.queue = []
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", ["adapt", "confirm"])
def test_a_judge_that_waits_can_be_ended(name: str, tmp_path: Path) -> None:
    def end() -> None:
        raise KeyboardInterrupt

    original = variant(tmp_path, "inputs: {x: [4]}\nchain: [torch.relu]")
    engine = VariantEngine(original, HERE)
    engine.local_engine.close()
    engine.local_engine = Engine(lambda job: [WRONG])  # type: ignore[assignment]
    judge = EngineJudge(engine, replace(SIGNATURE, stage="dynamo"), tick=end)
    with pytest.raises(KeyboardInterrupt):
        getattr(judge, name)(original, engine.source)


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Callable[..., tuple[bool, list[Job]]]]:
    """``judged(says, ...)``: whether a candidate fails alike, and what was asked to know."""

    def judge(
        says: Callable[[Job], Any],
        signature: FailureSignature = SIGNATURE,
        keys: str = "inputs: {x: [4]}\nchain: [torch.relu]",
        error: float = 0.5,
        whole: Callable[[Job], Any] | None = None,
        evident: bool = False,
    ) -> tuple[bool, list[Job]]:
        original: Variant = variant(tmp_path, keys)
        engine = VariantEngine(original, HERE, slots=2)
        engine.local_engine.close()
        fake_engine = Engine(says)
        engine.local_engine = fake_engine  # type: ignore[assignment]
        engine_judge = EngineJudge(engine, signature, error, evident=evident)
        if whole is not None:
            fake_engine.says = whole
            engine_judge.adapt(original, engine.source)
            fake_engine.says, fake_engine.jobs = says, []
        engine_judge.start(7, original, engine.source)
        verdicts: list[tuple[int, bool]] = []
        while not verdicts:
            verdicts = engine_judge.finished(0.0)
        assert [number for number, _ in verdicts] == [7]
        return verdicts[0][1], fake_engine.jobs

    yield judge


def by_backend(**findings: Any) -> Callable[[Job], Any]:
    return lambda job: findings.get(job.backend["backend"], [])


def test_a_failure_of_the_stage_alone_is_alike(judged: Any) -> None:
    same, jobs = judged(by_backend(inductor=[WRONG]))
    assert same
    assert [job.backend["backend"] for job in jobs] == ["inductor", "aot_eager_decomp_partition"]


def test_a_failure_that_shows_below_is_another(judged: Any) -> None:
    same, _ = judged(by_backend(inductor=[WRONG], aot_eager_decomp_partition=[WRONG]))
    assert not same


def test_an_unlike_failure_below_does_not_matter(judged: Any) -> None:
    stride = {"oracle": "stride", "message": ""}
    assert judged(by_backend(inductor=[WRONG], aot_eager_decomp_partition=[stride]))[0]


def test_what_passes_is_not_asked_about_further(judged: Any) -> None:
    same, jobs = judged(by_backend())
    assert not same and len(jobs) == 1


def test_a_lower_stage_is_judged_on_the_cheapest_backend_that_shows_it(judged: Any) -> None:
    same, jobs = judged(by_backend(aot_eager=[WRONG]), FailureSignature("value", "aot"))
    assert same
    assert [job.backend["backend"] for job in jobs] == ["aot_eager", "eager"]


def test_what_the_stages_backend_raises_later_is_the_same_failure(judged: Any) -> None:
    """Inductor refuses a graph of AOTAutograd while it compiles. Under ``aot_eager`` the same graph fails when it runs."""
    message = "Expected positional argument for parameter x"
    signature = FailureSignature("compile-error", "aot", "InductorError", pattern_of(message))
    crash = {"oracle": "runtime-error", "message": "", "error": {"type": "StopIteration", "message": "", "chain": []}}
    error = {"oracle": "runtime-error", "message": "", "error": {"type": "IndexError", "message": "", "chain": []}}
    assert not judged(by_backend(aot_eager=[crash]), signature)[0]
    same, jobs = judged(by_backend(aot_eager=[crash]), signature, whole=by_backend(aot_eager=[crash]))
    assert same and [job.backend["backend"] for job in jobs] == ["aot_eager", "eager"]
    assert not judged(by_backend(aot_eager=[error]), signature, whole=by_backend(aot_eager=[crash]))[0]


def test_where_the_stages_backend_shows_nothing_the_variants_own_decides(judged: Any) -> None:
    signature = FailureSignature("value", "aot")
    same, jobs = judged(by_backend(inductor=[WRONG]), signature, whole=by_backend())
    assert same and [job.backend["backend"] for job in jobs] == ["inductor", "eager"]


def test_another_finding_that_speaks_first_is_another_failure(judged: Any) -> None:
    crash = {"oracle": "compile-error", "message": "", "error": {"type": "InductorError", "message": "no", "chain": []}}
    assert not judged(by_backend(inductor=[WRONG, crash]))[0]


@pytest.mark.parametrize(
    ("kind", "message", "same"),
    [
        ("InductorError", "buf12 has shape [4, 5]", True),
        ("InductorError", "cannot lower this", False),
        ("AssertionError", "buf3 has shape [2]", False),
    ],
)
def test_exceptions_are_told_apart_by_class_and_pattern(judged: Any, kind: str, message: str, same: bool) -> None:
    signature = FailureSignature("compile-error", "inductor", "InductorError", pattern_of("buf3 has shape [1, 1]"))
    crash = {"oracle": "compile-error", "message": "", "error": {"type": kind, "message": message, "chain": []}}
    assert judged(by_backend(inductor=[crash]), signature)[0] is same


@pytest.mark.parametrize("doubt", ["INVALID", "FLAKY", "VACUOUS", "SKIP"])
def test_what_is_doubted_is_refused(judged: Any, doubt: str) -> None:
    assert not judged(by_backend(inductor={"verdict": doubt, "reason": "", "error": None}))[0]


def test_rounding_does_not_take_the_place_of_a_wrong_value(judged: Any) -> None:
    rounding = {**WRONG, "numbers": {"abs_error_max": 3e-6, "scale": 2.0}}
    assert not judged(by_backend(inductor=[rounding]))[0]
    assert judged(by_backend(inductor=[rounding]), error=2e-6)[0]  # it was as small from the beginning


def test_a_wrong_value_stays_one_that_upstream_takes_for_a_bug(judged: Any) -> None:
    numbers = {"elements": 4, "rel_error": 0.1, "eager": 1.0, "compiled": 1.5, "abs_error_max": 0.5, "scale": 1.0}
    strong = {**WRONG, "numbers": {**numbers, "eager_error_max": 1e-7, "compiled_error_max": 0.5, "same": False}}
    faint = {**WRONG, "numbers": {**strong["numbers"], "same": True}}
    assert judged(by_backend(inductor=[strong]), evident=True)[0]
    assert not judged(by_backend(inductor=[faint]), evident=True)[0]
    assert judged(by_backend(inductor=[faint]))[0]  # the whole case was no other


def test_where_the_stages_backend_shows_a_faint_value_the_variants_own_decides(judged: Any) -> None:
    numbers = {"elements": 4, "rel_error": 0.1, "eager": 1.0, "compiled": 1.5, "abs_error_max": 0.5, "scale": 1.0}
    faint = {**WRONG, "numbers": {**numbers, "eager_error_max": 0.5, "compiled_error_max": 0.5}}
    signature = FailureSignature("value", "aot")
    same, jobs = judged(by_backend(inductor=[WRONG]), signature, whole=by_backend(aot_eager=[faint]), evident=True)
    assert same and [job.backend["backend"] for job in jobs] == ["inductor", "eager"]


def test_what_a_policy_explains_is_no_failure(judged: Any) -> None:
    """A fused cast in bfloat16 moves a value by a unit; under emulate_precision_casts it does not."""
    small = {**WRONG, "numbers": {"abs_error_max": 2**-7, "scale": 1.0}}
    keys = "inputs: {x: [4]}\ndtypes: [bfloat16]\nchain: [torch.relu]"
    flag = "torch._inductor.config.emulate_precision_casts"

    def says(job: Job) -> Any:
        return [small] if job.backend["backend"] == "inductor" and not job.config.get(flag) else []

    same, jobs = judged(says, keys=keys, error=2**-7)
    assert not same
    assert [job.config.get(flag) for job in jobs] == [None, None, True]
    assert judged(by_backend(inductor=[small]), keys=keys, error=2**-7)[0]


def test_a_float64_reference_that_dies_is_left_out(judged: Any) -> None:
    def says(job: Job) -> Any:
        if job.backend["backend"] != "inductor":
            return []
        return Outcome(job, "signal", 0.1, phase="float64", signal="SIGSEGV") if job.float64 else [WRONG]

    same, jobs = judged(says)
    assert same and [job.float64 for job in jobs] == [True, False, True]


def test_float64_is_not_asked_for_where_it_has_no_say(judged: Any) -> None:
    crash = {"oracle": "compile-error", "message": "", "error": {"type": "E", "message": "m", "chain": []}}
    _, jobs = judged(by_backend(inductor=[crash]), FailureSignature("compile-error", "inductor", "E", "m"))
    assert not any(job.float64 for job in jobs)


@pytest.mark.parametrize(
    ("stage", "backend", "expected"),
    [
        ("inductor", "inductor", ("inductor", "aot_eager_decomp_partition")),
        ("aot", "inductor", ("aot_eager", "eager")),
        ("dynamo", "inductor", ("eager", None)),
        ("backend", "mine:mine", ("mine:mine", "eager")),
        ("dynamo", "mine:mine", ("eager", None)),
        ("backend", "triton", ("triton", None)),
        ("backend", "triton-compiled", ("triton-compiled", None)),
    ],
)
def test_backends(stage: str, backend: str, expected: tuple[str, str | None]) -> None:
    assert backends_for(stage, backend) == expected


def test_a_version_alone_is_not_like_a_lost_write_and_the_reverse_is() -> None:
    lost = Finding("mutation", "", numbers={"abs_error_max": 4.0, "scale": 8.0}, severity="wrong-result")
    version = Finding("mutation", "", severity="metadata")
    for first, candidate, same in ((lost, version, False), (version, version, True), (version, lost, True)):
        assert alike(candidate, signature_of(first), relative_error(first)) == same
    missing = Finding("grad", "", severity="wrong-result")
    assert alike(missing, signature_of(missing), relative_error(missing))


def test_relative_errors() -> None:
    assert relative_error(Finding("value", "", numbers={"abs_error_max": 4.0, "scale": 8.0})) == 0.5
    assert relative_error(Finding("value", "", numbers={"abs_error_max": 4.0, "scale": 0.1})) == 4.0
    assert relative_error(Finding("value", "", numbers={"abs_error_max": "inf"})) == math.inf
    assert not alike(None, FailureSignature("value", None), 1.0)
