"""The page of a diagnosis: one file, readable without JavaScript and without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.diagnose.diagnosis import Culprit, Diagnosis
from runner.quote import operand, shell_word
from runner.record.events import Finding
from runner.report.diagnosis import ordinal, serving
from runner.report.failure import layout, number
from runner.report.heatmap import bars, heat_map
from runner.templates import template
from runner.text import cap, clean, duration, in_line, one_line, visible

_TRACE = 16 * 1024  # bytes of a trace that a page shows

_COMMANDS = (
    ("reduce", "the smallest case that fails alike"),
    ("repro", "the case as a script that needs torch alone"),
    ("explain", "graphs, graph breaks, guards and recompiles"),
    ("debug", "kernels, graphs, IR and logs in one folder"),
    ("minify", "torch's own minifier"),
    ("issue", "a bug report in upstream's form"),
)
"""What to do next, and what comes of it."""


def page(diagnosis: Diagnosis, picture: Mapping[str, Any] | None) -> str:
    """The diagnosis as HTML.

    Args:
        picture: what ``runner.report.heatmap.take`` gave; None where it was not asked for.
    """
    drawn = (picture or {}).get("picture")
    text = template("diagnosis.html.j2", number=number, line=one_line).render(
        diagnosis=diagnosis,
        title=in_line(diagnosis.id),
        reason=one_line(diagnosis.reason, 1000),
        facts=_facts(diagnosis),
        steps=_steps(diagnosis),
        culprit=_culprit(diagnosis.culprit),
        findings=[_finding(finding) for finding in diagnosis.findings],
        ablations=diagnosis.ablations,
        picture=drawn,
        no_picture=one_line((picture or {}).get("reason") or ""),
        map=heat_map(drawn) if drawn else None,
        bars=bars(drawn["histogram"]) if drawn and drawn["histogram"] else [],
        worst=_worst(drawn) if drawn else None,
        commands=[
            (f"runner {name} {shell_word(operand(diagnosis.id))}", why) for name, why in serving(diagnosis, _COMMANDS)
        ],
    )
    return visible(text)  # names that nothing above has cleaned may hold half a character


def _facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = (
        ("verdict", diagnosis.verdict),
        ("torch", diagnosis.torch),
        ("signature", str(diagnosis.signature or "")),
        ("labels", ", ".join(diagnosis.labels)),
        *(("note", note) for note in diagnosis.notes),
        ("time", duration(diagnosis.seconds) if diagnosis.seconds else ""),
    )
    return [(name, one_line(value, 1000)) for name, value in facts if value]


def _steps(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """The ladder from the bottom up: stage, what it showed, and ``ok``, ``bad`` or ``guilty``."""
    steps = []
    for stage, told in diagnosis.stages.items():
        said = told if isinstance(told, str) else ", ".join(told)
        kind = "ok" if said == "ok" else "guilty" if stage == diagnosis.stage else "bad"
        steps.append((stage, one_line(said), kind))
    return steps


def _culprit(culprit: Culprit | None) -> list[tuple[str, str]]:
    if culprit is None:
        return []
    facts = (
        ("backend", culprit.backend),
        ("subsystem", culprit.subsystem or ""),
        ("application", "" if culprit.number is None else f"the {ordinal(culprit.number + 1)}"),
        ("operator or pass", culprit.name or ""),
    )
    return [(name, one_line(value)) for name, value in facts if value]


def _finding(finding: Finding) -> dict[str, Any]:
    error = finding.error or {}
    return {
        "oracle": finding.oracle,
        "path": one_line(finding.path),
        "stage": finding.stage,
        "message": cap(clean(finding.message), 4000),
        "numbers": layout(finding.numbers),
        "error": cap(clean(f"{error['type']}: {error.get('message', '')}"), _TRACE) if error.get("type") else "",
        "causes": [one_line(str(name)) for name in error.get("chain") or ()][1:],
        "trace": cap(clean(str(error.get("trace") or "")), _TRACE),
    }


def _worst(picture: Mapping[str, Any]) -> dict[str, Any]:
    """The table of the worst elements: its columns and rows of text."""
    rows: Sequence[Mapping[str, Any]] = picture["worst"]
    columns = [name for name in ("index", "eager", "compiled", "float64", "absolute", "relative") if any(name in r for r in rows)]  # fmt: skip
    return {"columns": columns, "rows": [[number(row.get(name, "")) for name in columns] for row in rows]}
