"""What a testcase of JUnit says of a variant: the kind of its outcome, its words, and its facts."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import datetime, timezone

from runner.contract.oracles import row_of
from runner.record.events import VariantFinished, VariantPlanned
from runner.report.failure import Source, headline, render_failure
from runner.text import clean, in_line, one_line, seconds

KINDS = {
    "FAIL": "failure", "XPASS": "failure", "VACUOUS": "failure", "FLAKY": "failure",
    "ERROR": "error", "INVALID": "error",
    "XFAIL": "skipped", "SKIP": "skipped", "NOT-RUN": "skipped",
}  # fmt: skip
"""Which child of its testcase a verdict becomes: ``failure`` is a wrong answer, ``error`` none. PASS has no child."""

_TYPES = {"XPASS": "xpass", "VACUOUS": "vacuous", "FLAKY": "flaky", "INVALID": "invalid", "XFAIL": "xfail",
          "SKIP": "requires", "NOT-RUN": "not-run"}  # fmt: skip
# Never yaml, symbol, array, file, integer, float, decimal, boolean, date, datetime or binary: GitLab casts by them.

_FACTS = (
    "backend", "torch", "device", "dtype", "stage", "oracles", "verdict", "labels", "graphs", "cached", "attempts",
    "host", "severity", "signature", "signature_id",
)  # fmt: skip

_MARKS = re.compile(r"\[\[(?=(?:ATTACHMENT|PROPERTY)\|)")
"""What readers obey in an output: Jenkins would keep a file of its machine, GitLab link to one, others take a
property."""


def kind_of(verdict: str) -> str:
    """Return the child of a verdict's testcase: of one that is not known ``error``, and of PASS ``""``."""
    return KINDS.get(verdict, "" if verdict == "PASS" else "error")


def title_of(event: VariantPlanned | VariantFinished, several: bool) -> str:
    """Return the name of a testcase within its file; with its torch where the run has ``several``."""
    return in_line((event.id.partition("::")[2] or event.id) + (f" (torch {event.torch})" if several else ""))


def utc_of(text: str) -> datetime | None:
    """Return the time that an event names, in UTC; None for what is no time."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):  # the second: before the year 1 in UTC
        return None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a testcase says."""

    kind: str = "skipped"
    type: str = "not-run"
    message: str = "not run"
    body: str = "not run"
    output: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


def show(event: VariantFinished, source: Source) -> Shown:
    """Return what the testcase of a result says. ``source`` reads the line that a failure points to."""
    kind = kind_of(event.verdict)
    message = headline(event) if kind else ""
    body = render_failure(event, source) if kind in ("failure", "error") else message
    return Shown(
        kind=kind,
        type=_type(event),
        message=message,
        body=body,
        output=_MARKS.sub("[ [", clean(event.output)),
        properties=facts_of(event),
        seconds=round(seconds(event.seconds), 3),
    )


def _type(event: VariantFinished) -> str:
    """A word of a closed set, by which people filter."""
    if event.verdict in _TYPES:
        return _TYPES[event.verdict]
    oracles = event.oracles or tuple(finding.oracle for finding in event.findings)
    for word in ("timeout", "memory"):
        if word in oracles:
            return word
    if event.signal or "signal" in oracles:
        return "crash"
    groups = {row_of(word).group for word in oracles}
    if "behaviour" in groups:
        return "exception"
    if event.verdict == "FAIL":
        return "graphs" if groups == {"capture"} else "mismatch"
    return "exception" if any(finding.error for finding in event.findings) else "no-result"


def facts_of(event: VariantPlanned | VariantFinished) -> tuple[tuple[str, str], ...]:
    """Return the properties of a testcase: name and one line of text."""
    values = {name: getattr(event, name, "NOT-RUN" if name == "verdict" else None) for name in _FACTS}
    words = {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in values.items()}
    facts = [
        (name, value)
        for name, value in words.items()
        if value not in (None, "") and (name, value) not in (("attempts", 0), ("attempts", 1))
    ]
    return tuple((name, _fact(str(value))) for name, value in facts)


@functools.lru_cache(maxsize=4096)
def _fact(value: str) -> str:
    return one_line(value).replace("]]", "] ]").replace("[[", "[ [")  # "]]" would end the line's own bracket
