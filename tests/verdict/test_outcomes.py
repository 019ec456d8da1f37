"""How a job ended, and what that says about whom."""

from __future__ import annotations

from typing import Any

import pytest

from runner.builder.source import Source
from runner.contract.finding import Finding
from runner.contract.job import Job, Trust
from runner.diagnostics import Span
from runner.engine.messages import Outcome
from runner.verdict.outcomes import describe, died_in_float64, finding, place_of, read

SOURCE = Source("a\nb\nc\n", (None, Span("/x/a.spec.yaml", 5, 9), None))
JOB = Job("k", "id", "here", "a", "", {"backend": "inductor"}, timeout=60.0)


def ended(how: str, phase: str = "backend", **fields: Any) -> Outcome:
    return Outcome(JOB, how, 1.0, phase, **fields)


def test_a_result_is_taken_as_it_is() -> None:
    record = {
        "findings": [{"oracle": "value", "message": "m", "path": "p", "numbers": {"n": 1}}],
        "trust": {"verdict": "FLAKY", "reason": "so"},
    }
    findings, trust = read(ended("result", result=record), SOURCE)
    assert (findings[0].oracle, findings[0].message, findings[0].path, findings[0].numbers) == (
        "value",
        "m",
        "p",
        {"n": 1},
    )
    assert (findings[0].stage, findings[0].error, findings[0].place) == (None, None, None)
    assert trust == Trust("FLAKY", "so")
    assert read(ended("result"), SOURCE) == ([], None)


@pytest.mark.parametrize(
    ("outcome", "oracle", "name", "message"),
    [
        (ended("signal", signal="SIGSEGV"), "signal", "SIGSEGV", "the process was ended by SIGSEGV"),
        (ended("timeout"), "timeout", "Timeout", "no answer after 60 s"),
        (ended("timeout", detail="compiling took"), "timeout", "Timeout", "compiling took"),
        (ended("memory", detail="too much"), "memory", "Memory", "too much"),
        (ended("memory"), "memory", "Memory", "the memory limit was passed"),
        (
            ended("no-result", exit_status=0), "runtime-error", "NoResult",
            "the process ended with exit status 0 and left no result",
        ),
        (ended("signal", "judge", signal="SIGABRT"), "signal", "SIGABRT", "the process was ended by SIGABRT"),
    ],
)  # fmt: skip
def test_a_death_in_the_backend_is_a_finding(outcome: Outcome, oracle: str, name: str, message: str) -> None:
    (finding,), trust = read(outcome, SOURCE)
    assert trust is None
    assert (finding.oracle, finding.message) == (oracle, message)
    assert finding.error is not None and finding.error["chain"] == [name]
    assert finding.severity == "crash"


STACK = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/v/site-packages/torch/_inductor/async_compile.py", line 9 in wait

Current thread 0x00007f36 (most recent call first):
  File "/v/site-packages/torch/_ops.py", line 12 in __call__
  File "/v/site-packages/torch/_inductor/ir.py", line 763 in realize
  File "/v/site-packages/torch/_inductor/graph.py", line 8 in run
"""


def test_a_signal_tells_the_frame_in_which_the_process_died() -> None:
    (finding,), _ = read(ended("signal", signal="SIGSEGV", stack=STACK), SOURCE)
    assert finding.error is not None
    assert finding.error["origin"] == {"type": "SIGSEGV", "message": "", "frame": "_inductor/ir.py:realize"}
    (finding,), _ = read(ended("signal", signal="SIGSEGV"), SOURCE)
    assert finding.error is not None and finding.error["origin"]["frame"] == ""
    (finding,), _ = read(ended("timeout", stack=STACK), SOURCE)
    assert finding.error is not None and "origin" not in finding.error


@pytest.mark.parametrize(
    ("data", "severity"),
    [({}, "wrong-result"), ({"severity": ""}, "wrong-result"), ({"severity": "metadata"}, "metadata")],
)
def test_the_judge_s_severity_comes_before_the_oracle_s(data: dict[str, str], severity: str) -> None:
    assert finding(Finding.from_json({"oracle": "mutation", "message": "", **data}), SOURCE).severity == severity


@pytest.mark.parametrize("how", ["signal", "timeout", "memory", "no-result"])
def test_a_death_in_eager_is_the_cases_own(how: str) -> None:
    for phase, verdict in (("load", "INVALID"), ("eager", "INVALID"), ("eager-again", "FLAKY")):
        findings, trust = read(ended(how, phase, signal="SIGSEGV"), SOURCE)
        assert findings == [] and trust is not None and trust.verdict == verdict
        assert describe(ended(how, phase, signal="SIGSEGV")) in trust.reason


@pytest.mark.parametrize("phase", ["load", "eager", "backend"])
def test_a_broken_harness_is_nobodys_finding(phase: str) -> None:
    assert read(ended("broken", phase, detail="oops"), SOURCE) == ([], Trust("BROKEN", "oops"))
    assert read(ended("broken", phase), SOURCE)[1] == Trust("BROKEN", "the harness failed")


@pytest.mark.parametrize("phase", ["load", "eager", "backend", "float64"])
def test_a_worker_that_fails_says_nothing_about_the_backend(phase: str) -> None:
    outcome = ended("worker-error", phase, detail="Traceback:\n  ...\nValueError: \x1b" + "9" * 5000 + "\n")
    findings, trust = read(outcome, SOURCE)
    assert findings == [] and trust is not None and trust.verdict == "BROKEN"
    start = "the worker failed while it had this case, which says nothing about the backend: ValueError: "
    assert trust.reason.startswith(start) and len(trust.reason) < 500 and "\x1b" not in trust.reason
    assert not died_in_float64(outcome)


def test_a_death_of_the_float64_reference() -> None:
    assert died_in_float64(ended("timeout", "float64")) and died_in_float64(ended("signal", "float64"))
    assert not died_in_float64(ended("result", "float64"))
    assert not died_in_float64(ended("broken", "float64"))
    assert not died_in_float64(ended("signal", "backend"))


def test_the_place_of_an_error_in_the_yaml() -> None:
    assert place_of({"line": 2}, SOURCE) == "/x/a.spec.yaml:5:9"
    assert place_of({"line": 3}, SOURCE) == "/x/a.spec.yaml:5:9"  # the nearest above that has one
    assert place_of({"line": 1}, SOURCE) is None
    assert place_of({"line": None}, SOURCE) is None and place_of({}, SOURCE) is None and place_of(None, SOURCE) is None
    assert finding(Finding("runtime-error", "", error={"line": 2}), SOURCE).place == "/x/a.spec.yaml:5:9"
