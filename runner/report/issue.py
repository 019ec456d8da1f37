"""A bug report about torch.compile, in the form of upstream's template: what the facts say, in Markdown."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.cases.model import Variant
from runner.cases.walk import all_steps
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.repro import script
from runner.diagnose.rules import Check, Facts, check
from runner.diagnose.similar import Match
from runner.quote import (
    literal,
    markdown_address,
    markdown_cell,
    markdown_code,
    markdown_fence,
    markdown_text,
    torch_flag,
)
from runner.report.failure import layout, number
from runner.session.plan import precision_flags
from runner.templates import template
from runner.text import cap, clean, one_line
from runner.verdict.policy import ranked
from runner.verdict.stages import LADDER
from runner.worker.oracles import row_of

_LOG = 12 * 1024  # bytes of each log; GitHub takes 64 KiB in all

_BACKENDS = {**dict(LADDER), "crossref": "aot_eager_decomp_partition_crossref"}
"""Steps of the ladder that a diagnosis shows, and the backend of each."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a report is made of, besides its checks."""

    facts: Facts
    yaml: str
    environment: str  # as torch.utils.collect_env prints it
    matches: tuple[Match, ...] = ()
    steps: str = ""  # what reducing came to


def write(material: Material) -> tuple[str, list[Check]]:
    """The report and the rules, one by one. What the report may not hold is looked for in the report itself."""
    code = script_of(material.facts.variant).rstrip()
    draft = _render(material, check(material.facts), code)
    checks = check(replace(material.facts, text=draft))
    return _render(material, checks, code), checks


def _render(material: Material, checks: Sequence[Check], code: str) -> str:
    facts = material.facts
    diagnosis, variant = facts.diagnosis, facts.variant
    filters = {
        "line": lambda text: markdown_text(one_line(redact(str(text)), 600)),
        "cell": lambda value: markdown_text(_short(value)),
        "code": lambda value: markdown_cell(_short(value)),
        "address": markdown_address,
        "fence": markdown_fence,
    }
    return template("issue.md.j2", **filters).render(
        title=title(facts, markdown_text),
        sentences=sentences(facts),
        variant=variant,
        diagnosis=diagnosis,
        source=_shown(facts),
        script=code,
        yaml=material.yaml.rstrip(),
        steps=material.steps,
        ladder=[(stage, _BACKENDS.get(stage, variant.backend.backend), _said(told)) for stage, told in diagnosis.stages.items()],
        logs=logs(facts),
        tried=facts.tried,
        environment=redact(clean(material.environment)).rstrip(),
        checks=checks,
        fuzzer=bool(checks) and all(one.met for one in checks),
        matches=[match for match in material.matches if match.entry.link][:5],
    )  # fmt: skip


def _shown(facts: Facts) -> str:
    """Model and inputs as one reads them: without the docstring at their head, and with the call that goes wrong."""
    text = re.sub(r'\A""".*?"""\n+', "", facts.source, flags=re.DOTALL).rstrip()
    one = facts.variant
    given = {
        "backend": one.backend.backend,
        "dynamic": one.dynamic if one.dynamic is not None else one.backend.dynamic,
        "fullgraph": one.case.compile.fullgraph or one.backend.fullgraph or None,
        "mode": one.case.compile.mode or one.backend.mode,
    }
    words = ", ".join(f"{name}={literal(value)}" for name, value in given.items() if value is not None)
    flags = {**precision_flags(one.device), **one.config}
    lines = [f"import {torch_flag(name.partition('config.')[0] + 'config')}" for name in flags if "config." in name]
    lines = [*dict.fromkeys(lines), *(f"{torch_flag(name)} = {literal(value)}" for name, value in flags.items())]
    lines += ["model = make_model()", "print(model(*make_inputs()))"]
    return "\n".join([text, "", "", *lines, f"print(torch.compile(model, {words})(*make_inputs()))"])


def script_of(variant: Variant) -> str:
    """What ``runner repro`` prints, without the name of the file that it comes from."""
    return re.sub(r'\nWritten from [^\n]*\n(?=""")', "", script(variant), count=1)


def title(facts: Facts, quote: Callable[[str], str] = str) -> str:
    """``[inductor] F.relu: torch.compile gives wrong values``; names and errors as ``quote`` writes them."""
    signature = facts.diagnosis.signature
    what = _symptom(signature.oracle, quote) if signature else "fails"
    error = f" with {quote(signature.error)}" if signature and signature.error and signature.oracle != "signal" else ""
    stage = f"[{quote(signature.stage)}] " if signature and signature.stage else ""
    return f"{stage}{_named(facts.variant, 4, quote)}: torch.compile {what}{error}"


