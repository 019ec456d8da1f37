"""A run as JSON of the Common Test Report Format: https://ctrf.io, ``schema/ctrf.schema.json`` of ctrf-io/ctrf."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner import __version__
from runner.diagnostics import shown_file
from runner.files import write_text
from runner.record.events import (
    RED,
    Event,
    VariantFinished,
    VariantPlanned,
    end_of,
    start_of,
    variants_of,
)
from runner.report.failure import headline, render_failure
from runner.report.handlers import EndFile, Options
from runner.report.junit import kind_of, title_of, utc_of
from runner.report.table import several_environments
from runner.text import TEXT_LIMIT, cap, clean, in_line, one_line, seconds

SPECIFICATION = "1.0.0"
TEXTS = 16 << 20
"""Bytes of the texts of all failures together."""

_STATUS = {"failure": "failed", "error": "failed", "skipped": "skipped", "": "passed"}
_FACTS = (
    "backend",
    "torch",
    "device",
    "dtype",
    "stage",
    "severity",
    "signature",
    "signature_id",
    "known",
    "signal",
    "cached",
    "host",
)


def reporter(path: Path, options: Options) -> EndFile:
    """Return the reporter ``ctrf``."""
    return EndFile("--ctrf", path, lambda events: write_text(path, render(events)), options.tell)


def render(events: Sequence[Event]) -> str:
    """Return the report of a run. A variant without a verdict is ``pending``; XFAIL and SKIP are ``skipped``."""
    variants = variants_of(events)
    started = start_of(events)
    ended = end_of(events)
    several = several_environments([*((started,) if started else ()), *variants])
    red = sum(getattr(event, "verdict", "") in RED for event in variants)
    limit = max(512, min(TEXT_LIMIT, TEXTS // (2 * red or 1)))
    tests = [_test(event, several, limit) for event in variants]
    counts = Counter(test["status"] for test in tests)
    moment = utc_of(started.started) if started else None
    start = max(0, round(1000 * moment.timestamp())) if moment else 0
    summary = {
        "tests": len(tests),
        **{status: counts[status] for status in ("passed", "failed", "skipped", "pending", "other")},
        "flaky": sum(bool(test.get("flaky")) for test in tests),
        "suites": len({test["suite"][0] for test in tests}),
        "start": start,
        "stop": start + round(1000 * seconds(ended.seconds)) if ended else start,
    }
    report: dict[str, Any] = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "generatedBy": f"runner {__version__}",
        "results": {"tool": {"name": "runner", "version": __version__}, "summary": summary, "tests": tests},
    }
    if started:
        report["results"]["environment"] = {
            "extra": {
                "run": in_line(started.run),
                "torch": [in_line(str(e.get("torch"))) for e in started.environments],
            }
        }
    return json.dumps(report, ensure_ascii=False, indent=1) + "\n"


def _test(event: VariantPlanned | VariantFinished, several: bool, limit: int) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": title_of(event, several),
        "status": "pending",
        "duration": 0,
        "suite": [in_line(event.suite), shown_file(event.file)],
        "filePath": shown_file(event.file),
        "line": event.line,
        "rawStatus": "NOT-RUN",
    }
    if isinstance(event, VariantFinished):
        kind = kind_of(event.verdict)
        bad = kind in ("failure", "error")
        details = {
            "message": headline(event) if kind else "",
            "trace": cap(render_failure(event), limit) if bad else "",
            "stdout": cap(clean(event.output), limit).split("\n") if bad and event.output else [],
            "flaky": event.verdict == "FLAKY",
            "retries": max(0, event.attempts - 1),
            "tags": [in_line(label) for label in event.labels],
        }
        test |= {
            "status": "pending" if event.verdict == "NOT-RUN" else _STATUS[kind],
            "duration": round(1000 * seconds(event.seconds)),
            "rawStatus": in_line(event.verdict),
            **{name: value for name, value in details.items() if value},
        }
    facts = {name: one_line(str(value)) for name in _FACTS if (value := getattr(event, name, None))}
    return {**test, "extra": {**facts, "oracles": [in_line(word) for word in getattr(event, "oracles", ())]}}
