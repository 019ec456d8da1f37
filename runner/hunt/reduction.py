"""The reduction of the first case of a group, and the files that it leaves."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from runner.cases.model import Variant
from runner.cases.serialize import plain
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import VariantEngine
from runner.diagnose.repro import script
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.files import replace_text
from runner.hunt.files import CASE, REDUCED, SCRIPT, folder_of
from runner.hunt.groups import Group
from runner.hunt.known import Ledger
from runner.hunt.state import Reduction
from runner.reduce.reducer import Reduced, reduce_variant
from runner.session.collect import collect
from runner.session.settings import RunSettings
from runner.text import one_line
from runner.verdict.signature import id_of


@dataclass(frozen=True, slots=True)
class Share:
    """What one reduction or report may take of the machine: seconds, and slots. ``beside`` is how many go on at once, with it."""

    budget: float
    slots: int = 1
    beside: int = 1


def reduce_group(
    folder: Path, group: Group, settings: RunSettings, ledger: Ledger, share: Share, tick: Callable[[], None]
) -> Reduction:
    """Reduce the first case of a group, and write the result into the group's folder.

    Args:
        folder: of the hunt.
        group: one with a folder.
        settings: of the hunt's runs.
        ledger: what may explain the smaller case.
        share: of the machine. The reduction's own seconds are its part of the time of all that go on at once.
        tick: called several times a second. It may raise KeyboardInterrupt, which ends the reduction.

    Raises:
        KeyboardInterrupt: it was cut short; nothing of it counts.
    """
    began = time.monotonic()
    own = folder_of(folder, group.id)

    def end(problem: str) -> Reduction:
        return Reduction(group.id, round((time.monotonic() - began) / share.beside, 3), one_line(problem, 300))

    if not (own / CASE).is_file():
        return end("its case is gone")
    try:
        variant = drawn_variant(own, group, settings)
        if variant is None:
            return end("its case has changed")
        with VariantEngine.of(settings, variant, slots=share.slots) as engine:
            torch = engine.environment.torch
            reduced = reduce_variant(engine, budget=share.budget, tick=lambda text: tick())
    except (UsageError, InputError) as error:
        return end(str(error))
    if reduced.interrupted:
        raise KeyboardInterrupt
    if not reduced.confirmed:
        return end("in a process of its own no case fails alike: " + "; ".join(reduced.notes))
    replace_text(own / REDUCED, reduced.text)
    with contextlib.suppress(InputError):  # a value without a place in Python text
        diagnosis = Diagnosis(reduced.variant.id, torch, "FAIL", findings=reduced.findings)
        replace_text(own / SCRIPT, script(_with_python_of(own, reduced.variant), diagnosis, settings.seed))
    data = {key: value for key, value in plain(reduced.variant.case).items() if key != "name"}
    return replace(
        end(""),
        before=reduced.size_before.operators,
        after=reduced.size_after.operators,
        elements=reduced.size_after.elements,
        complete=reduced.complete,
        known=_explained(ledger, reduced, torch),
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


def _explained(ledger: Ledger, reduced: Reduced, torch: str) -> str:
    """Return the place of a ledger's entry for the reduced case. Findings of one process know no stage; the signature does."""
    findings = [replace(finding, stage=finding.stage or reduced.signature.stage) for finding in reduced.findings]
    return ledger.explain(reduced.variant, torch, findings, reduced=True)
