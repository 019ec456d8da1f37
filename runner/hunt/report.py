"""The report of a group: its reduced case is diagnosed, and what upstream's form asks for is gathered and written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.cases.model import Variant
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import VariantEngine
from runner.diagnose.material import find_blame, gather
from runner.diagnose.similar import operators_of
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.files import read_text, replace_text
from runner.hunt.files import CASE, REDUCED, REPORT, folder_of
from runner.hunt.groups import FAILURES, Group
from runner.hunt.reduction import Share, drawn_variant
from runner.hunt.state import Report
from runner.report.diagnosis import sentence
from runner.report.issue import write
from runner.session.collect import collect
from runner.session.settings import RunSettings
from runner.text import duration, one_line, plural
from runner.verdict.signature import id_of


class _LateError(Exception):
    """The report has used up its share."""


def report_group(folder: Path, group: Group, settings: RunSettings, share: Share, tick: Callable[[], None]) -> Report:
    """Diagnose the reduced case of a group, and write its report into the group's folder; arguments as of ``reduce_group``.

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
            raise _LateError

    try:
        variant = _reduced_variant(own, group, settings)
        if variant is None:
            return end("its reduced case is gone or has changed")
        with VariantEngine.of(settings, variant, slots=share.slots) as engine:
            diagnosis = find_blame(engine, say)
            if diagnosis.verdict not in FAILURES:
                return end(f"the verdict of the reduced case is {diagnosis.verdict}: {diagnosis.reason}")
            material = gather(engine, diagnosis, read_text(own / REDUCED), say)
    except _LateError:
        return end(f"it takes longer than {duration(share.budget)}")
    except (UsageError, InputError) as error:
        return end(str(error))
    text, checks = write(replace(material, steps=_steps(group)), draft=True)
    replace_text(own / REPORT, text)
    culprit = diagnosis.culprit
    return end(
        unmet=sum(not check.met for check in checks),
        culprit=one_line(sentence(replace(culprit, step=None, place=None)), 200) if culprit else "",
        cause=cause_of(group, variant, diagnosis),
    )


def _reduced_variant(own: Path, group: Group, settings: RunSettings) -> Variant | None:
    """Return the variant of the reduced case; None where somebody has removed or changed it."""
    if not all((own / name).is_file() for name in (CASE, REDUCED)):
        return None
    drawn = drawn_variant(own, group, settings)
    variants = collect([own / REDUCED], settings).variants if drawn else ()
    return next((variant for variant in variants if drawn and variant.backend == drawn.backend), None)


def cause_of(group: Group, variant: Variant, diagnosis: Diagnosis) -> str:
    """Return a hash of the operators of a reduced case, its stage, its oracle and what is to blame.

    It is empty where torch's bisector names no single application or setting: a whole backend may have any number of bugs. It is
    also empty where the diagnosis shows another failure than the group's.
    """
    culprit, signature = diagnosis.culprit, diagnosis.signature
    if culprit is None or signature is None or not (culprit.subsystem and culprit.name):
        return ""
    if (signature.stage, signature.oracle) != (group.first.stage, group.first.oracle):
        return ""
    # The name of a node has its number in the graph, so its operator says more.
    blamed = (culprit.backend, culprit.subsystem, culprit.operator or culprit.name)
    parts = [sorted(operators_of(variant.case.chain)), signature.stage, signature.oracle, *blamed]
    return id_of(json.dumps(parts))


def _steps(group: Group) -> str:
    """Return a sentence about the way to the reduced case."""
    reduction = group.reduction
    if reduction is None:
        return ""
    more = "" if reduction.complete else "; there was no time to take away more"
    return f"Reduced by a machine (from {plural(reduction.before, 'operator')} to {reduction.after}{more})."
