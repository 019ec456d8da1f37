"""A frame in which Dynamo failed goes into a file, and Dynamo fails over that file while the bug is there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import worker_jobs
from torch._dynamo.variables.tensor import TensorVariable
from worker_jobs import source

from runner.contract.job import Job
from runner.worker.tasks import debug
from runner.worker.torch_private import doors, dynamo
from runner.worker.torch_private.doors import Door

TEXT = source("scale = self.factor\nreturn x.relu() * scale", init="self.factor = 3.0")


def job(task: str, **arguments: Any) -> Job:
    return worker_jobs.job(name="case", source=TEXT, backend={"backend": "eager"}, task=task, arguments=arguments)


def silent(message: dict[str, Any]) -> None:
    del message


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes Dynamo fail over every method of a tensor; ``__main__`` is put back at the end."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def broken(*args: Any, **named: Any) -> Any:
        raise AssertionError("planted in Dynamo")

    return lambda: monkeypatch.setattr(TensorVariable, "call_method", broken)


def test_what_is_recorded_fails_again_until_the_bug_is_gone(
    tmp_path: Path, plant: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context():
        plant()
        record = debug.run_dynamo_record(job("record", folder=str(tmp_path)), silent)
        assert "planted in Dynamo" in record["raised"]["message"]
        [file] = record["files"]
        replay = debug.run_dynamo_replay(job("replay", file=file), silent)
        assert "planted in Dynamo" in replay["raised"]["message"]
    monkeypatch.undo()
    assert debug.run_dynamo_replay(job("replay", file=file), silent) == {"raised": None}


def test_nothing_is_recorded_where_dynamo_does_not_fail(tmp_path: Path, plant: Callable[[], None]) -> None:
    assert debug.run_dynamo_record(job("record", folder=str(tmp_path)), silent) == {"files": [], "raised": None}


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "x.rec"
    file.write_bytes(b"not a pickle")
    record = debug.run_dynamo_replay(job("replay", file=str(file)), silent)
    assert "no recording" in record["error"]["message"]


def test_without_dill_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for record in (
        debug.run_dynamo_record(job("record", folder=str(tmp_path)), silent),
        debug.run_dynamo_replay(job("replay", file="x"), silent),
    ):
        assert "pip install dill" in record["error"]["message"]


def test_a_torch_that_cannot_replay_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error of the frame."""
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    monkeypatch.setattr(dynamo, "REPLAY", Door("torch._no_such_part:replay", "nothing is replayed"))
    with pytest.raises(ImportError, match="nothing is replayed"):
        debug.run_dynamo_replay(job("replay", file="x"), silent)
