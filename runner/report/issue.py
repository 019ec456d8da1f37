"""A bug report in Markdown: the diagnosis and its input.

It is in the form of upstream's template, or for the tracker of a backend's package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from runner.cases.model import Variant
from runner.cases.walk import all_steps
from runner.contract.oracles import row_of
from runner.diagnose.bug_report import Check, ReportInput, check, redact
from runner.diagnose.diagnosis import Diagnosis
from runner.quote import (
    literal,
    markdown_address,
    markdown_cell,
    markdown_code,
    markdown_fence,
    markdown_text,
)
from runner.report.failure import layout
from runner.templates import template
from runner.text import cap, clean, number, one_line, ordinal
from runner.verdict.policy import ranked
from runner.verdict.stages import LADDER

_LOG = 12 * 1024  # bytes of each log; GitHub takes 64 KiB in all

_PROCESSOR = re.compile(r"^CPU:\n(?P<lines>.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)

_BACKENDS = {**dict(LADDER), "crossref": "aot_eager_decomp_partition_crossref"}
"""Steps of the ladder that a diagnosis shows, and the backend of each."""


def write(report: ReportInput, draft: bool = False) -> tuple[str, list[Check]]:
    """Return the report and the result of each rule. Private names are looked for in a first version of the report.

    A ``draft`` says at its top which rules are not met.
    """
    text = _render(report, check(report))
    checks = check(replace(report, text=text))
    return _render(report, checks, [result for result in checks if draft and not result.met]), checks


def _render(report: ReportInput, checks: Sequence[Check], unmet: Sequence[Check] = ()) -> str:
    diagnosis, variant = report.diagnosis, report.variant
    filters: dict[str, Callable[..., str]] = {
        "line": lambda text: markdown_text(one_line(redact(str(text)), 600)),
        "cell": lambda value: markdown_text(_table_text(value)),
        "code": lambda value: markdown_cell(_table_text(value)),
        "address": markdown_address,
        "fence": markdown_fence,
        "ordinal": ordinal,
    }
    return template("issue.md.j2", **filters).render(
        title=title(report, markdown_text),
        sentences=sentences(report),
        variant=variant,
        diagnosis=diagnosis,
        script=report.script.text.rstrip(),
        yaml=report.yaml.rstrip(),
        steps=report.steps,
        ladder=[(stage, _BACKENDS.get(stage, variant.backend.backend), outcome) for stage,
        outcome in diagnosis.stages.items()],
        package=report.package,
        logs=logs(report),
        versions=report.versions,
        **dict(zip(("environment", "processor"), environment_parts(report.environment), strict=True)),
        checks=checks,
        unmet=unmet,
        fuzzer=bool(checks) and all(result.met for result in checks),
        matches=[match for match in report.matches if match.entry.link][:5],
    )  # fmt: skip


def environment_parts(text: str) -> tuple[str, str]:
    """Return torch's text about a machine without the part that ``lscpu`` printed, and that part."""
    text = redact(clean(text)).rstrip()
    match = _PROCESSOR.search(text)
    return (text[: match.start()] + text[match.end() :], match["lines"]) if match else (text, "")


def title(report: ReportInput, quote: Callable[[str], str] = str) -> str:
    """Return ``[inductor] F.relu: torch.compile gives wrong values``; names and errors as ``quote`` writes them."""
    signature = report.diagnosis.signature
    symptom = _symptom(signature.oracle, quote) if signature else "fails"
    error = f" with {quote(signature.error)}" if signature and signature.error and signature.oracle != "signal" else ""
    head = report.package.name if report.package else signature.stage if signature else ""
    if report.declined_by:
        symptom, error = "does not implement it", ""
    stage = f"[{quote(head)}] " if head else ""
    return f"{stage}{_operators(report.variant, 4, quote)}: torch.compile {symptom}{error}"


