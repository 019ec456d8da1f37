"""A diagnosis: which changed settings are tried, what the bisector is told, and what is found again of one that is kept.

The bisecting itself: ``tests/worker/tasks/test_bisect.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cases.model import Backend, Variant
from runner.contract.finding import Finding
from runner.contract.job import Job, Trust
from runner.diagnose import diagnosis, kept
from runner.diagnose.diagnosis import (
    BUDGET,
    HANG_SECONDS,
    SECONDS,
    Ablation,
    Bisected,
    Change,
    Culprit,
    Diagnosis,
    ablation_jobs,
    bisection_job,
    changes_for,
    lacks,
    read_ablation,
    read_bisection,
    whole_stage,
)
from runner.diagnose.harness import Answer, VariantEngine
from runner.engine.fingerprint import Fingerprint
from runner.engine.messages import Outcome
from runner.verdict.signature import FailureSignature
from tests.handmade import environment, finding, loaded, variants, written

VALUE = FailureSignature("value", "inductor")
CRASH = FailureSignature("compile-error", "inductor", "InductorError", "no")
SIMD = "torch._inductor.config.cpp.simdlen"
CHANGE = Change("without vectorization", f"{SIMD} = 1", {SIMD: 1})
PLAIN = "class Model:\n    def forward(self, x):\n        return x\n\n\ndef make_inputs():\n    return torch.randn(3)\n"


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    return variants(tmp_path, "")[0]


@pytest.fixture
def engine(variant: Variant) -> Iterator[VariantEngine]:
    with VariantEngine(variant, environment()) as instance:
        yield instance


def names(variant: Variant, signature: FailureSignature, source: str = PLAIN) -> set[str]:
    return {change.name for change in changes_for(variant, signature, source)}


def test_a_wrong_value_of_inductor_gets_all_that_may_matter(variant: Variant) -> None:
    assert names(variant, VALUE) == {
        "with eager's roundings", "compiled with -O0", "without vectorization", "without fusion",
        "without pattern matching", "without layout changes", "without buffer reuse", "with dynamic shapes",
        "on one thread", "without gradients", "on cuda",
    }  # fmt: skip


def test_a_compiler_that_raises_is_not_asked_about_rounding_or_what_runs(variant: Variant) -> None:
    difference = names(variant, VALUE) - names(variant, CRASH)
    assert difference == {"with eager's roundings", "compiled with -O0", "without buffer reuse", "on one thread"}


@pytest.mark.parametrize("stage", ["dynamo", "aot"])
def test_below_inductor_its_flags_are_none_of_the_matter(variant: Variant, stage: str) -> None:
    assert names(variant, FailureSignature("value", stage)) == {"with dynamic shapes", "without gradients", "on cuda"}


def test_random_numbers_are_asked_about_where_the_model_draws_some(variant: Variant) -> None:
    name = "with inductor's own random numbers"
    assert name not in names(variant, VALUE)  # its inputs are drawn, but not by the model
    assert name in names(variant, VALUE, PLAIN.replace("return x", "return F.dropout(x)", 1))


def test_gradients_stay_where_they_are_what_is_wrong(variant: Variant) -> None:
    assert "without gradients" not in names(variant, FailureSignature("grad", "aot"))
    assert "without gradients" in names(variant, FailureSignature("value", "aot"))


def test_what_the_case_has_already_is_not_tried(tmp_path: Path) -> None:
    keys = f"dynamic: true\nthreads: 1\ngrad: off\nconfig: {{{SIMD}: 1}}"
    changes = names(variants(tmp_path, keys)[0], VALUE)
    assert "with dynamic shapes" not in changes and "without vectorization" not in changes
    assert "on one thread" not in changes and "without gradients" not in changes
    assert {"with static shapes", "on 2 threads"} <= changes


def test_changes_reach_the_jobs(engine: VariantEngine) -> None:
    changes = changes_for(engine.variant, VALUE, PLAIN)
    jobs_or_none = {change.name: job for change, job in zip(changes, ablation_jobs(engine, changes), strict=True)}
    assert jobs_or_none["on cuda"] is None  # a torch for the CPU alone
    jobs = {name: job for name, job in jobs_or_none.items() if job is not None}
    assert jobs["without vectorization"].config[SIMD] == 1
    assert jobs["with dynamic shapes"].backend["dynamic"] is True
    assert jobs["on one thread"].threads == 1 and jobs["without gradients"].grad["mode"] == "off"
    helper = "torch._inductor.config.cpp_cache_precompile_headers"
    assert jobs["compiled with -O0"].config[helper] is False
    unaided = ablation_jobs(engine, [change for change in changes if change.helpers], helpers=False)[0]
    assert unaided is not None and helper not in unaided.config
    assert len({job.key for job in jobs.values()}) == len(jobs)


def test_a_gpu_is_asked_where_torch_could_have_one(variant: Variant) -> None:
    with VariantEngine(variant, dataclasses.replace(environment(), build="2.13.0+cu130")) as engine:
        changes = [change for change in changes_for(variant, VALUE, PLAIN) if change.name == "on cuda"]
        job = ablation_jobs(engine, changes)[0]
    assert job is not None and job.device == "cuda"


def answer(findings: Sequence[Finding] = (), verdict: str = "", reason: str = "") -> Answer:
    trust = Trust(verdict, reason) if verdict else None
    return Answer(tuple(findings), trust)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (answer([finding("stride", None), finding("value", None)]), "same"),
        (answer([finding("stride", None)]), "other"),
        (answer(), "gone"),
        (answer(verdict="VACUOUS", reason="constant"), "gone"),
        (answer(verdict="INVALID", reason="eager raised"), "no answer"),
        (answer(verdict="FLAKY", reason="two eager runs"), "no answer"),
    ],
)
def test_what_became_of_the_failure(reply: Answer, outcome: str) -> None:
    ablation = read_ablation(VALUE, CHANGE, reply)
    assert ablation is not None and ablation.outcome == outcome
    assert bool(ablation.detail) == (outcome != "gone")


def test_the_same_oracle_with_another_error_is_another_failure() -> None:
    reply = answer([finding("compile-error", None, "InductorError", message="yes")])
    ablation = read_ablation(CRASH, CHANGE, reply)
    assert ablation is not None and ablation.outcome == "other"
    assert (
        read_ablation(CRASH, CHANGE, answer([finding("compile-error", None, "InductorError", message="no")])).outcome
        == "same"
    )  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "reason",
    [f"config: torch 2.6.0+cpu has no flag {SIMD}", f"config: torch 2.6.0+cpu has no torch._inductor.config.cpp (wanted {SIMD})"],
)  # fmt: skip
def test_a_flag_that_this_torch_lacks_is_left_out(reason: str) -> None:
    reply = answer(verdict="INVALID", reason=reason)
    assert (
        read_ablation(VALUE, CHANGE, reply) is None
        and lacks(reply, {SIMD: 1})
        and not lacks(reply, {"torch.other.flag": 1})
    )
    assert read_ablation(VALUE, CHANGE, answer(verdict="SKIP", reason="no device cuda here")) is None


@pytest.fixture
def bisected_engine(tmp_path: Path) -> Iterator[VariantEngine]:
    with VariantEngine(variants(tmp_path, "")[0], environment()) as instance:
        yield instance


def asked(job: Job | Bisected) -> Job:
    assert isinstance(job, Job)
    return job


@pytest.mark.parametrize(("stage", "backend"), [("dynamo", "eager"), ("aot", "aot_eager")])
def test_a_stage_without_parts_is_the_answer(stage: str, backend: str) -> None:
    result = whole_stage(FailureSignature("value", stage))
    assert result is not None and result.culprit == Culprit(backend) and "cannot switch off" in result.note


def test_the_graphs_of_a_custom_backend_are_cut(bisected_engine: VariantEngine) -> None:
    job = asked(bisection_job(bisected_engine, FailureSignature("value", "backend"), {}))
    assert job.task == "cut" and job.arguments["wanted"] == [["value", "", ""]]


def test_inductor_is_bisected_for_the_failure_itself(bisected_engine: VariantEngine) -> None:
    job = asked(
        bisection_job(
            bisected_engine, FailureSignature("compile-error", "inductor", "InductorError", "KeyError: N"), {}
        )
    )
    assert job.task == "bisect" and job.backend["backend"] == "inductor"
    assert job.arguments == {
        "wanted": [["compile-error", "InductorError", "KeyError: N"]],
        "seconds": SECONDS,
        "budget": BUDGET,
    }
    assert job.timeout > BUDGET + SECONDS


def test_a_hang_gets_less_time_for_each_answer(bisected_engine: VariantEngine) -> None:
    job = asked(bisection_job(bisected_engine, FailureSignature("timeout", "inductor", "Timeout"), {}))
    assert job.arguments["seconds"] == HANG_SECONDS


def test_a_lower_stage_is_bisected_for_what_its_own_backend_shows(bisected_engine: VariantEngine) -> None:
    findings = [
        finding("value", None),
        finding("runtime-error", None, "KeyError", message="'x'"),
        finding("stride", None),
    ]
    signature = FailureSignature("compile-error", "decomposition", "InductorError", "KeyError: '…'")
    job = asked(bisection_job(bisected_engine, signature, {"decomposition": findings}))
    assert job.backend["backend"] == "aot_eager_decomp_partition"
    assert job.arguments["wanted"] == [["runtime-error", "KeyError", "'…'"]]  # the one of its kind
    result = bisection_job(bisected_engine, signature, {"decomposition": findings[:1]})
    assert isinstance(result, Bisected) and result.culprit is None and "does not show under" in result.note


def test_reading_an_answer(bisected_engine: VariantEngine) -> None:
    job = asked(bisection_job(bisected_engine, FailureSignature("value", "inductor"), {}))
    culprit = {"backend": "inductor", "subsystem": "lowerings", "number": 1, "name": "relu", "operator": None}
    case, source = bisected_engine.variant.case, bisected_engine.source
    result = read_bisection(Outcome(job, "result", 1.0, result={"culprit": culprit, "note": ""}), case, source)
    assert result == Bisected(Culprit("inductor", "lowerings", 1, "relu"))
    result = read_bisection(Outcome(job, "result", 1.0, result={"culprit": None, "note": "why"}), case, source)
    assert result == Bisected(None, "why")


CASE = """\
cases:
  - name: a
    inputs: {x: [4, 8]}
    chain:
      - torch.sin
      - F.relu
      - {if: "${x.shape[0] == 7}", do: [torch.cos], else: [torch.relu, torch.tanh]}
