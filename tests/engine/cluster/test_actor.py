"""What runs on a cluster's node, without Ray."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from engine_jobs import job

from runner.engine.cluster.actor import Host, Report, Setup, interpreter, passed_on
from runner.engine.interpreters import probe
from runner.engine.messages import Outcome

BUILD = probe(sys.executable)["build"]


@pytest.fixture
def host(fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.chdir(os.getcwd())  # a host changes these of its process
    for name in (*os.environ, "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | {"HERE": "yes"}
    made = Host(Setup({"here": sys.executable}, 1, {"here": "none"}, fake, variables=variables, folder="/"))
    assert made.prepare() == ""
    yield made
    made.close()


def test_jobs_and_what_they_do(host: Host) -> None:
    source = "import os; result.update(cwd=os.getcwd(), here=os.environ.get('HERE'), omp=os.getenv('OMP_NUM_THREADS'))"
    jobs = [(7, job(source, "seven")), (9, job("import time\nsend({'phase': 'eager'})\ntime.sleep(0.2)", "nine"))]
    seen: list[tuple[int, str]] = []
    outcomes: dict[int, Outcome] = {}
    for _ in range(200):
        report = host.step(jobs, 1.0, 0.01)
        assert isinstance(report, Report)
        jobs = []
        seen += [(ticket, phase) for ticket, (_, phase) in report.running.items()]
        outcomes |= dict(report.outcomes)
        if len(outcomes) == 2:
            break
    assert outcomes[7].result == {"cwd": "/", "here": "yes", "omp": None}
    assert outcomes[7].job is None  # type: ignore[comparison-overlap]
    assert (9, "eager") in seen
    assert report.hellos["here"]["torch"] == "9.9.9+fake"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_cancelled_jobs_do_not_come_back(host: Host) -> None:
    report = host.step([(1, job("import time; time.sleep(60)")), (2, job(""))], 20.0, 0.01)
    while not report.running:
        report = host.step([], 20.0, 0.01)
    host.cancel()
    report = host.step([(3, job("result['ok'] = 1"))], 20.0, 0.01)
    while not report.outcomes:
        report = host.step([], 20.0, 0.01)
    assert [(ticket, one.result) for ticket, one in report.outcomes] == [(3, {"ok": 1})]


def test_nothing_to_do_is_answered_at_once(host: Host) -> None:
    assert host.step([], 1000.0, 1000.0) == Report([], {}, {})


def test_the_interpreter_of_a_node() -> None:
    assert interpreter(sys.executable, BUILD) == (sys.executable, "")
    assert interpreter(sys.executable, None) == (sys.executable, "")
    assert interpreter("/no/such/python", BUILD) == (sys.executable, "")
    found, reason = interpreter("/no/such/python", "1.0+cu99")
    assert found == ""
    assert "/no/such/python: no such Python interpreter" in reason
    assert f"{sys.executable} has torch {BUILD}, not 1.0+cu99" in reason
    found, reason = interpreter("/no/such/python", None)
    assert found == "" and "which is wanted is not known" in reason


def test_a_host_without_its_interpreter_says_why(fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.setenv(name, os.environ[name])
    host = Host(Setup({"here": sys.executable}, 1, expected={"here": "0"}, variables=dict(os.environ), check=True))
    assert f"has torch {BUILD}, not 0" in host.prepare()
    host.close()


def test_which_variables_go_along() -> None:
    ours = {"TORCH_LOGS": "graph", "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TRITON_INTERPRET": "1"}
    elsewhere = {
        "TORCHINDUCTOR_CACHE_DIR": "/x",
        "TORCH_HOME": "/x",
        "TRITON_PTXAS_PATH": "/x",
        "HOME": "/x",
        "CC": "x",
    }
    assert passed_on({**ours, **elsewhere}) == ours