def _symptom(oracle: str, quote: Callable[[str], str] = str) -> str:
    return row_of(oracle).symptom or f"fails ({quote(oracle)})"


def sentences(report: ReportInput) -> str:
    """Return what happened, in two sentences."""
    diagnosis, variant, finding = report.diagnosis, report.variant, report.main_finding
    signature = diagnosis.signature
    symptom = _symptom(signature.oracle) if signature else "fails"
    place = f" at {markdown_code(finding.path)}" if finding and finding.path else ""
    message = markdown_text(one_line(redact(finding.message), 400).rstrip(".")) if finding else ""
    call = markdown_code(f"torch.compile(model, backend={literal(variant.backend.backend)})")
    where = f"in {markdown_text(variant.dtype)} on the {markdown_text(variant.device.upper())}{place}"
    first = (
        f"{call} {markdown_text(symptom)} for a model of {_operators(variant, 8, markdown_code)} {where}: {message}."
    )
    if report.declined_by:
        package = markdown_code(report.declined_by)
        return f"{first} {package} raised `NotImplementedError` itself: it says that it does not do this."
    return f"{first} {_blame(diagnosis)}"


def _blame(diagnosis: Diagnosis) -> str:
    """Return the second sentence: the stage, the bisector's answer, and what makes the failure go away."""
    parts = []
    if diagnosis.stage:
        parts.append(f"it first shows at the stage {markdown_code(diagnosis.stage)}")
    culprit = diagnosis.culprit
    if culprit is not None and culprit.calls is not None:
        parts.append(
            f"when the graph is cut, it needs {markdown_code(one_line(redact(str(culprit.operator)), 200))}, "
            f"the {ordinal((culprit.number or 0) + 1)} of {culprit.calls} calls"
        )
    elif culprit is not None:
        part = "subsystem" if culprit.subsystem else "backend"
        blamed = [f"the {part} {markdown_code(culprit.subsystem or culprit.backend)}"]
        blamed += [f"the {ordinal(culprit.number + 1)} application"] if culprit.number is not None else []
        blamed += [markdown_code(one_line(redact(culprit.name), 200))] if culprit.name else []
        blamed += [f"of the step {markdown_text(one_line(culprit.step))}"] if culprit.step else []
        parts.append(f"torch's `CompilerBisector` blames {', '.join(blamed)}")
    helpful_settings = [markdown_code(row.setting) for row in diagnosis.ablations if row.outcome == "gone"]
    if helpful_settings:
        parts.append(f"it goes away with {' or '.join(helpful_settings)}")
    text = ", and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "What is to blame could not be told."


def _operators(variant: Variant, count: int, quote: Callable[[str], str] = str) -> str:
    """Return the operators of a variant, each once, in order."""
    names = list(dict.fromkeys(step.operator for step in all_steps(variant.case.chain))) or [variant.case.name]
    ending = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(map(quote, names[:count])) + ending


def logs(report: ReportInput) -> str:
    """Return findings and exceptions with numbers and traces, and the output of the script."""
    blocks = []
    for finding in ranked(report.diagnosis.findings)[:4]:
        place = f" at {finding.path}" if finding.path else ""
        lines = [f"{finding.oracle}{place}: {finding.message}", *(f"  {line}" for line in layout(finding.numbers))]
        error = finding.error or {}
        if error.get("trace"):
            lines += ["", "Traceback (most recent call last):", str(error["trace"]).rstrip()]
        if error:
            lines += [f"{error.get('type', 'Exception')}: {error.get('message', '')}"]
        blocks.append("\n".join(lines))
    if report.script.output.strip():
        blocks.append(f"$ python repro.py; echo $?\n{report.script.output.rstrip()}\n{report.script.code}")
    return "\n\n".join(cap(redact(clean(block)), _LOG) for block in blocks)


def _table_text(value: object) -> str:
    """Return text for a table."""
    return one_line(redact(value if isinstance(value, str) else number(value)), 300)
