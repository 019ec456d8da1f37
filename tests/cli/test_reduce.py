"""What ``runner reduce`` prints at its end."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cli.reduce import STEPS, TRIED, Journal, _print_commands, run
from runner.session.plan import Planned
from tests.handmade import environment, variants


def test_the_case_is_run_under_the_settings_of_its_reduction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    settings = ["--seed", "3", "--limit", "steps=9", "--import", "m", "--python", "/my python"]
    parser = argparse.ArgumentParser()
    run.add(parser)
    arguments = parser.parse_args(["a.spec.yaml::a", *settings])
    reduced: Any = SimpleNamespace(variant=variants(tmp_path, "")[0])
    _print_commands(Path(os.curdir, "my out"), reduced, arguments)
    words, script = (shlex.split(line)[1:] for line in capsys.readouterr().out.splitlines()[:2])
    assert script == ["/my python", "my out/repro.py"]
    assert words[:4] == ["PYTHONHASHSEED=7", "runner", "run", "my out/case.spec.yaml"]
    pairs = [*zip(words[4::2], words[5::2], strict=True)]
    assert {*zip(settings[::2], settings[1::2], strict=True)} < {*pairs}


def test_a_record_that_was_cut_off_is_taken_out_before_the_next(tmp_path: Path) -> None:
    variant = variants(tmp_path, "")[0]
    engine: Any = SimpleNamespace(
        variant=variant, planned=Planned(variant, environment()), seed=0, environment=environment()
    )
    Journal(tmp_path, engine, resume=False)
    for name in (STEPS, TRIED):
        (tmp_path / name).write_text('{"text": "a", "same": true, "what": "b"}\n{"text": "')
    assert Journal(tmp_path, engine, resume=True).memory.verdicts == {"a": True}
    assert all((tmp_path / name).read_text().endswith('"b"}\n') for name in (STEPS, TRIED))
