"""Runs the self-test: the same session and engine as ``runner run``, other variants, another table."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import add_environment
from runner.engine.local import LocalEngine
from runner.record.events import Event, VariantFinished
from runner.selftest import SPEC, judge, table, variants
from runner.session.environments import find_environments
from runner.session.options import Options
from runner.session.plan import plan, warmth
from runner.session.session import Session


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner selftest`` takes."""
    parser.description = (
        "Plants every bug that torch offers to testers and the project's own broken backends; prints a mutation score."
    )
    add_environment(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plant every bug under every environment; 0 when all are caught and every twin is quiet."""
    chosen = variants()
    code = exit_codes.OK
    for environment in find_environments(arguments.python):
        events: list[Event] = []
        planned = plan(chosen, [environment])

        def progress(event: Event, events: list[Event] = events, total: int = len(planned)) -> None:
            events.append(event)
            if isinstance(event, VariantFinished):
                done = sum(isinstance(e, VariantFinished) for e in events)
                console.message(f"{event.verdict:>7} [{event.seconds:6.2f}s] {event.id} ({done}/{total})")

        warm = {environment.key: warmth(chosen)}
        with LocalEngine({environment.key: environment.python}, arguments.jobs, warm=warm) as engine:
            options = Options(use_known=False, slots=arguments.jobs, files={"planted": str(SPEC)})
            Session(planned, engine, [progress], options).run()
        results = judge(events)
        console.output(f"torch {environment.torch}\n\n{table(results)}\n")
        if not all(r.caught and r.quiet for r in results):
            code = exit_codes.FAILED
    return code
