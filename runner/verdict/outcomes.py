"""How a job ended, as findings and doubts: the one place that knows what a dead process means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.builder.source import Source
from runner.contract.finding import Finding, top_frame
from runner.contract.job import Trust
from runner.contract.oracles import CRASH, row_of
from runner.engine.messages import Outcome
from runner.text import one_line

EAGER_PHASES = ("load", "eager")

NO_WORD = ("broken", "worker-error", "damage")
"""Ends of a job that say nothing about the backend, and in which its phase does not count."""

_DISK = ("No space left on device", "Disk quota exceeded", "Read-only file system")
"""What strerror says when a file cannot be written for reasons that are no compiler's."""


def read(outcome: Outcome, source: Source) -> tuple[list[Finding], Trust | None]:
    """Findings of the compiled run, and the doubt if there is one.

    A death while eager ran is the case's own (INVALID), while eager ran again eager's (FLAKY), in the backend the
    compiler's.
    """
    if outcome.ended == "result":
        record = outcome.record
        findings = [finding(plain, source) for plain in record.findings]
        machine = next(filter(None, (_machine_trouble(f.error) for f in findings)), None)
        if machine is not None:
            return [], Trust("BROKEN", f"this machine cannot compile: {machine}")
        return findings, record.trust
    how = describe(outcome)
    if outcome.ended in NO_WORD:
        return [], Trust("BROKEN", how if outcome.ended == "worker-error" else outcome.detail or "the harness failed")
    if outcome.phase in EAGER_PHASES:
        return [], Trust("INVALID", f"eager itself: {how}")
    if outcome.phase == "eager-again":
        return [], Trust("FLAKY", f"the second eager run: {how}")
    name = {"signal": outcome.signal or "signal", "no-result": "NoResult", "timeout": "Timeout", "memory": "Memory"}[
        outcome.ended
    ]
    oracle = {"no-result": "runtime-error"}.get(outcome.ended, outcome.ended)
    error: dict[str, Any] = {"type": name, "message": how, "chain": [name], "trace": outcome.stack}
    if outcome.ended == "signal":  # where a hang was interrupted is chance
        error["origin"] = {"type": name, "message": "", "frame": _frame(outcome.stack)}
    return [Finding(oracle, how, error=error, severity=CRASH)], None


def _frame(stack: str) -> str:
    """Return the innermost frame inside torch of the thread that died, as faulthandler writes stacks."""
    threads = [block for block in stack.split("\n\n") if 'File "' in block]
    dying = next((block for block in threads if block.startswith("Current thread")), "".join(threads[:1]))
    frames = re.findall(r'File ".*?[/\\]torch[/\\]([^"]+)", line \d+ in (\S+)', dying)
    return top_frame((file.replace("\\", "/"), function) for file, function in frames)


def _machine_trouble(error: Mapping[str, Any] | None) -> str | None:
    """The line of an error that says that the disk is to blame, on which a compiler keeps what it makes."""
    lines = str((error or {}).get("message", "")).splitlines()
    return next((line.strip() for line in lines if any(word in line for word in _DISK)), None)


def died_in_float64(outcome: Outcome) -> bool:
    """Whether the process died in the float64 reference, which says nothing about the case: ask again without it."""
    return outcome.ended not in ("result", *NO_WORD) and outcome.phase == "float64"


def describe(outcome: Outcome) -> str:
    """One line: what ended the process."""
    last = one_line(outcome.detail.strip().rpartition("\n")[2], 300)
    match outcome.ended:
        case "signal":
            return f"the process was ended by {outcome.signal}"
        case "worker-error":
            return f"the worker failed while it had this case, which says nothing about the backend: {last}"
    usual = {"timeout": f"no answer after {outcome.job.timeout:g} s", "memory": "the memory limit was passed"}
    without_result = f"the process ended with exit status {outcome.exit_status} and left no result"
    return outcome.detail or usual.get(outcome.ended, without_result)


def finding(plain: Finding, source: Source) -> Finding:
    """Return a worker's finding with its severity, and the place of the source line that it or its error names."""
    place = place_of(plain.error, source) or place_of({"line": plain.line}, source)
    return replace(plain, place=place, severity=plain.severity or row_of(plain.oracle).severity, line=None)


def place_of(error: Mapping[str, Any] | None, source: Source) -> str | None:
    """``file:line:column`` of the YAML (or of a kernel's file) that the source line of an error comes from."""
    span = source.place(error["line"]) if error and error.get("line") else None
    return f"{span.file}:{span.line}:{span.column}" if span else None
