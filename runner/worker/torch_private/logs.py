"""torch's logs, and its structured trace.

Each log has a file of its own: one for an artifact, two (info, debug) for each part of the compiler.

The trace is a stream of events: what ``TORCH_TRACE`` writes to a file for tlparse. Names are the same from torch 2.6 to
2.13, whatever the backend. ``get_compilation_metrics`` keeps the last 64 compilations; the trace forgets none.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from runner.worker.torch_private.doors import Door

PARTS = {"torch._dynamo": "dynamo", "torch._functorch": "aot", "torch._inductor": "inductor"}
"""Which of torch's packages is which part; whatever else speaks is in ``other``."""

LEVELS = {"dynamo": logging.DEBUG, "aot": logging.DEBUG, "inductor": logging.DEBUG}
_SETTINGS = ("TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_LOGS_FORMAT")  # each would win over set_logs


class LogFiles(logging.Handler):
    """Writes each record to ``FOLDER/NAME.log``, which begins to exist with the first one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.DEBUG)
        self._folder = folder
        self._files: dict[str, IO[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; called by torch. A full disk is no reason for a compilation to fail."""
        text = self.format(record)
        for name in _names(record):
            with contextlib.suppress(OSError):
                file = self._files.get(name)
                if file is None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    file = self._files[name] = open(  # noqa: SIM115  closed in close()
                        self._folder / f"{name}.log", "w", encoding="utf-8", errors="backslashreplace"
                    )
                file.write(text + "\n")
                file.flush()  # the process may die in the next kernel

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()
        super().close()


class _Format(logging.Formatter):
    """``I 16:34:13.497 torch._dynamo.guards:12 [0/0] message``. torch's own begins every line of a graph like that."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        from torch._guards import CompileContext

        trace_id = CompileContext.current_trace_id()
        where = f"{record.name.partition('.__')[0]}:{record.lineno}{f' [{trace_id}]' if trace_id else ''}"
        return f"{record.levelname[0]} {self.formatTime(record)} {where} {super().format(record)}"

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return super().formatTime(record, datefmt).partition(" ")[2]


def _names(record: logging.LogRecord) -> list[str]:
    artifact = getattr(logging.getLogger(record.name), "artifact_name", None)
    if artifact is not None:
        return [str(artifact)]
    part = next((part for package, part in PARTS.items() if record.name.startswith(package)), "other")
    return [f"{part}.debug", *([f"{part}.info"] if record.levelno >= logging.INFO else [])]


@contextlib.contextmanager
def log_files(folder: Path, artifacts: Sequence[str]) -> Iterator[list[str]]:
    """Send torch's logs to files in ``folder`` for as long as the block lasts, all at level DEBUG.

    Args:
        folder: made when something is logged.
        artifacts: names as ``TORCH_LOGS`` takes them.

    Yields:
        The artifacts that this torch does not have.
    """
    from torch._logging import set_logs
    from torch._logging._internal import log_registry

    known = [name for name in artifacts if log_registry.is_artifact(name)]
    settings: Mapping[str, Any] = {**LEVELS, **dict.fromkeys(known, True)}
    saved = {name: os.environ.pop(name) for name in _SETTINGS if name in os.environ}
    handler = LogFiles(folder)
    handler.setFormatter(_Format())
    # By ``modules``, for of the artifacts that are registered only some are arguments too.
    set_logs(modules=dict(settings))
    # Whatever torch logs reaches one of these, and none passes it on.
    loggers = [logging.getLogger(name) for name in log_registry.get_log_qnames()]
    originals = [(logger, list(logger.handlers)) for logger in loggers]
    for logger in loggers:
        logger.handlers[:] = [handler]
    try:
        yield [name for name in artifacts if name not in known]
    finally:
        for logger, handlers in originals:
            logger.handlers[:] = handlers
        handler.close()
        set_logs()
        os.environ.update(saved)


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
            frame, attempt = facts.get("frame_id"), facts.get("frame_compile_id")
            compile_id = "" if frame is None or attempt is None else f"{frame}/{attempt}"
            self._handle(Event(self.call, name, compile_id, about, getattr(record, "payload", None) or ""))


def trace_file(folder: Path) -> logging.Handler:
    """Return torch's handler for its trace, which writes the file for tlparse. Raises ImportError if torch has none."""
    handler: logging.Handler = _FILE.need()(str(folder))
    handler.setFormatter(_FORMAT.need()(trace=True))
    return handler


@contextlib.contextmanager
def tracing(*handlers: logging.Handler) -> Iterator[None]:
    """Send torch's trace to ``handlers`` for as long as the block lasts. Raises ImportError if torch has none."""
    trace_log = _LOG.need()
    with contextlib.ExitStack() as stack:
        stack.callback(trace_log.setLevel, trace_log.level)
        trace_log.setLevel(logging.DEBUG)
        for handler in handlers:
            stack.callback(handler.close)
            stack.callback(trace_log.removeHandler, handler)
            trace_log.addHandler(handler)
        yield
