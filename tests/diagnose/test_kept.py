"""Kept diagnoses: what is found again, and all that keeps one from being found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cases.model import Backend
from runner.diagnose import diagnosis
from runner.diagnose.diagnosis import Ablation, Culprit, Diagnosis
from runner.diagnose.harness import VariantEngine
from runner.engine.fingerprint import Fingerprint
from runner.verdict.signature import FailureSignature
from tests.handmade import environment, finding, loaded, variants, written

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
    monkeypatch.setattr(diagnosis, "take_fingerprints", lambda pythons: dict.fromkeys(pythons, fingerprint))


def engine(tmp_path: Path, **changes: object) -> VariantEngine:
    return VariantEngine(variants(tmp_path, "")[0], environment(), **changes)  # type: ignore[arg-type]


def files(tmp_path: Path) -> list[Path]:
    return [*tmp_path.glob(".runner/diagnoses/*/*.json")]


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    diagnosis.keep(diagnosis.path_of(engine(tmp_path)), FOUND)
    again = diagnosis.find_kept(engine(tmp_path))
    assert again is not None and again.diagnosis == FOUND and len(again.when) == len("2026-01-02 03:04")
    bare = replace(FOUND, culprit=None, ablations=(), bisect_note="why")
    diagnosis.keep(diagnosis.path_of(engine(tmp_path)), bare)
    again = diagnosis.find_kept(engine(tmp_path))
    assert again is not None and again.diagnosis == bare and len(files(tmp_path)) == 1


def test_without_a_failure_nothing_is_kept(tmp_path: Path) -> None:
    diagnosis.keep(diagnosis.path_of(engine(tmp_path)), replace(FOUND, signature=None))
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
    return engine(tmp_path, seed=1)


@pytest.mark.parametrize("other", [other_comment, other_case, other_backend, other_torch, other_seed])
def test_of_anything_else_it_is_not_found(other: Callable[[Path], VariantEngine], tmp_path: Path) -> None:
    diagnosis.keep(diagnosis.path_of(engine(tmp_path)), FOUND)
    assert diagnosis.find_kept(other(tmp_path)) is None


def test_under_other_files_of_torch_or_other_code_of_ours_it_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis.keep(diagnosis.path_of(engine(tmp_path)), FOUND)
    with monkeypatch.context() as patch:
        answer_with(patch, Fingerprint("another torch"))
        assert diagnosis.find_kept(engine(tmp_path)) is None
    with monkeypatch.context() as patch:
        patch.setattr(diagnosis, "code_digest", lambda folder: "other code")
        assert diagnosis.find_kept(engine(tmp_path)) is None
    assert diagnosis.find_kept(engine(tmp_path)) is not None


@pytest.mark.parametrize("why", ["dirty", "import", "backend"])
def test_where_code_without_a_name_decides_nothing_is_kept(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "dirty":
        answer_with(monkeypatch, Fingerprint("one", dirty="TORCH_LOGS set"))
    variant = variants(tmp_path, "")[0]
    variant = replace(variant, backend=Backend("mine", "mine")) if why == "backend" else variant
    one = VariantEngine(variant, environment(), imports=("mine",) if why == "import" else ())
    diagnosis.keep(diagnosis.path_of(one), FOUND)
    assert files(tmp_path) == [] and diagnosis.find_kept(one) is None


def test_what_somebody_else_wrote_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis.keep(diagnosis.path_of(engine(tmp_path)), FOUND)
    (file,) = files(tmp_path)
    text = file.read_text()
    file.write_text(text.replace("it differs", "it is fine"))
    assert diagnosis.find_kept(engine(tmp_path)) is None
    file.write_text(text)
    assert diagnosis.find_kept(engine(tmp_path)) is not None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert diagnosis.find_kept(engine(tmp_path)) is None
