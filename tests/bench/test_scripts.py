"""bench/scripts.py: what it takes for the reason of a run and of a script, and when the two agree. No script is run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def scripts(bench_module: Callable[[str], ModuleType]) -> ModuleType:
    return bench_module("scripts")


def event(verdict: str, *findings: tuple[str, str | None], signal: str | None = None) -> dict[str, Any]:
    found = [{"oracle": oracle, "error": {"type": error} if error else None} for oracle, error in findings]
    return {"verdict": verdict, "findings": found, "signal": signal}


@pytest.mark.parametrize(
    ("code", "output", "reasons"),
    [
        (0, "no problem\n", ()),
        (1, "PROBLEM: stride: output: eager (1,), compiled (2,)\nPROBLEM: value: output: 3 of 4 differ\n", ("stride", "value")),
        (1, "PROBLEM: error: eager returned, compiled raised InductorError: no\nTraceback", ("error InductorError",)),
        (1, "PROBLEM: error-type: eager raised IndexError: a, compiled raised RuntimeError: b\n", ("error-type",)),
        (1, "eager returned\nTimeout (0:02:00)!\n", ("timeout",)),
        (None, "eager returned\n", ("timeout",)),
        (-6, "eager returned\nFatal Python error: Aborted", ("SIGABRT",)),
        (1, "ImportError: no torch", ()),
    ],
)  # fmt: skip
def test_reasons_of_a_script(scripts: ModuleType, code: int | None, output: str, reasons: tuple[str, ...]) -> None:
    assert scripts.reasons_of(code, output) == reasons


def test_reasons_of_a_run(scripts: ModuleType) -> None:
    def reasons(*findings: tuple[str, str | None], signal: str | None = None) -> tuple[str, ...]:
        return scripts.wanted(event("FAIL", *findings, signal=signal)).reasons  # type: ignore[no-any-return]

    assert reasons(("alias", None), ("value", None), ("value", None)) == ("alias", "value")
    assert reasons(("compile-error", "InductorError")) == ("error InductorError",)
    assert reasons(("graph-break", "Unsupported")) == ("error Unsupported",)
    assert reasons(("graph-break", None)) == ("graph-break",)
    assert reasons(("error-type", "RuntimeError")) == ("error-type",)
    assert reasons(("signal", None), signal="SIGABRT") == ("SIGABRT",)


@pytest.mark.parametrize(
    ("verdict", "wanted", "code", "said", "agrees"),
    [
        ("PASS", (), 0, (), True),
        ("PASS", (), 1, ("value",), False),
        ("PASS", (), 2, (), False),
        ("FAIL", ("value",), 1, ("value",), True),
        ("FAIL", ("value",), 1, ("stride",), False),
        ("FAIL", ("alias", "value"), 1, ("alias",), True),
        ("FAIL", ("alias", "value"), 1, ("value",), False),
        ("FAIL", ("value",), 0, (), False),
        ("ERROR", ("error InductorError",), 1, ("error RuntimeError",), False),
        ("ERROR", ("SIGABRT",), -6, ("SIGABRT",), True),
        ("ERROR", ("timeout",), None, ("timeout",), True),
        ("ERROR", ("error InductorError",), 2, (), False),
        ("INVALID", (), 2, (), True),
        ("NOT-RUN", (), 0, (), False),
    ],
)
def test_when_they_agree(
    scripts: ModuleType, verdict: str, wanted: tuple[str, ...], code: int | None, said: tuple[str, ...], agrees: bool
) -> None:
    why = scripts.disagreement(scripts.Wanted(verdict, wanted), scripts.Ran("", code, said, 0.0, ""))
    assert (why == "") is agrees, why


def test_a_script_that_needs_more_than_torch_is_not_run(scripts: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="runner"):
        scripts.run_script(sys.executable, "import torch\nfrom runner.worker import job\n", tmp_path)
