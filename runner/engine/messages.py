"""What goes over the wire between control and worker: one JSON object a line, both ways, through sockets.

Control to worker: a ``Job``. Worker to control: ``{"phase": name}`` whenever a new part begins, ``{"known": ...}``
where a long task knows more than before, then exactly one ``{"outcome": {...}}``. A job with a ``compile_timeout``
also says ``{"compiling": null}`` when torch begins to compile, and ``{"compiling": seconds}``, all so far, when it has
ended. A worker that ends without an outcome is an error, whatever its exit status.

What a worker says is checked: a case runs in the process that says it, and may write anything to its connection.
"""

from __future__ import annotations

import contextlib
import functools
import json
import selectors
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from runner.cases.yaml.schema import load_schema
from runner.contract.job import Job, Record
from runner.record.event_schema import Check, Unfit, compile_schema
from runner.record.events import Notice
from runner.record.journal import parse_line

Ended = Literal["result", "signal", "timeout", "memory", "no-result", "worker-error", "broken", "damage"]
"""How a job ended: ``result`` with the worker's record, ``damage`` when it removed or changed the engine's temporary
folder, ``worker-error`` when the worker raised, or said what control cannot read: most often by what the case has done
to its process, ``broken`` when the harness had no process for it, else how its process died."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    ``detail`` says how the harness or the worker failed, if one did. ``phase`` is the last one begun.
    """

    job: Job
    ended: Ended
    seconds: float
    phase: str = "load"
    result: Mapping[str, Any] = field(default_factory=dict)
    signal: str | None = None
    exit_status: int | None = None
    stack: str = ""  # faulthandler's, for a signal or a timeout
    output: str = ""  # the last of stdout and stderr
    detail: str = ""
    # Ids of the jobs that the same process had run before, oldest first (living workers).
    earlier_jobs: tuple[str, ...] = ()
    host: str = ""  # the node, when it was not this machine
    lost: int = 0  # how many nodes went away while they ran it, before this one
    busy: float = 0.0  # seconds of a slot, from the order until the slot was free again
    cached: str = ""  # the run that this outcome comes from, when nothing was run

    @property
    def record(self) -> Record:
        """Return ``result``, that of a job which compares; an empty one without it."""
        return Record.from_json(self.result)


class Engine(Protocol):
    """What runs jobs."""

    def submit(self, job: Job) -> None:
        """Run it when there is room."""

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Return what ended, after at most ``timeout`` seconds."""

    def running(self) -> list[tuple[Job, float, str]]:
        """Return the jobs that run now, with their seconds and phase."""

    def cancel_all(self) -> list[Job]:
        """End what runs and drop what waits."""


class ClosableEngine(Engine, Protocol):
    """An engine that ends its processes when it is closed."""

    def notices(self) -> list[Notice]:
        """Return what a person should know after the run; what makes it slower and is no error as ``info``."""

    def close(self) -> None:
        """End every process."""


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
        "known": {"type": "object"},
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
    "vectorized", "replays", "delegable", "delegated", "fallbacks", "comparisons", "compared", "accuracy",
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
    if not {"ticket", "zygote", "hello"} & message.keys():
        raise Unfit("'ticket' is missing")
    return message  # type: ignore[no-any-return]


def check_record(record: Mapping[str, Any]) -> None:
    """Check the record of a job that compares (``runner/contract/job.py``).

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
    trust = {
        "verdict": {"type": "string", "enum": ["FLAKY", "VACUOUS", "INVALID", "SKIP"]},
        "reason": {"type": "string"},
        "error": error,
    }
    schema = {
        "required": ["findings", "trust", "comparisons"],
        "properties": {
            **{name: event[name] for name in _OF_EVENTS},
            "trust": {"type": ["object", "null"], "required": ["verdict", "reason"], "properties": trust},
            "eager_error": error,
            "seconds": {"type": "object", "additionalProperties": {"type": "number", **_SECONDS}},
            "benchmarked": {"type": "array", "items": {"type": "string"}},
            "stored_graphs": _COUNT,
            "model_runs": _COUNT,
            "drew_random": {"type": "boolean"},
            "code": {"type": "array", "items": {"type": "string"}},
            "unchecked": {"type": "array", "items": {"type": "string"}},
        },
    }
    return compile_schema(schema, definitions)


MAX_LINE = 64 << 20
"""Bytes of one message at which a connection is given up."""

_SOCKET = "control"


class Channel:
    """One connection; ``owner`` is whoever is at the other end, once that is known."""

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        """Watch ``connection`` by means of ``selector``, until ``close``."""
        connection.setblocking(False)
        self.owner: Any = None
        self._socket = connection
        self._selector = selector
        self._buffer = bytearray()
        selector.register(connection, selectors.EVENT_READ, self)

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._socket.fileno() < 0

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Return every complete message that has arrived, and whether there will be no other.

        The last one is ``{"unreadable": reason}`` if the other end sent anything else.
        """
        if self.closed:
            return [], True
        hung_up = False
        while len(self._buffer) <= MAX_LINE and not hung_up:
            try:
                data = self._socket.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            hung_up = not data
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        messages: list[dict[str, Any]] = []
        try:
            for line in lines:
                messages.append(read_message(bytes(line)))
            if len(self._buffer) > MAX_LINE:
                raise ValueError(f"it has more than {MAX_LINE >> 20} MiB")
        except ValueError as error:
            return [*messages, {"unreadable": f"a message of the worker is refused: {error}"}], True
        return messages, hung_up

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. An end that is gone, or reads nothing for 5 s, is left to be noticed by its silence."""
        line = json.dumps(message, default=_plain).encode() + b"\n"
        with contextlib.suppress(OSError):
            self._socket.settimeout(5)
            self._socket.sendall(line)
            self._socket.setblocking(False)

    def close(self) -> None:
        """Hang up. Can be called twice."""
        if not self.closed:
            self._selector.unregister(self._socket)
            self._socket.close()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


class Connections:
    """A socket in ``folder`` that accepts connections, and all that are open."""

    def __init__(self, folder: Path) -> None:
        """Listen at once.

        Raises:
            OSError: the socket cannot be made.
        """
        self.address = str(folder / _SOCKET)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(self.address)
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def wait(self, timeout: float) -> list[Channel]:
        """Wait up to ``timeout`` seconds; the connections on which something arrived. New ones are taken in."""
        ready = [key.data for key, _ in self._selector.select(timeout)]
        if None in ready:
            self._accept()
        return [channel for channel in ready if channel is not None]

    def strangers(self) -> list[Channel]:
        """Return the connections, also those not accepted before this call, that have not said whose they are."""
        self._accept()
        channels = (key.data for key in self._selector.get_map().values())
        return [channel for channel in channels if channel is not None and channel.owner is None]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                Channel(connection, self._selector)

    def adopt(self, connection: socket.socket) -> Channel:
        """Take in a connection that this process has opened."""
        return Channel(connection, self._selector)

    def close(self) -> None:
        """Close the socket and every connection."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
