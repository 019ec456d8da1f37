"""``validate --build``: every model and its inputs made, by a worker, and torch's refusals at the line that holds
them."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter

from runner.builder.source import Source, build
from runner.cases.model import Variant
from runner.cli.arguments import settings_of
from runner.diagnostics import Diagnostic, Span, source_line
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.session.collect import Loaded
from runner.session.plan import Planned, checked_environments, job, skip_reason
from runner.session.scheduler import drive, with_reference
from runner.verdict.outcomes import describe


def try_out(arguments: argparse.Namespace, loaded: Loaded) -> tuple[list[Diagnostic], Counter[str]]:
    """Return a diagnostic for each case that torch refuses, and why variants were not built, with how many.

    One backend's variant is enough for each dtype, device and set of params.
    """
    settings = settings_of(arguments)
    environments = checked_environments(settings, loaded.variants)
    chosen: dict[str, Planned] = {}
    unbuilt: Counter[str] = Counter()
    for variant in loaded.variants:
        for environment in environments:
            planned = Planned(variant, environment)
            if reason := skip_reason(planned):
                unbuilt[reason] += 1
            else:
                chosen.setdefault(f"{variant.label} {environment.key}", planned)
    built = [(planned, build(planned.variant)) for planned in chosen.values()]
    jobs = [
        dataclasses.replace(job(planned, source, imports=settings.imports), task="build") for planned, source in built
    ]
    with LocalEngine(
        {e.key: e.python for e in environments}, settings.slots(), warm={e.key: "import" for e in environments}
    ) as engine:
        outcomes = drive(engine, with_reference(jobs))
    refusals = [
        _refusal(outcome, planned.variant, source) for outcome, (planned, source) in zip(outcomes, built, strict=True)
    ]
    return list(dict.fromkeys(filter(None, refusals))), unbuilt


def _refusal(outcome: Outcome, variant: Variant, source: Source) -> Diagnostic | None:
    span, raises = variant.case.span, variant.case.expect.raises
    if outcome.ended != "result":
        return _at(span, f"case {variant.case.name!r}: {describe(outcome)}")
    error = outcome.result.get("error")
    if error is None or raises is not None:  # what it is to raise, a run compares
        return None
    place = source.place(error.get("line")) or span
    first = str(error["message"]).strip().split("\n")[0]
    return _at(place, f"torch refuses this: {error['type']}: {first}", f"variant {variant.label.rpartition('::')[2]}")


def _at(span: Span, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(span, message, hint, text=source_line(span.file, span.line))
