"""What a worker says, checked. A case runs in the process that says it, and may write anything to its connection."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from runner.cases.yaml.schema import load_schema
from runner.record.event_schema import Check, Unfit, compile_schema
from runner.record.journal import parse_line

_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_SECONDS = {"minimum": 0, "maximum": 1e12, "x-finite": True}
_MESSAGE = {
    "type": "object",
    "properties": {
        "ticket": {"type": "integer"},
        "token": {"type": "string"},
        "zygote": {"type": "integer"},
        "hello": {"type": "object"},
        "forked": {"type": "integer"},
        "refused": {"type": "string"},
        "exit": {"type": "integer"},
        "status": {"type": "integer"},
        "pid": {"type": "integer"},
        "phase": {"type": "string"},
        "compiling": {"type": ["number", "null"], **_SECONDS},
        "outcome": {"type": "object"},
        "kin": {"type": "boolean"},
        "broken": {"type": "string"},
        "rest": _COUNT,
    },
}
_NEEDS = {"zygote": "token", "hello": "token", "job": "pid", "exit": "status", "outcome": "kin"}
"""A key, and the one that stands beside it. All messages but the first two kinds have a ticket."""
_OF_EVENTS = (
    "findings", "labels", "notes", "graphs", "graph_breaks", "recompiles", "break_reasons", "reached", "kernels",
    "vectorized", "replays", "comparisons", "compared",
)  # fmt: skip
"""Keys of a record that the event of its variant takes over."""


def read_message(line: bytes) -> dict[str, Any]:
    """Return the message of a line.

    Raises:
        ValueError: it is not a message.
    """
    message = parse_line(line)
    _message_check()(message)
    for key, needed in _NEEDS.items():
        if key in message and needed not in message:
            raise Unfit(f"{needed!r} is missing beside {key!r}")
    if "ticket" not in message and "zygote" not in message and "hello" not in message:
        raise Unfit("'ticket' is missing")
    return message  # type: ignore[no-any-return]


def check_record(record: Mapping[str, Any]) -> None:
    """Check the record of a job that compares (``runner/contract/record.py``).

    Raises:
        Unfit: it is not such a record.
    """
    _record_check()(record)
    if not (record["findings"] or record["trust"] or record["comparisons"]):
        raise Unfit("nothing was compared")


@functools.cache
def _message_check() -> Check:
    return compile_schema(_MESSAGE, {})


@functools.cache
def _record_check() -> Check:
    definitions = load_schema("events")["definitions"]
    event = definitions["variant-finished"]["properties"]
    error = definitions["finding"]["properties"]["error"]
    verdicts = {"type": "string", "enum": ["FLAKY", "VACUOUS", "INVALID", "SKIP"]}
    members = {"verdict": verdicts, "reason": {"type": "string"}, "error": error}
    schema = {
        "required": ["findings", "trust", "comparisons"],
        "properties": {
            **{name: event[name] for name in _OF_EVENTS},
            "trust": {"type": ["object", "null"], "required": ["verdict", "reason"], "properties": members},
            "eager_error": error,
            "seconds": {"type": "object", "additionalProperties": {"type": "number", **_SECONDS}},
            "stored_graphs": _COUNT,
            "model_runs": _COUNT,
            "drew_random": {"type": "boolean"},
            "code": {"type": "array", "items": {"type": "string"}},
        },
    }
    return compile_schema(schema, definitions)
