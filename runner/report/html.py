"""The page of a diagnosis: one file, readable without JavaScript and without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.contract.finding import Finding
from runner.diagnose.diagnosis import Culprit, Diagnosis
from runner.quote import operand, shell_word
from runner.report.diagnosis import serving
from runner.report.failure import layout, number, raiser_of
from runner.report.heatmap import bars, heat_map
from runner.templates import template
from runner.text import cap, clean, duration, in_line, one_line, ordinal, visible

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


def page(diagnosis: Diagnosis, record: Mapping[str, Any] | None) -> str:
    """Return the diagnosis as HTML.

    Args:
        record: of ``runner.diagnose.harness.run_heat_map``; None where it was not asked for.
    """
    return render(
        "diagnosis.html.j2",
        title=in_line(diagnosis.id),
        reason=one_line(diagnosis.reason, 1000),
        properties=_properties(diagnosis),
        steps=ladder_steps(diagnosis.stages, diagnosis.stage),
        findings=[finding_parts(finding) for finding in diagnosis.findings],
        commands=[
            (f"runner {name} {shell_word(operand(diagnosis.id))}", why) for name, why in serving(diagnosis, _COMMANDS)
        ],
        **cause_parts(diagnosis),
        **picture_parts(record),
    )


def render(name: str, **values: Any) -> str:
    """Return the page of a template: what its values hold is text, never markup."""
    text = template(name, number=number, line=one_line).render(values)
    return visible(text)  # names that nothing has cleaned before may hold half a character


def cause_parts(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what templates show of the cause: the culprit, why it is not known, and the ablations."""
    return {
        "culprit": _culprit(diagnosis.culprit),
        "bisect_note": diagnosis.bisect_note,
        "ablations": diagnosis.ablations,
    }


def picture_parts(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what templates show of a heat map, of ``runner.diagnose.harness.run_heat_map`` or None."""
    numbers = (record or {}).get("picture")
    return {
        "heat_map": numbers,
        "no_heat_map": one_line((record or {}).get("reason") or ""),
        "grid": heat_map(numbers) if numbers else None,
        "bars": bars(numbers["histogram"]) if numbers and numbers["histogram"] else [],
        "worst": _worst(numbers) if numbers else None,
    }


def _properties(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    properties = (
        ("verdict", diagnosis.verdict),
        ("torch", diagnosis.torch),
        ("signature", str(diagnosis.signature or "")),
        ("labels", ", ".join(diagnosis.labels)),
        *(("note", note) for note in diagnosis.notes),
        ("time", duration(diagnosis.seconds) if diagnosis.seconds else ""),
    )
    return [(name, one_line(value, 1000)) for name, value in properties if value]


def ladder_steps(stages: Mapping[str, str], first_bad: str | None) -> list[tuple[str, str, str]]:
    """Return the ladder from the bottom up: stage, what it showed, and ``ok``, ``bad`` or ``guilty``."""
    steps = []
    for stage, outcome in stages.items():
        kind = "ok" if outcome == "ok" else "guilty" if stage == first_bad else "bad"
        steps.append((stage, one_line(outcome), kind))
    return steps


def _culprit(culprit: Culprit | None) -> list[tuple[str, str]]:
    if culprit is None:
        return []
    properties = (
        ("backend", culprit.backend),
        ("subsystem", culprit.subsystem or ""),
        ("application", "" if culprit.number is None else f"the {ordinal(culprit.number + 1)}"),
        ("operator or pass", culprit.name or ""),
        ("step", ", ".join(filter(None, (culprit.step, culprit.place)))),
    )
    return [(name, one_line(value)) for name, value in properties if value]


def finding_parts(finding: Finding) -> dict[str, Any]:
    """Return what templates show of a finding."""
    error = finding.error or {}
    return {
        "oracle": finding.oracle,
        "path": one_line(finding.path),
        "stage": finding.stage,
        "message": cap(clean(finding.message), 4000),
        "numbers": layout(finding.numbers),
        "error": cap(clean(f"{error['type']}: {error.get('message', '')}"), _TRACE) if error.get("type") else "",
        "raiser": raiser_of(error),
        "causes": [one_line(str(name)) for name in error.get("chain") or ()][1:],
        "trace": cap(clean(str(error.get("trace") or "")), _TRACE),
    }


def _worst(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the worst elements: its columns and rows of text."""
    rows: Sequence[Mapping[str, Any]] = record["worst"]
    columns = [name for name in ("index", "eager", "compiled", "float64", "absolute", "relative") if any(name in r for r in rows)]  # fmt: skip
    return {"columns": columns, "rows": [[number(row.get(name, "")) for name in columns] for row in rows]}