"""


@pytest.mark.parametrize(
    ("call", "step"),
    [("F.relu", "relu, the first of two"), ("torch.relu", "relu, the second of two"), ("torch.tanh", "tanh")],
)
def test_the_step_of_a_line(tmp_path: Path, call: str, step: str) -> None:
    variant = loaded(written(tmp_path, CASE)).variants[0]
    with VariantEngine(variant, environment()) as bisected_engine:
        line = next(n for n, text in enumerate(bisected_engine.source.text.split("\n"), 1) if call in text)
        culprit = {
            "backend": "inductor",
            "subsystem": "lowerings",
            "number": 1,
            "name": "x",
            "operator": None,
            "line": line,
        }
        job = asked(bisection_job(bisected_engine, FailureSignature("value", "inductor"), {}))
        located = read_bisection(
            Outcome(job, "result", 1.0, result={"culprit": culprit}), variant.case, bisected_engine.source
        ).culprit
    assert located is not None and located.step == step
    lines = Path(variant.case.file).read_text().split("\n")
    assert call in lines[int(str(located.place).rpartition(":")[2]) - 1]


def test_a_bisecting_process_that_dies_is_said(bisected_engine: VariantEngine) -> None:
    job = asked(bisection_job(bisected_engine, FailureSignature("value", "inductor"), {}))
    result = read_bisection(
        Outcome(job, "signal", 1.0, "backend", signal="SIGSEGV"), bisected_engine.variant.case, bisected_engine.source
    )
    assert result.culprit is None and result.note == "bisecting failed: the process was ended by SIGSEGV"


FOUND = Diagnosis(
    id="a.spec.yaml::a[float32,cpu]@inductor",
    torch="2.13.0",
    verdict="FAIL",
    reason="it differs",
    signature=FailureSignature("value", "inductor"),
    findings=(finding(numbers={"worst_index": [0, 1], "abs_error": 0.5}, place="a.spec.yaml:3:5"),),
    stages={"dynamo": "ok", "inductor": "value"},
    culprit=Culprit("inductor", "lowerings", 2, "relu", "aten.relu.default", "relu", "a.spec.yaml:4"),
    ablations=(Ablation("on one thread", "threads: 1", "same"),),
    labels=("nearer-to-float64",),
    notes=("a note",),
    seconds=12.5,
    run_seconds=1.5,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    answer_with(monkeypatch, Fingerprint("one torch"))


def answer_with(monkeypatch: pytest.MonkeyPatch, fingerprint: Fingerprint) -> None:
    monkeypatch.setattr(kept, "take_fingerprints", lambda pythons: dict.fromkeys(pythons, fingerprint))


def kept_engine(tmp_path: Path, **changes: object) -> VariantEngine:
    return VariantEngine(variants(tmp_path, "")[0], environment(), **changes)  # type: ignore[arg-type]


def files(tmp_path: Path) -> list[Path]:
    return [*tmp_path.glob(".runner/diagnoses/*/*.json")]


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    diagnosis.keep(diagnosis.path_of(kept_engine(tmp_path)), FOUND)
    match = diagnosis.find_kept(kept_engine(tmp_path))
    assert match is not None and match.diagnosis == FOUND and len(match.when) == len("2026-01-02 03:04")
    bare = replace(FOUND, culprit=None, ablations=(), bisect_note="why")
    diagnosis.keep(diagnosis.path_of(kept_engine(tmp_path)), bare)
    match = diagnosis.find_kept(kept_engine(tmp_path))
    assert match is not None and match.diagnosis == bare and len(files(tmp_path)) == 1


def test_without_a_failure_nothing_is_kept(tmp_path: Path) -> None:
    diagnosis.keep(diagnosis.path_of(kept_engine(tmp_path)), replace(FOUND, signature=None))
    assert files(tmp_path) == []


def other_comment(tmp_path: Path) -> VariantEngine:
    text = (tmp_path / "a.spec.yaml").read_text()
    return VariantEngine(loaded(written(tmp_path, f"# one line lower\n{text}")).variants[0], environment())


def other_case(tmp_path: Path) -> VariantEngine:
    return VariantEngine(variants(tmp_path, "expect: {graphs: 1}")[0], environment())


def other_backend(tmp_path: Path) -> VariantEngine:
    variant = variants(tmp_path, "")[0]
    return VariantEngine(replace(variant, backend=Backend("aot_eager", "aot_eager")), environment())


def other_torch(tmp_path: Path) -> VariantEngine:
    return VariantEngine(variants(tmp_path, "")[0], environment("2.6.0"))


def other_seed(tmp_path: Path) -> VariantEngine:
    return kept_engine(tmp_path, seed=1)


@pytest.mark.parametrize("make_engine", [other_comment, other_case, other_backend, other_torch, other_seed])
def test_of_anything_else_it_is_not_found(make_engine: Callable[[Path], VariantEngine], tmp_path: Path) -> None:
    diagnosis.keep(diagnosis.path_of(kept_engine(tmp_path)), FOUND)
    assert diagnosis.find_kept(make_engine(tmp_path)) is None


def test_under_other_files_of_torch_or_other_code_of_ours_it_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis.keep(diagnosis.path_of(kept_engine(tmp_path)), FOUND)
    with monkeypatch.context() as patch:
        answer_with(patch, Fingerprint("another torch"))
        assert diagnosis.find_kept(kept_engine(tmp_path)) is None
    with monkeypatch.context() as patch:
        patch.setattr(kept, "code_digest", lambda folder: "other code")
        assert diagnosis.find_kept(kept_engine(tmp_path)) is None
    assert diagnosis.find_kept(kept_engine(tmp_path)) is not None


@pytest.mark.parametrize("why", ["dirty", "import", "backend"])
def test_where_code_without_a_name_decides_nothing_is_kept(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "dirty":
        answer_with(monkeypatch, Fingerprint("one", dirty="TORCH_LOGS set"))
    variant = variants(tmp_path, "")[0]
    variant = replace(variant, backend=Backend("mine", "mine")) if why == "backend" else variant
    fresh_engine = VariantEngine(variant, environment(), imports=("mine",) if why == "import" else ())
    diagnosis.keep(diagnosis.path_of(fresh_engine), FOUND)
    assert files(tmp_path) == [] and diagnosis.find_kept(fresh_engine) is None


def test_what_somebody_else_wrote_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis.keep(diagnosis.path_of(kept_engine(tmp_path)), FOUND)
    (file,) = files(tmp_path)
    text = file.read_text()
    file.write_text(text.replace("it differs", "it is fine"))
    assert diagnosis.find_kept(kept_engine(tmp_path)) is None
    file.write_text(text)
    assert diagnosis.find_kept(kept_engine(tmp_path)) is not None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert diagnosis.find_kept(kept_engine(tmp_path)) is None
