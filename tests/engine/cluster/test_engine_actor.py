"""What runs on a cluster's node, without Ray."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from engine_jobs import job

from runner.engine.cluster.engine import NodeActor, Report, Setup, interpreter, passed_on
from runner.engine.interpreters import probe
from runner.engine.messages import Outcome

BUILD = probe(sys.executable)["build"]


@pytest.fixture
def actor(fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeActor]:
    monkeypatch.chdir(os.getcwd())  # an actor changes these of its process
    for name in (*os.environ, "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | {"HERE": "yes"}
    options = {"warm": {"here": "none"}, "environ": fake}
    node_actor = NodeActor(Setup({"here": sys.executable}, options, {"here": BUILD}, variables, "/"), 1)
    assert node_actor.prepare() == ""
    yield node_actor
    node_actor.close()


def test_jobs_and_what_they_do(actor: NodeActor) -> None:
    source = "import os; result.update(cwd=os.getcwd(), here=os.environ.get('HERE'), omp=os.getenv('OMP_NUM_THREADS'))"
    jobs = [(7, job(source, "seven")), (9, job("import time\nsend({'phase': 'eager'})\ntime.sleep(0.2)", "nine"))]
    phases: list[tuple[int, str]] = []
    outcomes: dict[int, Outcome] = {}
    for _ in range(2000):
        report = actor.step(jobs, 0.02)
        assert isinstance(report, Report)
        jobs = []
        phases += [(ticket, phase) for ticket, (_, phase) in report.running.items()]
        outcomes |= report.outcomes
        if len(outcomes) == 2:
            break
    assert outcomes[7].result == {"cwd": "/", "here": "yes", "omp": None}
    assert outcomes[7].job is None  # type: ignore[comparison-overlap]
    assert (9, "eager") in phases
    assert report.environments == ["here"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_cancelled_jobs_do_not_come_back(actor: NodeActor) -> None:
    report = actor.step([(1, job("import time; time.sleep(60)")), (2, job(""))], 0.01)
    while not report.running:
        report = actor.step([], 0.01)
    actor.cancel()
    report = actor.step([(3, job("result['ok'] = 1"))], 0.01)
    while not report.outcomes:
        report = actor.step([], 0.01)
    assert {ticket: outcome.result for ticket, outcome in report.outcomes.items()} == {3: {"ok": 1}}


def test_nothing_to_do_is_answered_at_once(actor: NodeActor) -> None:
    assert actor.step([], 1000.0) == Report({}, {}, [])


def test_the_interpreter_of_a_node() -> None:
    assert interpreter(sys.executable, BUILD) == (sys.executable, "")
    assert interpreter(sys.executable, None) == (sys.executable, "")
    assert interpreter("/no/such/python", BUILD) == (sys.executable, "")
    path, reason = interpreter("/no/such/python", "1.0+cu99")
    assert path == ""
    assert "/no/such/python: no such Python interpreter" in reason
    assert f"{sys.executable} has torch {BUILD}, not 1.0+cu99" in reason
    assert interpreter("/no/such/python", None) == ("", "/no/such/python: no such Python interpreter")


def test_an_actor_without_its_interpreter_says_why(fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.setenv(name, os.environ[name])
    actor = NodeActor(Setup({"here": sys.executable}, {}, {"here": "0"}, dict(os.environ), os.getcwd()), 1)
    assert f"has torch {BUILD}, not 0" in actor.prepare()


def test_which_variables_go_along() -> None:
    variables = {"TORCH_LOGS": "graph", "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TRITON_INTERPRET": "1"}
    elsewhere = {
        "TORCHINDUCTOR_CACHE_DIR": "/x",
        "TORCH_HOME": "/x",
        "TRITON_PTXAS_PATH": "/x",
        "HOME": "/x",
        "CC": "x",
    }
    assert passed_on({**variables, **elsewhere}) == variables
