"""bench/compile_models.py: what it compiles is captured, and the five models that it names are there."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from runner.worker.capture.session import Session  # noqa: E402
from tests.script_modules import script_module  # noqa: E402


def test_named_models_are_compiled_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_module("compile_models")
    models = sys.modules["capture_models"].MODELS
    assert {*script.FIVE} <= models.keys()
    monkeypatch.setitem(models, "linear", (lambda: torch.nn.Linear(3, 2), {"input": [4, 3]}))
    with Session() as session:
        script.main(["linear", "linear"])
    assert [capture.model for capture in session.captures()] == ["Linear", "Linear 2"]
    torch.compiler.reset()
