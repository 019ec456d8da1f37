"""bench/scripts.py: when a run and a script agree. No script is run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from runner.contract.finding import Finding
from runner.record.events import VariantFinished
from tests.script_modules import script_module


@pytest.fixture(scope="module")
def scripts() -> ModuleType:
    return script_module("scripts")


def finished(verdict: str, *findings: Finding) -> VariantFinished:
    names = {"id": "a", "case": "a", "suite": "s", "backend": "b", "torch": "2.13.0", "python": "p", "device": "cpu",
             "dtype": "float32", "label": "a", "file": "f"}  # fmt: skip
    return VariantFinished(**names, suites=(), line=1, verdict=verdict, seconds=1.0, findings=findings)  # type: ignore[arg-type]


WRONG = Finding("value", "it differs", "output")
LOWERING = Finding("compile-error", "no", error={"type": "InductorError"})


@pytest.mark.parametrize(
    ("verdict", "findings", "code", "output", "agrees"),
    [
        ("PASS", (), 0, "", True),
        ("PASS", (), 1, "AssertionError: so", False),
        ("PASS", (), 2, "", False),
        ("FAIL", (WRONG,), 1, "AssertionError: so", True),
        ("FAIL", (WRONG,), 1, "torch._inductor.exc.InductorError: no", False),
        ("FAIL", (WRONG,), 0, "", False),
        ("ERROR", (LOWERING,), 1, "torch._inductor.exc.InductorError: no", True),
        ("ERROR", (LOWERING,), 1, "RuntimeError: no", False),
        ("ERROR", (LOWERING,), 2, "", False),
        ("ERROR", (Finding("signal", "SIGABRT", error={"type": "SIGABRT"}),), -6, "", True),
        ("ERROR", (Finding("timeout", "late", error={"type": "Timeout"}),), None, "", True),
        ("INVALID", (), 2, "", True),
        ("NOT-RUN", (), 0, "", False),
    ],
)
def test_when_they_agree(
    scripts: ModuleType, verdict: str, findings: tuple[Finding, ...], code: int | None, output: str, agrees: bool
) -> None:
    why = scripts.disagreement(finished(verdict, *findings), scripts.ScriptRun("", code, 0.0, output))
    assert (why == "") is agrees, why


def test_a_script_that_needs_more_than_torch_is_not_run(scripts: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="runner"):
        scripts.run_script(sys.executable, "import torch\nfrom runner.worker import job\n", tmp_path)
