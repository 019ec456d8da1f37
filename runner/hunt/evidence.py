"""The evidence of a group of a hunt: its first case reduced, and that case diagnosed and reported in upstream form."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.cases.model import Variant
from runner.cases.serialize import plain
from runner.diagnose.bug_report import find_blame, gather
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import VariantEngine
from runner.diagnose.kept import INTERRUPTED
from runner.diagnose.repro import script
from runner.diagnose.similar import operators_of
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.files import read_text, replace_text
from runner.hunt.groups import CASE, FAILURES, REDUCED, REPORT, SCRIPT, Group, Ledger, Reduction, Report, folder_of
from runner.reduce.reducer import reduce_variant
from runner.report.diagnosis import sentence
from runner.report.issue import write
from runner.session.collect import collect
from runner.session.settings import RunSettings
from runner.text import duration, one_line, plural
from runner.verdict.signature import id_of

GRACE = 20.0
"""Seconds beyond its budget in which a reduction may confirm what it has."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one reduction or report may take of the machine: seconds, and slots.

    ``beside`` is how many go on at once, with it.
    """

    budget: float
    slots: int = 1
    beside: int = 1


def reduce_group(
    folder: Path, settings: RunSettings, ledger: Ledger, group: Group, share: Share, tick: Callable[[], None]
) -> Reduction:
    """Reduce the first case of a group, and write the result into the group's folder.

    Args:
        folder: of the hunt.
        settings: of the hunt's runs.
        ledger: what may explain the smaller case.
        group: one with a folder.
        share: of the machine. The reduction's own seconds are its part of the time of all that go on at once.
        tick: called several times a second. It may raise KeyboardInterrupt, which ends the reduction.

    Raises:
        KeyboardInterrupt: it was cut short; nothing of it counts.
    """
    began = time.monotonic()
    own = folder_of(folder, group.id)

    def end(problem: str) -> Reduction:
        return Reduction(group.id, round((time.monotonic() - began) / share.beside, 3), one_line(problem, 300))

    def look(text: str) -> None:
        tick()
        if time.monotonic() - began > share.budget + GRACE:
            raise UsageError(f"it takes longer than {duration(share.budget)}")

    if not (own / CASE).is_file():
        return end("its case is gone")
    try:
        variant = drawn_variant(own, group, settings)
        if variant is None:
            return end("its case has changed")
        with VariantEngine.of(settings, variant, slots=share.slots) as engine:
            torch = engine.environment.torch
            reduced = reduce_variant(engine, budget=share.budget, tick=look)
    except (UsageError, InputError) as error:
        return end(str(error))
    if reduced.interrupted:
        raise KeyboardInterrupt
    if not reduced.confirmed:
        return end("in a process of its own no case fails alike: " + "; ".join(reduced.notes))
    replace_text(own / REDUCED, reduced.text)
    with contextlib.suppress(InputError):  # a value without a place in Python text
        diagnosis = Diagnosis(reduced.variant.id, torch, "FAIL", findings=reduced.findings)
        replace_text(
            own / SCRIPT, script(_with_python_of(own, reduced.variant), diagnosis, settings.seed, settings.imports)
        )
    # Findings of one process know no stage; the signature does.
    findings = [replace(finding, stage=finding.stage or reduced.signature.stage) for finding in reduced.findings]
    data = {key: value for key, value in plain(reduced.variant.case).items() if key != "name"}
    return replace(
        end(""),
        before=reduced.size_before.operators,
        after=reduced.size_after.operators,
        elements=reduced.size_after.elements,
        complete=reduced.complete,
        known=ledger.explain(reduced.variant, torch, findings, True, (group.id, group.first.signature)),
        case=id_of(json.dumps(data, sort_keys=True, default=str)),
    )


def _with_python_of(own: Path, variant: Variant) -> Variant:
    """Return a reduced variant with the model in Python of the group's folder: the reduction's own copy is gone."""
    case, module = variant.case, variant.case.module
    if module is None:
        return variant
    return replace(variant, case=replace(case, module=replace(module, file=str(own / Path(module.file).name))))


def drawn_variant(own: Path, group: Group, settings: RunSettings) -> Variant | None:
    """Return the variant of a group's case that is red; None where somebody has changed the case.

    Raises:
        UsageError, InputError: the case cannot be read.
    """
    names = {red.id.partition("::")[2] for red in group.reds}
    variants = collect([own / CASE], settings).variants
    return next((variant for variant in variants if variant.id.partition("::")[2] in names), None)


def report_group(folder: Path, settings: RunSettings, group: Group, share: Share, tick: Callable[[], None]) -> Report:
    """Diagnose the reduced case of a group, and write its report into the group's folder; arguments as of
    ``reduce_group``.

    Raises:
        KeyboardInterrupt: it was cut short; nothing of it counts.
    """
    began = time.monotonic()
    own = folder_of(folder, group.id)

    def end(problem: str = "", **more: Any) -> Report:
        return Report(group.id, round((time.monotonic() - began) / share.beside, 3), one_line(problem, 300), **more)

    def say(text: str) -> None:
        tick()
        if time.monotonic() - began > share.budget:
            raise UsageError(f"it takes longer than {duration(share.budget)}")

    try:
        variant = _reduced_variant(own, group, settings)
        if variant is None:
            return end("its reduced case is gone or has changed")
        with VariantEngine.of(settings, variant, slots=share.slots) as engine:
            diagnosis = find_blame(engine, say)
            if diagnosis.stopped == INTERRUPTED:
                raise KeyboardInterrupt
            if diagnosis.verdict not in FAILURES:
                return end(f"the verdict of the reduced case is {diagnosis.verdict}: {diagnosis.reason}")
            report = gather(engine, diagnosis, read_text(own / REDUCED), say)
    except (UsageError, InputError) as error:
        return end(str(error))
    text, checks = write(replace(report, steps=_steps(group)), draft=True)
    replace_text(own / REPORT, text)
    culprit = diagnosis.culprit
    return end(
        unmet=sum(not check.met for check in checks),
        culprit=one_line(sentence(replace(culprit, step=None, place=None)), 200) if culprit else "",
        cause=cause_of(group, variant, diagnosis),
    )


def _reduced_variant(own: Path, group: Group, settings: RunSettings) -> Variant | None:
    """Return the variant of the reduced case; None where somebody has removed or changed it."""
    has_files = all((own / name).is_file() for name in (CASE, REDUCED))
    drawn = drawn_variant(own, group, settings) if has_files else None
    variants = collect([own / REDUCED], settings).variants if drawn else ()
    return next((variant for variant in variants if drawn and variant.backend == drawn.backend), None)


def cause_of(group: Group, variant: Variant, diagnosis: Diagnosis) -> str:
    """Return a hash of the operators of a reduced case, its stage, its oracle and what is to blame.

    It is empty where torch's bisector names no single application or setting: a whole backend may have any number of
    bugs. It is also empty where the diagnosis shows another failure than the group's.
    """
    culprit, signature = diagnosis.culprit, diagnosis.signature
    if culprit is None or signature is None or not (culprit.subsystem and culprit.name):
        return ""
    if (signature.stage, signature.oracle) != (group.first.stage, group.first.oracle):
        return ""
    # The name of a node has its number in the graph, so its operator says more.
    blamed = (culprit.backend, culprit.subsystem, culprit.operator or culprit.name)
    return id_of(json.dumps([sorted(operators_of(variant.case.chain)), signature.stage, signature.oracle, *blamed]))


def _steps(group: Group) -> str:
    """Return a sentence about the way to the reduced case."""
    reduction = group.reduction
    if reduction is None:
        return ""
    more = "" if reduction.complete else "; there was no time to take away more"
    return f"Reduced by a machine (from {plural(reduction.before, 'operator')} to {reduction.after}{more})."
