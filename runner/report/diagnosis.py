"""A diagnosis as plain text: what fails, where it begins, what is to blame, what makes it go away, how to go on."""

from __future__ import annotations

from collections.abc import Sequence

from runner.cases.model import LAUNCH
from runner.contract.finding import Finding
from runner.diagnose.diagnosis import Ablation, Culprit, Diagnosis, Kept
from runner.quote import operand, shell_word
from runner.report.failure import layout
from runner.text import duration, head_lines, indent, one_line, ordinal, plural

_COMMANDS = (
    ("reduce", "the smallest case that fails alike"),
    ("debug", "a folder with everything the compiler did"),
    ("issue", "a bug report in upstream's form"),
)

_MODULE = "torch._inductor.config."  # named once in a setting of several flags
_ERROR = 6  # lines of an exception's message
_WIDTH = 100  # of a detail or a setting


def render(diagnosis: Diagnosis, target: str = "") -> str:
    """Return the text, without a newline at its end.

    Args:
        target: what a further command about the variant must be told, as words of a shell; its id if empty.
    """
    lines = [f"{diagnosis.verdict} {one_line(diagnosis.id)} on torch {diagnosis.torch}"]
    if diagnosis.signature is None:
        return "\n".join([*lines, *_nothing(diagnosis)])
    lines += _failure(diagnosis)
    lines += ["", "to blame", f"  {blame(diagnosis)}"]
    if diagnosis.ablations:
        lines += ["", "under one changed setting", *_table(diagnosis.ablations)]
    target = target or shell_word(operand(diagnosis.id))
    commands = [(f"runner {name} {target}", why) for name, why in serving(diagnosis, _COMMANDS)]
    lines += ["", "go on with", *(f"  {command}  # {why}" for command, why in commands)]
    return "\n".join([*lines, "", f"diagnosed in {duration(diagnosis.seconds)}"])


def taken_over(kept: Kept) -> str:
    """Return one line that says what is taken over from an earlier diagnosis, and from when."""
    return f"runner: taken over from runner diagnose at {kept.when}: {blame(kept.diagnosis)}"


def serving(diagnosis: Diagnosis, commands: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return the ``commands`` (name, purpose) that apply. For a plain launch those about a compiler are left out."""
    launched = diagnosis.id.rpartition("@")[2] == LAUNCH
    return [command for command in commands if not launched or command[0] in ("reduce", "repro")]


def blame(diagnosis: Diagnosis) -> str:
    """Return what is to blame, in one sentence."""
    culprit, note = diagnosis.culprit, one_line(diagnosis.bisect_note)
    if culprit is None:
        stage = f"stage {diagnosis.stage}" if diagnosis.stage else "unknown"
        return f"{stage}; {note}" if note else stage
    text = sentence(culprit)
    return f"{text}; {note}" if note else text


def sentence(culprit: Culprit) -> str:
    """Return a culprit as ``inductor, subsystem lowerings, the 2nd application: relu (aten.relu.default)``.

    The step of the chain follows, such as ``of the step relu, the second of two, net.spec.yaml:14``.
    """
    if culprit.subsystem is None:
        return f"backend {culprit.backend}"
    if culprit.number is None and culprit.name:
        return f"{culprit.backend}: it goes away with {culprit.name}"
    text = f"{culprit.backend}, subsystem {culprit.subsystem}"
    if culprit.number is None:
        return text
    text += f", the {ordinal(culprit.number + 1)} application"
    if culprit.name:
        text += f": {one_line(culprit.name)}" + (f" ({culprit.operator})" if culprit.operator else "")
    step = one_line(", ".join(filter(None, (culprit.step, culprit.place))))
    return f"{text}, of the step {step}" if culprit.step else f"{text}, of {step}" if step else text


def _nothing(diagnosis: Diagnosis) -> list[str]:
    """Return the lines of a variant without a failure of the compiler."""
    reason = f": {one_line(diagnosis.reason)}" if diagnosis.reason else ""
    lines = ["it passes: nothing to diagnose"] if diagnosis.verdict == "PASS" else [f"nothing to diagnose{reason}"]
    return ["  " + line for line in [*lines, *diagnosis.labels, *map(one_line, diagnosis.notes)]]


def _failure(diagnosis: Diagnosis) -> list[str]:
    """Return the ladder and the first finding, with its numbers."""
    strip = " · ".join(f"{stage} {outcome}" for stage, outcome in diagnosis.stages.items())
    properties = [("ladder", strip), ("stage", diagnosis.stage or ""), ("signature", str(diagnosis.signature))]
    properties += [("labels", ", ".join(diagnosis.labels))] + [("note", note) for note in diagnosis.notes]
    lines = ["  " + one_line(diagnosis.reason, 600)] if diagnosis.reason else []
    lines += [f"  {name:<9} {one_line(value, 400)}" for name, value in properties if value]
    if diagnosis.findings:
        lines += _finding(diagnosis.findings[0])
    if len(diagnosis.findings) > 1:
        lines.append(f"  and {plural(len(diagnosis.findings) - 1, 'more finding')}")
    return lines


def _finding(finding: Finding) -> list[str]:
    lines = layout(finding.numbers)
    error = finding.error or {}
    if error.get("type"):
        head, *continuation = head_lines(str(error.get("message") or ""), _ERROR) or [""]
        lines += [one_line(f"raised {error['type']}: {head}", 400), *indent(continuation, 2)]
    return indent(lines, 4)


def _table(ablations: Sequence[Ablation]) -> list[str]:
    """Return the lines of the ablations: name, outcome, setting. A detail line follows another failure and a missing
    answer.
    """
    name = max(len(ablation.name) for ablation in ablations)
    lines = []
    for ablation in ablations:
        lines.append(
            f"  {ablation.name:<{name}}  {ablation.outcome:<9}  {one_line(ablation.setting.replace(f', {_MODULE}', ', '), 2 * _WIDTH)}"
        )
        if ablation.outcome in ("other", "no answer") and ablation.detail:
            lines.append(" " * (name + 4) + one_line(ablation.detail, _WIDTH))
    return lines