def _symptom(oracle: str, quote: Callable[[str], str] = str) -> str:
    return row_of(oracle).symptom or f"fails ({quote(oracle)})"


def sentences(facts: Facts) -> str:
    """What happened, in two sentences made of the diagnosis' facts."""
    diagnosis, variant, finding = facts.diagnosis, facts.variant, facts.speaking
    signature = diagnosis.signature
    what = _symptom(signature.oracle) if signature else "fails"
    place = f" at {markdown_code(finding.path)}" if finding and finding.path else ""
    told = markdown_text(one_line(redact(finding.message), 400).rstrip(".")) if finding else ""
    call = markdown_code(f"torch.compile(model, backend={literal(variant.backend.backend)})")
    where = f"in {markdown_text(variant.dtype)} on the {markdown_text(variant.device.upper())}{place}"
    first = f"{call} {markdown_text(what)} for a model of {_named(variant, 8, markdown_code)} {where}: {told}."
    return f"{first} {_blame(diagnosis)}"


def _blame(diagnosis: Diagnosis) -> str:
    """The second sentence: the stage, the bisector's answer, and what makes it go away."""
    parts = []
    if diagnosis.stage:
        parts.append(f"it first shows at the stage {markdown_code(diagnosis.stage)}")
    culprit = diagnosis.culprit
    if culprit is not None:
        told = (
            [f"the subsystem {markdown_code(culprit.subsystem)}"]
            if culprit.subsystem
            else [f"the backend {markdown_code(culprit.backend)}"]
        )
        told += [f"application {culprit.number}"] if culprit.number is not None else []
        told += [markdown_code(one_line(redact(culprit.name), 200))] if culprit.name else []
        parts.append(f"torch's `CompilerBisector` blames {', '.join(told)}")
    gone = [markdown_code(row.setting) for row in diagnosis.ablations if row.outcome == "gone"]
    if gone:
        parts.append(f"it goes away with {' or '.join(gone)}")
    text = ", and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "What is to blame could not be told."


def _named(variant: Variant, count: int, quote: Callable[[str], str] = str) -> str:
    """The operators of a variant, each once, in order."""
    names = list(dict.fromkeys(step.operator for step in all_steps(variant.case.chain))) or [variant.case.name]
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(map(quote, names[:count])) + more


def logs(facts: Facts) -> str:
    """What was found and raised, with numbers and traces, and what the script printed."""
    blocks = []
    for finding in ranked(facts.diagnosis.findings)[:4]:
        place = f" at {finding.path}" if finding.path else ""
        lines = [f"{finding.oracle}{place}: {finding.message}", *(f"  {line}" for line in layout(finding.numbers))]
        error = finding.error or {}
        if error.get("trace"):
            lines += ["", "Traceback (most recent call last):", str(error["trace"]).rstrip()]
        if error:
            lines += [f"{error.get('type', 'Exception')}: {error.get('message', '')}"]
        blocks.append("\n".join(lines))
    if facts.script.output.strip():
        blocks.append(f"$ python repro.py; echo $?\n{facts.script.output.rstrip()}\n{facts.script.code}")
    return "\n\n".join(cap(redact(clean(block)), _LOG) for block in blocks)


_PLACES = (
    (re.compile(r"(?:/[\w.+@-]+)+/(?:site|dist)-packages/"), ""),
    (re.compile(r"(?:/[\w.+@-]+)+/lib/python3\.\d+/"), ""),
    (re.compile(r"/tmp/(?:[\w.+@-]+/)*"), ""),
)
"""Folders of this machine that say nothing about the bug."""


def redact(text: str) -> str:
    """``text`` without the folders of this machine: installed packages, temporary files, home, the working folder."""
    for place, instead in _PLACES:
        text = place.sub(instead, text)
    for folder in (os.getcwd(), str(Path.home()), tempfile.gettempdir()):
        if folder not in ("", "/"):
            text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?:/|\b)", "", text)
    return text


def _said(told: object) -> str:
    return told if isinstance(told, str) else ", ".join(map(str, told))  # type: ignore[call-overload]


def _short(value: object) -> str:
    """Text for a table."""
    return one_line(redact(value if isinstance(value, str) else number(value)), 300)
