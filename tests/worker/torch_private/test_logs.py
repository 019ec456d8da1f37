"""torch's structured trace, read record by record."""

from __future__ import annotations

import json
import logging

from runner.worker.torch_private.logs import Event, Trace, tracing


def record(metadata: object, payload: str | None = None) -> logging.LogRecord:
    result = logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "", (), None)
    result.metadata, result.payload = metadata, payload
    return result


def heard(*records: logging.LogRecord, fragment: str = "") -> list[Event]:
    events: list[Event] = []
    trace = Trace(lambda name: fragment in name, events.append)
    trace.call = 3
    for entry in records:
        trace.emit(entry)
    return events


def test_a_record_is_named_by_its_first_key():
    (event,) = heard(record({"dynamo_guards": {}, "frame_id": 2, "frame_compile_id": 1, "attempt": 0}, "[]"))
    assert (event.name, event.compile_id, event.call, event.loaded()) == ("dynamo_guards", "2/1", 3, [])


def test_an_artifact_is_named_by_its_own_name():
    facts = {"artifact": {"name": "recompile_reasons", "encoding": "json"}, "frame_id": 0, "frame_compile_id": 0}
    (event,) = heard(record(facts, json.dumps("0/0: a guard")))
    assert (event.name, event.loaded()) == ("recompile_reasons", "0/0: a guard")
    assert not heard(record(facts), fragment="dynamo_guards")


def test_what_is_no_record_is_left_alone():
    assert heard(record(None), record({}), record("text")) == []
    (interned,) = heard(record({"str": ["a/file.py", 0]}))
    assert (interned.compile_id, interned.facts, interned.payload) == ("", {}, "")


def test_a_payload_that_is_no_json_is_text():
    assert Event(0, "x", "", {}, "no json").loaded() == "no json"


def test_nobody_listens_afterwards():
    from torch._logging._internal import trace_log

    handlers = list(trace_log.handlers)
    with tracing(Trace(lambda name: True, lambda event: None)):
        assert len(trace_log.handlers) == len(handlers) + 1
    assert trace_log.handlers == handlers
