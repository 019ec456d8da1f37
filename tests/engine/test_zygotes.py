"""Zygotes: one import for all servers of a Python, and what happens when one dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from engine_jobs import Make, finish, job, one

from runner.engine import process_tree

PARENT = "import os; result['server'] = os.getppid()"


def zygotes() -> list[int]:
    """Children of this process that are zygotes."""
    table = process_tree.processes()
    return [pid for pid, each in table.items() if each.parent == os.getpid() and not each.zombie]


def test_servers_that_differ_in_what_an_import_reads_have_zygotes_of_their_own(make: Make) -> None:
    source = "import os; result['zygote'] = open(f'/proc/{os.getppid()}/stat').read().split()[3]"
    variables = {"plain": {}, "late": {"RUNNER_AS_USER": "1"}, "early": {"TRITON_INTERPRET": "1"}}
    outcomes = finish(make(), *(job(source, key, variables=values) for key, values in variables.items()))
    parents = {key: outcome.result["zygote"] for key, outcome in outcomes.items()}
    assert parents["plain"] == parents["late"] != parents["early"]


def test_a_server_has_its_own_variables(make: Make) -> None:
    source = "import os; result.update({name: os.environ.get(name) for name in ('A', 'RUNNER_AS_USER', 'TORCHINDUCTOR_FX_GRAPH_CACHE')})"
    engine = make(environ={"A": "\udcff"})
    outcomes = finish(engine, job(source, "plain"), job(source, "user", variables={"RUNNER_AS_USER": "1"}))
    assert outcomes["plain"].result == {"A": "\udcff", "RUNNER_AS_USER": None, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}
    assert outcomes["user"].result == {"A": "\udcff", "RUNNER_AS_USER": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": None}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_zygote_that_dies_loses_nothing(make: Make, number: int) -> None:
    engine = make(1)
    first = one(engine, PARENT).result["server"]
    pids = zygotes()
    for pid in pids:
        os.kill(pid, number)
    while {*pids} & {*zygotes()}:  # one that writes a core file still has its server
        time.sleep(0.01)
    second = one(engine, PARENT)
    assert second.ended == "result" and second.result["server"] != first


def test_a_job_whose_zygote_dies_runs_again(make: Make, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = f"import os, time\nif not os.path.exists({str(mark)!r}):\n    open({str(mark)!r}, 'w').close(); time.sleep(100)\nresult['again'] = 1"
    engine = make(1)
    engine.submit(job(source))
    while not mark.exists():
        engine.wait(0.05)
    for pid in zygotes():
        os.kill(pid, signal.SIGKILL)
    (outcome,) = engine.wait(30)
    assert outcome.result == {"again": 1}


def test_a_zygote_that_cannot_come_up(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("import os; os.abort()")
    outcome = one(make(1), "")
    assert outcome.ended == "broken" and "SIGABRT" in outcome.detail
