"""``runner diagnose`` and ``runner run --diagnose``: the ladder, the bisector and the ablations, put together."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cli import outputs
from runner.cli.arguments import add_variant, add_yes_no, settings_of
from runner.cli.variants import first_variant
from runner.diagnose.diagnosis import PARTS, diagnose, keep, path_of
from runner.diagnose.harness import Progress, VariantEngine, run_heat_map
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.files import write_anew
from runner.quote import command_words, operand, shell_word
from runner.record.events import Event, finished_of
from runner.report.diagnosis import render
from runner.session.context import order_words
from runner.session.plan import Planned, worker_paths
from runner.session.settings import RunSettings
from runner.text import plural

MOST = 20
"""So many failures of a run are diagnosed; each takes up to a minute."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner diagnose`` takes."""
    parser.description = (
        "The stage, the pass and the operator, by torch's own bisector, and what makes the failure go away."
    )
    add_variant(parser)
    parser.add_argument("--html", metavar="FILE", help="also a page with the error over the tensor and its histogram")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    add_yes_no(parser, "bisect", "run CompilerBisector, which takes up to a minute (default: yes)")


def run(arguments: argparse.Namespace) -> int:
    """``runner diagnose``: 0 if there was a failure to diagnose, else 1.

    Raises:
        UsageError, InputError: the variant cannot run, or a file cannot be written.
    """
    variant = first_variant(arguments)
    page = None
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, **_slots(variant)) as engine:
        progress.say(f"diagnosing {variant.id}")
        path = path_of(engine) if arguments.bisect else None
        diagnosis = diagnose(engine, arguments.bisect, lambda part: progress.say(_doing(engine, part)))
        keep(path, diagnosis)
        if arguments.html and diagnosis.signature is not None:
            from runner.report.diagnosis import page as write_page

            progress.say("drawing the error")
            page = write_page(diagnosis, run_heat_map(engine), _run(arguments, variant))
    text = json.dumps(diagnosis.to_dict(), indent=2, default=str)
    outputs.show(arguments, text, render(diagnosis, _run(arguments, variant)))
    if page is not None:
        outputs.write("--html", arguments.html, page)
    elif arguments.html:
        console.message(f"runner: no failure, so no page in {arguments.html}")
    return exit_codes.NO_RESULT if diagnosis.signature is None else exit_codes.OK


def diagnose_run(
    settings: RunSettings, planned: Sequence[Planned], events: Sequence[Event], folder: Path, draw: bool = False
) -> None:
    """Diagnose the failures of a run: print each, and keep it as ``diagnosis-1.json`` and so on in the run's folder.

    With ``draw`` the file also has the heat map of the error, under ``heat_map``.
    """
    by_key = {(each.variant.id, each.environment.torch): each for each in planned}
    # Of a variant that ran twice the later verdict stands.
    failed = [event for event in finished_of(events).values() if event.verdict in ("FAIL", "ERROR") and event.findings]
    failed.sort(key=lambda event: event.number)  # as planned, not as they happened to end
    progress = Progress()
    for number, event in enumerate(failed[:MOST], 1):
        failing = by_key[event.key]
        title = f"diagnosing {number} of {min(len(failed), MOST)}"
        progress.say(f"{title}: {event.id}")
        try:
            with VariantEngine(
                failing.variant, failing.environment, limits=settings.limits(), seed=settings.seed,
                imports=settings.imports,
                paths=worker_paths(settings), slots=_slots(failing.variant).get("slots", settings.slots()),
            ) as engine:  # fmt: skip
                path = path_of(engine)
                diagnosis = diagnose(engine, tick=functools.partial(_say, progress, title, engine))
                keep(path, diagnosis)
                picture = run_heat_map(engine) if draw and diagnosis.signature is not None else None
        except (UsageError, InputError) as error:
            progress.end()
            console.message(f"runner: {event.id}: not diagnosed: {error}")
            continue
        except KeyboardInterrupt:
            progress.end()
            console.message(f"runner: interrupted: {len(failed) - number + 1} failures not diagnosed")
            raise
        progress.end()
        console.output(f"\n{render(diagnosis, command_words(event.repro))}")
        _keep(folder / f"diagnosis-{number}.json", diagnosis.to_dict() | ({"heat_map": picture} if picture else {}))
    if len(failed) > MOST:
        console.message(f"\nrunner: {len(failed) - MOST} more failures are not diagnosed; runner diagnose does one")


def _keep(path: Path, diagnosis: Mapping[str, Any]) -> None:
    try:
        write_anew(path, json.dumps(diagnosis, indent=2, default=str) + "\n")
    except OSError as error:
        console.message(f"runner: {path}: {error.strerror}")


def _slots(variant: Variant) -> dict[str, int]:
    """On accelerators one process at a time: with more the engine opens the device in each, and then none can be
    copied."""
    return {} if variant.device in ("cpu", "meta") else {"slots": 1}


def _say(progress: Progress, title: str, engine: VariantEngine, part: str) -> None:
    progress.say(f"{title}, {_doing(engine, part)}")


def _doing(engine: VariantEngine, part: str) -> str:
    """What runs now, in one line: the part, and the bisector's question.

    Where no line can be rewritten, less often another one.
    """
    text = f"part {PARTS.index(part) + 1} of {len(PARTS)}, {part}"
    running = engine.local_engine.running()
    bisecting = next((phase for _, _, phase in running if phase.startswith("bisecting")), "")
    if not sys.stderr.isatty():
        return f"{text}: {bisecting.partition(': ')[2]}" if bisecting else text
    jobs = [str(job.backend.get("backend")) for job, _, phase in running if not phase.startswith("bisecting")]
    others = (
        ", ".join(dict.fromkeys(jobs)) if part == PARTS[0] else f"{plural(len(jobs), 'run')} under changed settings"
    )
    return f"{text}: {' · '.join(filter(None, (bisecting, others if jobs else '')))}".rstrip(": ")


def _run(arguments: argparse.Namespace, variant: Variant) -> list[str]:
    """Return the words of the command that runs this variant, as a shell reads them."""
    file = arguments.case.partition("::")[0]
    own = arguments.case == variant.id or os.path.realpath(file) == variant.case.file or not os.path.isfile(file)
    settings = settings_of(arguments)
    typed = ("backend",) if ":" in variant.backend.name else ()  # code runs for who types it
    options = settings.flags("allow_python", *typed, "python", "imports", "limit", "seed")
    target = operand(variant.id if own else f"{file}::{variant.id}")
    return [shell_word(word) for word in (*order_words(), "runner", "run", target, *options)]
