"""The steps of ``runner why`` that are left out or cut, and the names of its folders."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli import why
from runner.cli.main import main
from runner.diagnose.bug_report import ScriptRun
from runner.diagnose.diagnosis import Diagnosis, of_verdict
from runner.diagnose.harness import VariantEngine
from runner.diagnose.kept import OutOfTime
from runner.exit_codes import UsageError
from runner.record.events import VariantFinished
from tests.handmade import loaded, written

PLANTED = "relu_accuracy_error_TESTING_ONLY"
CASE = "cases: [{name: wrong, inputs: {x: [4, 8]}, grad: off, chain: [torch.tanh, torch.relu]}]"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, CASE)
    return ["a.spec.yaml::wrong", "--backend", PLANTED, "-j", "2", "-o", "own"]


def rest(text: str) -> list[list[str]]:
    """The words of each command that goes on with a step."""
    lines = text.splitlines()
    return [shlex.split(lines[place + 1]) for place, line in enumerate(lines) if line.startswith("not done")]


@pytest.mark.slow
def test_what_is_left_out_is_named_with_the_command_that_does_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(why, "LEAST", 1000.0)
    assert main(["why", *words]) == 1
    text = capsys.readouterr().out
    case = f"a.spec.yaml::wrong[float32,cpu]@{PLANTED}"
    assert rest(text) == [["runner", "diagnose", case], ["runner", "reduce", case], ["python", "own/repro.py"]]
    assert "stage     backend" in text and Path("own/repro.py").is_file()


@pytest.mark.nightly
@pytest.mark.slow
def test_what_is_cut_goes_on_where_it_was(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(*arguments: object) -> None:
        raise OutOfTime

    def stopped(engine: VariantEngine, *, event: VariantFinished, **options: object) -> Diagnosis:
        return replace(of_verdict(event, engine.variant), stopped="the time is up")

    with monkeypatch.context() as patched:
        patched.setattr(why, "diagnose", stopped)
        patched.setattr(why, "reduce_into", late)
        assert main(["why", *words]) == 1
    text = capsys.readouterr().out
    (_, *of_diagnose), (_, *of_reduce) = rest(text)
    assert of_diagnose[0] == "diagnose" and of_reduce[-3:] == ["-o", "own", "--resume"]
    assert "own/repro.py, which was run once: exit status 1" in text
    assert main(of_reduce) == 0
    assert "chain: [torch.relu]" in capsys.readouterr().out


@pytest.mark.slow
def test_a_step_that_is_refused_does_not_hide_the_others(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise UsageError("model.py is there already")

    def end(*arguments: object) -> ScriptRun:
        return ScriptRun(1, "Traceback:\nModuleNotFoundError: No module named 'acme'\n\n", "")

    monkeypatch.setattr(why, "reduce_into", refuse)
    monkeypatch.setattr(why, "run_script", end)
    assert main(["why", *words]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "not done reducing: model.py is there already" in text and "own/repro.py, which was run once" in text
    assert "does not show the failure, and its output ends with: ModuleNotFoundError: No module named 'acme'" in text


def test_variants_of_one_case_have_folders_of_their_own(tmp_path: Path) -> None:
    variants = loaded(written(tmp_path, CASE.replace("grad: off", "train: [true, false]"))).variants
    names = {why.why_folder(variant).name for variant in variants}
    assert len(names) == len(variants) > 1 and all(name.startswith("wrong-") for name in names)
