"""A process that writes to its connection what it likes costs its own job, and neither the run nor another job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_jobs import Make, finish, job

from runner.engine.messages import check_record, read_message

PASSED: dict[str, Any] = {"findings": [], "trust": None, "comparisons": 3, "seconds": {"backend": 0.5}}
RECORDS: dict[str, dict[str, Any]] = {
    "findings": {"findings": 5},
    "oracle": {"findings": [{"oracle": "nope", "message": ""}]},
    "error": {"findings": [{"oracle": "value", "message": "", "error": 3}]},
    "trust": {"trust": 7},
    "verdict": {"trust": {"verdict": "EVIL", "reason": ""}},
    "reason": {"trust": {"verdict": "SKIP", "reason": 5}},
    "seconds": {"seconds": {"backend": "x"}},
    "compared": {"compared": [1]},
    "notes": {"notes": 5},
    "graphs": {"graphs": {"a": []}},
    "negative": {"graphs": -1},
    "nothing was compared": {"comparisons": 0},
}
MESSAGES = (
    b"[" * 100_000,
    b'{"ticket": 1, "outcome": {}, "kin": false',
    b"[1]",
    b"\xff",
    b'{"phase": "load"}',
    b'{"ticket": "1", "phase": "load"}',
    b'{"ticket": 1, "phase": {"a": 1}}',
    b'{"ticket": 1, "compiling": "abc"}',
    b'{"ticket": 1, "compiling": NaN}',
    b'{"ticket": 1, "rest": "x"}',
    b'{"ticket": 1, "broken": {"a": 1}}',
    b'{"ticket": 1, "outcome": [], "kin": false}',
    b'{"ticket": 1, "outcome": {}, "kin": 1}',
    b'{"ticket": 1, "outcome": {}}',
    b'{"ticket": 1, "exit": 5}',
    b'{"hello": {}}',
)


@pytest.mark.parametrize("line", MESSAGES, ids=range(len(MESSAGES)))
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_message(line)


def test_messages_are_taken() -> None:
    for message in ({"phase": "load"}, {"compiling": None}, {"outcome": {}, "kin": False}, {"exit": 5, "status": 0}):
        assert read_message(json.dumps({**message, "ticket": 1}).encode()) == {**message, "ticket": 1}


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_no_record_is_refused(name: str) -> None:
    check_record(PASSED)
    with pytest.raises(ValueError, match=r"."):
        check_record(PASSED | RECORDS[name])


def test_a_record_without_its_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="'findings' is missing"):
        check_record({})


LINE = """
    import os, time
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, {line!r} + b"\\n")
        except OSError:
            pass
    time.sleep(10)
"""


@pytest.mark.parametrize("isolation", ["fork", "living"])
def test_a_line_costs_its_own_job(make: Make, isolation: str) -> None:
    engine = make(slots=1)
    lines = {"deep": MESSAGES[0], "type": b'{"ticket": 1, "compiling": "abc"}'}
    jobs = [job(LINE.format(line=line), key, isolation=isolation) for key, line in lines.items()]
    outcomes = finish(engine, *jobs, job("result['ok'] = 1", "next", isolation=isolation))
    assert outcomes["next"].result == {"ok": 1}
    for key in lines:
        assert outcomes[key].ended == "worker-error" and "is refused" in outcomes[key].detail, outcomes[key]
        assert outcomes[key].seconds < 5
    assert (
        "nested deeper than 100" in outcomes["deep"].detail
        and "compiling: expected a number" in outcomes["type"].detail
    )


def test_a_job_speaks_for_no_other_process(make: Make) -> None:
    """The server's token, which the process of a job has, begins no second server and no other job."""
    source = """
        import contextlib, gc, json, socket, time
        time.sleep(0.5)  # the other job has begun
        process, = [one for one in gc.get_objects() if type(one).__name__ == "_Process"]
        for message in ({"hello": {"error": "forged"}}, {"ticket": 2, "job": "victim", "pid": 1}):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(process._address)
            connection.sendall(json.dumps({**message, "token": process._token}).encode() + b"\\n")
            with contextlib.suppress(ConnectionResetError):
                connection.recv(1)
    """
    victim = job("import time; time.sleep(1); result['ok'] = 1", "victim")
    outcomes = finish(make(slots=2), job(source, "forger"), victim, job("", "later"))
    assert {key: outcome.ended for key, outcome in outcomes.items()} == dict.fromkeys(outcomes, "result"), outcomes


def test_an_empty_record_is_no_pass(make: Make) -> None:
    outcome = finish(make(), job("", task="judge"))["k"]
    assert (outcome.ended, outcome.result) == ("worker-error", {}) and "'findings' is missing" in outcome.detail
