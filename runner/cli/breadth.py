"""How few operators a green run of a package's backend tried, and the run that tries more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.cases.operator_names import calls_of, shared_name
from runner.cases.suites import SUITE, Reader
from runner.cases.torch_names import is_of_package
from runner.diagnostics import shown_path
from runner.quote import operand, shell_words
from runner.record.events import Event, variants_of
from runner.report.price import tried_operators
from runner.session.plan import order_words
from runner.session.run import Plan
from runner.session.settings import RunSettings
from runner.text import in_line

BROADER = f"core{SUITE}"
"""The suite beside the one that ran: all operators in float32."""


def breadth_line(planned: Plan, settings: RunSettings, events: Sequence[Event]) -> str:
    """Return how many operators of the broader suite a run tried under backends of packages, with the command that
    tries all.

    The text is empty where there is no such backend or suite, or where it ran.
    """
    backends = {e.variant.backend.name for e in planned.planned if is_of_package(e.variant.backend.backend)}
    suites = planned.loaded.suites
    beside = {Path(suite.file).with_name(BROADER) for suite in suites if suite.cases}
    path = next((path for path in sorted(beside) if path.is_file()), None) if backends else None
    if path is None or str(path) in {suite.file for suite in suites}:
        return ""
    broader = Reader(settings.limits()).suites([str(path)])
    shipped = {shared_name(call) for suite in broader for case in suite.cases for call in calls_of(case)}
    tried = shipped & tried_operators(e for e in variants_of(events) if e.backend in backends).keys()
    if tried == shipped:
        return ""
    defining = [suite.file for suite in suites if any(b.span and b.name in backends for b in suite.backends)]
    words = [*order_words(), "runner", "run", *(operand(shown_path(file)) for file in (str(path), *defining))]
    words += [word for name in sorted(backends) for word in ("--backend", name)]
    words += settings.flags("allow_python", "python", "imports", "ledger", "limit", "no_project")
    names = in_line(", ".join(sorted(backends)))
    file = in_line(shown_path(str(path)))
    return f"{names} tried {len(tried)} of the {len(shipped)} operators of {file}\nnext: {shell_words(words)}\n"
