"""Runs the self-test: the same session and engine as ``runner run``, other variants, another table."""

from __future__ import annotations

import argparse
from dataclasses import replace

from runner import console, exit_codes
from runner.cli.arguments import ENVIRONMENT, command, settings_of
from runner.engine.local import LocalEngine
from runner.record.events import VariantFinished
from runner.selftest import judge, table, variants
from runner.session.plan import RunContext, find_environments, plan, warmth
from runner.session.run import Session


@command(
    "Plants every bug that torch offers to testers and the project's own broken backends; prints a mutation score.",
    ENVIRONMENT,
)
def run(arguments: argparse.Namespace) -> int:
    """Plant every bug under every environment; 0 when all are caught and every twin is quiet."""
    chosen = variants()
    settings = replace(settings_of(arguments), no_known=True, confirm=False)
    code = exit_codes.OK
    for environment in find_environments(arguments.python):
        planned = plan(chosen, [environment])
        finished: list[VariantFinished] = []
        warm = {environment.key: warmth(chosen)}
        context = RunContext(settings, slots=settings.slots())
        with LocalEngine({environment.key: environment.python}, context.slots, warm=warm) as engine:
            for event in Session(planned, engine, context).events():
                if isinstance(event, VariantFinished):
                    finished.append(event)
                    console.message(
                        f"{event.verdict:>7} [{event.seconds:6.2f}s] {event.id} ({len(finished)}/{len(planned)})"
                    )
        results = judge(finished)
        console.output(f"torch {environment.torch}\n\n{table(results)}\n")
        if not all(r.caught and r.quiet for r in results):
            code = exit_codes.FAILED
    return code
