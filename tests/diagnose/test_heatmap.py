"""The run that measures a heat map: what it returns when its process dies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.contract.job import Job
from runner.diagnose.harness import VariantEngine, run_heat_map
from runner.engine.messages import Outcome
from tests.handmade import environment, variants


class ScriptedEngine(VariantEngine):
    """An engine whose jobs end as written: fields of an ``Outcome``, one mapping a job."""

    def __init__(self, tmp_path: Path, *endings: dict[str, Any]) -> None:
        super().__init__(variants(tmp_path, "")[0], environment())
        self.endings = list(endings)
        self.submitted_jobs: list[Job] = []

    def ask(self, jobs: Sequence[Job], tick: Any = None) -> list[Outcome]:
        self.submitted_jobs += jobs
        return [Outcome(job, seconds=0.1, **self.endings.pop(0)) for job in jobs]


RECORD = {"picture": {"path": "output[0]"}, "reason": "", "inputs": [{"index": 0}]}


def test_the_record_of_the_task_is_returned(tmp_path: Path) -> None:
    with ScriptedEngine(tmp_path, {"ended": "result", "result": RECORD}) as engine:
        assert run_heat_map(engine) == RECORD
    assert [(job.task, job.float64) for job in engine.submitted_jobs] == [("picture", True)]


@pytest.mark.parametrize("phase", ["eager", "backend", "float64"])
def test_a_death_leaves_no_heat_map(tmp_path: Path, phase: str) -> None:
    with ScriptedEngine(tmp_path, {"ended": "signal", "signal": "SIGSEGV", "phase": phase}) as engine:
        record = run_heat_map(engine)
    assert record == {"picture": None, "reason": "the process was ended by SIGSEGV", "inputs": []}
    assert len(engine.submitted_jobs) == 1
