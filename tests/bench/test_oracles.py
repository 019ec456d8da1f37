"""bench/oracles.py: the usual check by hand runs every kind of case, and a child that fails is an error. Nothing is timed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config  # before the bench, whose variables would be its settings in this process

from runner.builder.source import build
from runner.contract.job import Job
from runner.session.plan import Environment, Planned, job
from tests.handmade import variants
from tests.script_modules import script_module

oracles = script_module("oracles")


def task(folder: Path, keys: str = "") -> Job:
    variant, *_ = variants(folder, keys, backends=["eager"])
    return job(Planned(variant, Environment("0", "", torch.__version__, torch.__version__, "")), build(variant))


@pytest.mark.parametrize("keys", ["", "grad: 'off'", "params: {n: [2, 3]}"])
def test_values_alone_runs_a_case_three_times(keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(oracles, "same", lambda *values: calls.append([value.dtype for value in values]))
    modules = {*sys.modules}
    oracles.values_alone(task(tmp_path, keys))
    assert not [name for name in {*sys.modules} - modules if "float32" in name], "its case is forgotten"
    assert calls == [[torch.float32, torch.float32, torch.float64]]


def test_a_child_that_fails_is_an_error(tmp_path: Path) -> None:
    case = task(tmp_path)
    assert oracles.seconds(lambda job: None, case, str(tmp_path)) > 0
    with pytest.raises(RuntimeError, match="failed in"):
        oracles.seconds(lambda job: os._exit(3), case, str(tmp_path))
