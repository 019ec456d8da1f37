"""What a planned variant is called: in its announcement, and in the command that runs it alone."""

from __future__ import annotations

import dataclasses
import os
import sys

from runner.cases.model import Backend, Unclaimed
from runner.contract.settings import HASH_SEED
from runner.diagnostics import shown_path
from runner.quote import operand, shell_words
from runner.record.events import VariantPlanned
from runner.session.context import RunContext
from runner.session.plan import Planned


def planned_event(planned: Planned) -> VariantPlanned:
    """The event that announces a planned variant."""
    variant = planned.variant
    return VariantPlanned(
        id=variant.id,
        case=sys.intern(variant.case_id),  # one text for all variants of a case
        suite=variant.suites[0],
        suites=variant.suites,
        backend=variant.backend.name,
        torch=planned.environment.torch,
        python=planned.environment.python,
        device=variant.device,
        dtype=variant.dtype,
        label=variant.label,
        file=variant.case.file,
        line=variant.case.span.line,
        column=variant.case.span.column,
        number=planned.number,
    )


def repro(planned: Planned, context: RunContext) -> str:
    """The command that runs this variant alone.

    The suite stands before the id where its file alone would mean another thing.
    """
    variant, settings = planned.variant, context.settings
    suite = context.suites.get(variant.suites[0])
    name = variant.backend.name
    # What is not claimed says which variants run, and not how.
    is_plain = dataclasses.replace(variant.backend, unclaimed=Unclaimed()) == Backend(name, name)
    own = suite is None or suite.file == variant.case.file or (is_plain and not suite.has_defaults)
    words = [
        *order_words(),
        "runner",
        "run",
        operand(variant.id if own or suite is None else f"{shown_path(suite.file)}::{variant.id}"),
    ]
    words += settings.flags()
    words += ["--backend", name] if ":" in name else []  # code runs for who types it
    if planned.environment.python != context.default_python:
        words += ["--python", planned.environment.python]
    return shell_words(words)


def order_words() -> list[str]:
    """Return what stands before a command so that it runs under the order of sets that somebody chose for this
    process."""
    order = os.environ.get(HASH_SEED)
    return [f"{HASH_SEED}={order}"] if order else []
