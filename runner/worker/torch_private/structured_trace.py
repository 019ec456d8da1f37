"""torch's structured trace as a stream of events: what ``TORCH_TRACE`` writes to a file for tlparse.

Names are the same from torch 2.6 to 2.13, whatever the backend. ``get_compilation_metrics`` keeps the last 64
compilations; the trace forgets none.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.worker.torch_private.doors import Door

_LOG = Door("torch._logging._internal:trace_log", "torch has no trace to read")
_FILE = Door("torch._logging._internal:LazyTraceHandler", "torch has no trace to read")
_FORMAT = Door("torch._logging._internal:TorchLogsFormatter", "torch has no trace to read")


@dataclass(frozen=True)
class Event:
    """One record. ``name`` is its kind (``dynamo_output_graph``), or an artifact's own name (``recompile_reasons``)."""

    call: int  # which of the case's calls was running; -1 before the first
    name: str
    compile_id: str  # "0/1": frame 0, compiled for the second time; empty outside of any compilation
    facts: Mapping[str, Any]
    payload: str

    def loaded(self) -> Any:
        """Return the payload as JSON; the text itself if it is not JSON."""
        try:
            return json.loads(self.payload)
        except ValueError:
            return self.payload


class Trace(logging.Handler):
    """Hands every record whose name ``accept`` accepts to ``handle``."""

    def __init__(self, accept: Callable[[str], bool], handle: Callable[[Event], None]) -> None:
        super().__init__(logging.DEBUG)
        self.call = -1
        self._accept, self._handle = accept, handle

    def emit(self, record: logging.LogRecord) -> None:
        """Read one record; called by torch."""
        facts = getattr(record, "metadata", None)
        if not isinstance(facts, dict) or not facts:
            return
        name = next(iter(facts))  # the kind of a record is its first key, the rest is its context
        about = facts[name] if isinstance(facts[name], dict) else {}
        if name == "artifact":
            name = str(about.get("name", ""))
        if self._accept(name):
            self._handle(Event(self.call, name, _compile_id(facts), about, getattr(record, "payload", None) or ""))


def _compile_id(facts: Mapping[str, Any]) -> str:
    frame, attempt = facts.get("frame_id"), facts.get("frame_compile_id")
    return "" if frame is None or attempt is None else f"{frame}/{attempt}"


def trace_file(folder: Path) -> logging.Handler:
    """Return torch's handler for its trace, which writes the file for tlparse. Raises ImportError if torch has none."""
    handler: logging.Handler = _FILE.need()(str(folder))
    handler.setFormatter(_FORMAT.need()(trace=True))
    return handler


@contextlib.contextmanager
def tracing(*handlers: logging.Handler) -> Iterator[None]:
    """Send torch's trace to ``handlers`` for as long as the block lasts. Raises ImportError if torch has none."""
    trace_log = _LOG.need()
    level = trace_log.level
    trace_log.setLevel(logging.DEBUG)
    for handler in handlers:
        trace_log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            trace_log.removeHandler(handler)
            handler.close()
        trace_log.setLevel(level)
