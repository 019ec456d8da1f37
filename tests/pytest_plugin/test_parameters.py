"""``runner.conformance``: cases of suites as parameters of a test, in one run that begins with the first question."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import runner
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.pytest_plugin import parameters
from runner.pytest_plugin.parameters import note_selection
from runner.record.events import RunFinished

PLANTED = "runner.worker.planted:wrong_element"
SPEC = """\
cases:
  - {name: a, inputs: {x: [2]}, chain: [F.relu]}
  - {name: b, inputs: {x: [2]}, chain: [torch.sin]}
  - {name: c, inputs: {x: [2]}, chain: [torch.cos]}
"""
TEST = """\
import pytest

import runner


@pytest.mark.parametrize("case", runner.conformance("{backend}", "a.spec.yaml"))
def test_conformance(case):
    case.check()
"""


class Runs:
    """Stands for ``runner.session.run.run``: each variant gets the verdict that ``words`` has for its case."""

    def __init__(self, **words: str) -> None:
        self.words, self.planned, self.closed = words, [], 0
        self.interrupted = False

    def __call__(self, plan: Any, settings: Any) -> Iterator[Any]:
        names = [each.variant.case.name for each in plan.planned]
        self.planned.append(names)
        for each, name in zip(plan.planned, names, strict=True):
            if name in self.words:
                v, torch = each.variant, each.environment.torch
                yield runner.VariantFinished(
                    v.id, v.case_id, "", (), v.backend.name, torch, "", "cpu", "float32", v.label, v.case.file, 1,
                    verdict=self.words[name], seconds=0.1, reason=f"why {name}",
                )  # fmt: skip
        yield RunFinished(0, 0.1, interrupted=self.interrupted)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.spec.yaml"
    path.write_text(SPEC)
    return path


def runs(monkeypatch: pytest.MonkeyPatch, **words: str) -> Runs:
    fake = Runs(**words)
    monkeypatch.setattr(parameters, "run", fake)
    return fake


def test_all_share_one_run(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = runs(monkeypatch, a="PASS", b="XFAIL", c="PASS")
    cases = runner.conformance("eager", spec)
    assert [case.__name__ for case in cases] == [f"a.spec.yaml::{name}[float32,cpu]" for name in "abc"]
    assert fake.planned == []
    assert [case.check().verdict for case in cases] == ["PASS", "XFAIL", "PASS"] and fake.planned == [["a", "b", "c"]]


@pytest.mark.parametrize("word", ["FAIL", "ERROR", "XPASS", "FLAKY", "VACUOUS", "INVALID"])
def test_a_red_verdict_is_an_assertion_that_fails(spec: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    runs(monkeypatch, a=word, b="SKIP")
    first, second, third = runner.conformance("eager", spec)
    with pytest.raises(runner.Disagreement, match=rf"^{word} a\.spec\.yaml::a\[float32,cpu\]@eager\nwhy a"):
        first.check()
    with pytest.raises(unittest.SkipTest, match="why b"):
        second.check()
    with pytest.raises(RuntimeError, match="the run has ended without a verdict of a"):
        third.check()


def test_what_pytest_has_selected_runs_alone(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = runs(monkeypatch, a="PASS", b="PASS", c="PASS")
    first, second, third = runner.conformance("eager", spec)
    note_selection([first, third], is_alone=False)
    assert (first.check().verdict, third.check().verdict) == ("PASS", "PASS") and fake.planned == [["a", "c"]]
    first, second, third = runner.conformance("eager", spec)
    note_selection([first, second, third], is_alone=True)
    assert (second.check().verdict, third.check().verdict) == ("PASS", "PASS") and fake.planned[1:] == [["b"], ["c"]]


def test_an_interruption_is_one(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch).interrupted = True
    (first, *_) = runner.conformance("eager", [spec])
    with pytest.raises(KeyboardInterrupt):
        first.check()


def test_settings_are_those_of_a_run(spec: Path) -> None:
    settings = runner.RunSettings(select="b", backend=("aot_eager",))
    (case,) = runner.conformance("eager", str(spec), settings)
    assert case.key[0].endswith("::b[float32,cpu]@eager") and case.run.settings == replace(settings, backend=("eager",))


def test_what_is_wrong_is_told_at_once(spec: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such backend"):
        runner.conformance("inductr", spec)
    (tmp_path / "wrong.spec.yaml").write_text("cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.rellu]}\n")
    with pytest.raises(InputError, match="did you mean"):
        runner.conformance("eager", tmp_path / "wrong.spec.yaml")


@pytest.mark.slow
def test_a_repository_of_a_vendor(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "test_acme.py").write_text(TEST.format(backend=PLANTED))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "test_acme.py", "-p", "no:cacheprovider"]
    ids = [f"test_acme.py::test_conformance[a.spec.yaml::{name}[float32,cpu]]" for name in "ac"]
    run = subprocess.run([*command, "-k", "::a or ::c"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 1 and "2 failed, 1 deselected" in run.stdout, run.stdout + run.stderr
    assert all(f"FAILED {id}" in run.stdout for id in ids)
    errors = [line for line in run.stdout.splitlines() if line.startswith("E ")]  # the summary has them too under CI
    assert ["Disagreement: FAIL a.spec.yaml::" in line for line in errors].count(True) == 2, run.stdout
    assert "def check(self)" not in run.stdout
