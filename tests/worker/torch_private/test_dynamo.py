"""``runner.worker.torch_private.dynamo``: control is told when torch compiles."""

from __future__ import annotations

import torch
from worker_jobs import HERE, job, source

from runner.worker.tasks.registry import run_job
from runner.worker.torch_private.dynamo import CompileWatch


def messages(**fields):
    """What a job sends about compiling."""
    request = job(source=source("return x * 2"), paths=[HERE], **fields)
    sent = []
    record = run_job(request.to_json(), sent.append)
    assert record["trust"] is None and not record["findings"], record
    return [message["compiling"] for message in sent if "compiling" in message]


def test_a_job_with_a_limit_says_when_it_compiles():
    begin, seconds = messages(compile_timeout=100.0)
    assert begin is None and seconds > 0


def test_any_other_job_says_nothing():
    assert messages() == [] == messages(compile_timeout=None)


def test_seconds_add_up_and_nested_compilations_count_once(monkeypatch):
    sent = []
    clock = iter([10.0, 13.0, 20.0, 21.0])
    monkeypatch.setattr("runner.worker.torch_private.dynamo.monotonic", lambda: next(clock))
    watch = CompileWatch(lambda message: sent.append(message["compiling"]))
    for step in (watch._start, watch._start, watch._end, watch._end, watch._start, watch._end):
        step("as later versions call it")
    assert sent == [None, 3.0, None, 4.0] and watch.seconds == 4.0


def test_nothing_stays_registered():
    handler = torch._dynamo.callback_handler
    with CompileWatch(lambda message: None):
        assert handler.start_callbacks and handler.end_callbacks
    assert not handler.start_callbacks and not handler.end_callbacks
    with CompileWatch(lambda message: None):
        torch._dynamo.reset()
    assert not handler.start_callbacks
