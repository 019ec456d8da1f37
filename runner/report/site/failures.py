"""The page of one failure: its cause, its numbers, where it is written, what runs, and how to see it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import UndefinedError
from markupsafe import Markup

from runner.diagnose.diagnosis import Diagnosis
from runner.diagnostics import shown_file
from runner.quote import command_words
from runner.record.events import VariantFinished
from runner.report.diagnosis import cause_parts, finding_parts, ladder_steps, picture_parts
from runner.report.failure import headline, properties_of, span
from runner.report.groups import commands_of
from runner.report.site.declared import Declared
from runner.report.site.results import Results
from runner.templates import render_template
from runner.text import cap, clean, duration, in_line, one_line
from runner.verdict.stages import in_order

TEXT = 32 * 1024
"""Bytes of a source, a stack or an output on a page."""

_FINDINGS = 8
_CAUSE = 1 << 20  # characters of a diagnosis with its heat map
_ALIKE = 10  # links to failures of the same signature
_PURPOSES = {
    "diagnose": "the stage, the pass and the operator",
    "reduce": "the smallest case that fails alike",
    "repro": "a script that needs torch alone",
    "issue": "a bug report in upstream's form",
}


Cause = tuple[Diagnosis, Mapping[str, Any] | None]
"""A diagnosis and the record of its heat map."""


def render_page(
    event: VariantFinished, results: Results, declared: Declared, log: str, cause: Cause | None
) -> str:  # fmt: skip
    """Return the page of a failure.

    Args:
        event: the result.
        results: of the run, for the links to others of its signature.
        declared: what the files of cases say.
        log: the name of the file beside the page that holds its whole output; empty if it has no file.
        cause: its diagnosis and the record of its heat map, where the run has them.
    """
    group = results.group(event)
    alike = [
        other for other in (group.members if group else ()) if other.key != event.key and other.key in results.pages
    ]
    place = span(event)
    error = event.findings[0].error if event.findings else None
    line = (error or {}).get("line")
    return render_template(
        "failure.html.j2",
        title=one_line(event.id, 1000),
        verdict=in_line(event.verdict),
        red=group is not None,
        headline=headline(event, 2000),
        signature_id=in_line(event.signature_id),
        properties=_properties(event),
        steps=ladder_steps(in_order(event.stages), event.stage),
        findings=[finding_parts(finding) for finding in event.findings[:_FINDINGS]],
        more_findings=max(0, len(event.findings) - _FINDINGS),
        anchor=results.anchor(event),
        cause=_cause(*cause) if cause else "",
        signal=one_line(event.signal or "", 300),
        stack=cap(clean(event.stack), TEXT).strip("\n"),
        output=cap(clean(event.output), TEXT).strip("\n"),
        log=log,
        place=one_line(f"{shown_file(place.file)}:{place.line}:{place.column}", 600),
        yaml=[(number, clean(text), marked) for number, text, marked in declared.excerpt(event)],
        resolved=cap(clean(declared.resolved(event)), TEXT),
        source=_numbered(declared.source(event), line if isinstance(line, int) else 0),
        repro=event.repro if command_words(event.repro) else "",
        commands=[(command, _PURPOSES[name]) for name, command in commands_of(event).items()],
        alike=[(results.pages[other.key].rpartition("/")[2], one_line(f"{other.id} {other.torch}",
            400)) for other in alike[:_ALIKE]],
        more_alike=max(0, (len(group.members) - 1 if group else 0) - len(alike[:_ALIKE])),
    )  # fmt: skip


def _cause(diagnosis: Diagnosis, picture: Mapping[str, Any] | None) -> Markup:
    """What the run's folder says of the cause. A file there may hold anything: one that makes no sense is left out."""
    for record in (picture, None):
        try:
            text = render_template("cause.html.j2", **cause_parts(diagnosis), **picture_parts(record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, UndefinedError, ValueError):
            continue
        if len(text) <= _CAUSE:
            return Markup(text)  # of a template that escapes
    return Markup()


def _properties(event: VariantFinished) -> list[tuple[str, str]]:
    properties = [(name, value) for name, value in properties_of(event) if name != "ladder"]
    properties += [
        ("operator", event.operator),
        ("backend", event.backend),
        ("torch", event.torch),
        ("dtype, device", f"{event.dtype}, {event.device}"),
        ("params", ", ".join(f"{name}={value}" for name, value in event.params.items())),
        ("suites", ", ".join(event.suites)),
        ("known", event.known or ""),
        ("time", duration(event.seconds)),
        ("result of", event.cached or ""),
        ("attempts", str(event.attempts) if event.attempts > 1 else ""),
        ("host", event.host or ""),
    ]
    return [(name, one_line(value, 600)) for name, value in properties if value]


def _numbered(source: str, marked: int) -> list[tuple[int, str, bool]]:
    text = cap(clean(source), TEXT).rstrip("\n")
    return [(n, line, n == marked) for n, line in enumerate(text.split("\n"), 1)] if text else []
