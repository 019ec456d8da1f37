"""What is to blame for a failure, and what others are given of it.

``runner diagnose`` and ``run --diagnose`` put the ladder, the bisector and the ablations together. ``runner repro`` is
a case as a script that needs torch alone. ``runner issue`` is a report in the form of upstream's template for bugs of
torch.compile, or what keeps it from being one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cases.serialize import case_text
from runner.cases.torch_names import is_of_package
from runner.cases.versions import release_of
from runner.cli import outputs
from runner.cli.arguments import (
    CASE,
    FAILURE,
    JSON,
    RESULT_CODES,
    SELECTION,
    argument,
    command,
    seconds,
    setting,
    settings_of,
    yes_no,
)
from runner.cli.drift import show_drift
from runner.cli.reduce import earlier_reduction, graph_or_case
from runner.cli.variants import first_variant
from runner.contract.finding import Finding
from runner.diagnose import similar
from runner.diagnose.bug_report import Check, Package, ReportInput, VersionVerdict, find_blame, gather
from runner.diagnose.diagnosis import BUDGET, PARTS, Diagnosis, diagnose, find_kept, keep, of_verdict, path_of
from runner.diagnose.harness import Progress, VariantEngine, refuse_launches, run_heat_map
from runner.diagnose.kept import INTERRUPTED, OutOfTime
from runner.diagnose.repro import script
from runner.diagnostics import InputError
from runner.engine import scratch
from runner.files import write_anew
from runner.quote import command_words, operand, shell_word
from runner.record.events import Event, VariantFinished, finished_of
from runner.record.store import latest_result, latest_seed
from runner.report.diagnosis import render, taken_over
from runner.report.issue import write
from runner.session.plan import Environment, Planned, find_environments, order_words, worker_paths
from runner.session.settings import RunSettings
from runner.text import duration, one_line, plural
from runner.verdict.policy import applying, explains
from runner.verdict.signature import main_signature, signature_of

BISECTING = 0.8
"""Part of the budget that torch's bisector or the cut may take."""

REDUCING = 0.4
"""Part of the budget of a report that reducing may take."""

LEAST = 8.0
"""Seconds that its diagnosis has in any case."""

MOST = 20
"""So many failures of a run are diagnosed; each takes up to a minute."""


@command(
    "The stage, the pass and the operator, by torch's own bisector, and what makes the failure go away.",
    *FAILURE,
    argument("--html", metavar="FILE", help="also a page with the error over the tensor and its histogram"),
    JSON,
    *yes_no("bisect", "run CompilerBisector, which takes up to a minute (default: yes)"),
    argument(
        "--drift",
        action="store_true",
        help="instead: where an error enters the graphs of a case, and how it grows; also of one that passes",
    ),
    argument(
        "--budget",
        type=seconds,
        default=600.0,
        metavar="TIME",
        help="then, or at Ctrl-C, what is known is printed; the same command goes on from it (default: 10m)",
    ),
    epilog=RESULT_CODES,
)
def run(arguments: argparse.Namespace) -> int:
    """``runner diagnose``: 0 if there was a failure to diagnose, else 1.

    Raises:
        UsageError, InputError: the variant cannot run, a file cannot be written, or there is no verdict in time.
    """
    variant = first_variant(arguments)
    if arguments.drift:
        return show_drift(arguments, variant)
    page, end = None, time.monotonic() + arguments.budget
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, **slots_of(variant)) as engine:
        progress.say(f"diagnosing {variant.id}")
        path = path_of(engine) if arguments.bisect else None

        def tick(part: str) -> None:
            progress.say(_doing(engine, part))
            if time.monotonic() > end:
                raise OutOfTime

        try:
            diagnosis = diagnose(engine, arguments.bisect, tick, budget=min(BUDGET, BISECTING * arguments.budget))
        except OutOfTime:
            text = f"no verdict within {duration(arguments.budget)}: give it more --budget"
            raise exit_codes.UsageError(text, exit_codes.NO_RESULT) from None
        keep(path, diagnosis)
        if arguments.html and diagnosis.signature is not None and not diagnosis.stopped:
            from runner.report.diagnosis import page as write_page

            progress.say("drawing the error")
            page = write_page(diagnosis, run_heat_map(engine), run_words(arguments, variant))
    outputs.show(
        arguments,
        json.dumps(diagnosis.to_dict(), indent=2, default=str),
        render(diagnosis, run_words(arguments, variant)),
    )
    if page is not None:
        outputs.write("--html", arguments.html, page)
    elif arguments.html:
        reason = "the diagnosis was stopped" if diagnosis.stopped else "no failure"
        console.message(f"runner: {reason}, so no page in {arguments.html}")
    if diagnosis.stopped == INTERRUPTED:
        return exit_codes.INTERRUPTED
    return exit_codes.NO_RESULT if diagnosis.signature is None else exit_codes.OK


def diagnose_run(
    settings: RunSettings, planned: Sequence[Planned], events: Sequence[Event], folder: Path, draw: bool = False
) -> None:
    """Diagnose the failures of a run: print each, and keep it as ``diagnosis-1.json`` and so on in the run's folder.

    With ``draw`` the file also has the heat map of the error, under ``heat_map``.
    """
    by_key = {(item.variant.id, item.environment.torch): item for item in planned}
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
                imports=settings.imports, paths=worker_paths(settings, [failing.variant]),
                slots=slots_of(failing.variant).get("slots", settings.slots()),
            ) as engine:  # fmt: skip
                path = path_of(engine)
                diagnosis = diagnose(engine, tick=functools.partial(_say, progress, title, engine))
                if diagnosis.stopped:
                    raise KeyboardInterrupt
                keep(path, diagnosis)
                picture = run_heat_map(engine) if draw and diagnosis.signature is not None else None
        except (exit_codes.UsageError, InputError) as error:
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


def slots_of(variant: Variant) -> dict[str, int]:
    """On accelerators one process at a time: with more the engine opens the device in each, and then none can be
    copied."""
    return {} if variant.device in ("cpu", "meta") else {"slots": 1}


def _say(progress: Progress, title: str, engine: VariantEngine, part: str) -> None:
    progress.say(f"{title}, {_doing(engine, part)}")


_SEARCHES = ("bisecting", "cutting")


def _doing(engine: VariantEngine, part: str) -> str:
    """What runs now, in one line: the part, and the bisector's question.

    Where no line can be rewritten, less often another one.
    """
    text = f"part {PARTS.index(part) + 1} of {len(PARTS)}, {part}"
    running = engine.local_engine.running()
    bisecting = next((phase for _, _, phase in running if phase.startswith(_SEARCHES)), "")
    if not sys.stderr.isatty():
        return f"{text}: {bisecting.partition(': ')[2]}" if bisecting else text
    jobs = [str(job.backend.get("backend")) for job, _, phase in running if not phase.startswith(_SEARCHES)]
    others = f"{plural(len(jobs), 'run')} under changed settings" if jobs else ""
    others = ", ".join(dict.fromkeys(jobs)) if part == PARTS[0] else others
    return f"{text}: {' · '.join(filter(None, (bisecting, others)))}".rstrip(": ")


def run_words(arguments: argparse.Namespace, variant: Variant) -> list[str]:
    """Return the words of the command that runs this variant, as a shell reads them."""
    files, has_file, _ = arguments.case.partition(f"::{variant.where}::")  # PROFILE::SUITE, or one of these
    file = files if has_file else arguments.case.partition("::")[0]
    own = not has_file and (
        arguments.case == variant.id or os.path.realpath(file) == variant.case.file or not os.path.isfile(file)
    )
    settings = settings_of(arguments)
    typed = ("backend",) if ":" in variant.backend.name else ()  # code runs for who types it
    options = settings.flags("allow_python", *typed, "python", "imports", "limit", "seed", "values", "no_project")
    target = operand(variant.id if own else f"{file}::{variant.id}")
    return [shell_word(word) for word in (*order_words(), "runner", "run", target, *options)]


@command(
    "Print a case as a script that needs torch alone and exits non-zero while the problem is there. It compares "
    "what the "
    "latest run here found of the variant; without such a finding it compares what the case declares. "
    "Of a case with module: it holds the captured graph that fails alike, where there is one.",
    *CASE,
    SELECTION,
    setting("imports"),
    epilog=RESULT_CODES,
)
def run_repro(arguments: argparse.Namespace) -> int:
    """Print the script."""
    variant = first_variant(arguments)
    result = latest_result(variant.id)
    if variant.case.module is None:
        text = script(variant, result, latest_seed(), arguments.imports or ())
    else:
        text = _script_of_a_model(arguments, variant, result)
    console.output(text, end="")
    return exit_codes.OK


def _script_of_a_model(arguments: argparse.Namespace, variant: Variant, result: VariantFinished | None) -> str:
    """Return the script of the captured graph that fails like a model in Python; the last resort is its Python."""
    reason = "no run of it is recorded that failed"
    if result is not None and result.findings:
        from runner.graphs.stand_in import failing_graph

        settings = replace(settings_of(arguments), seed=latest_seed())
        with Progress() as progress, scratch.folder() as folder:
            try:
                with VariantEngine.of(settings, variant, **slots_of(variant)) as engine:
                    graph = failing_graph(engine, result.findings, folder, progress.say)
                if graph is not None:
                    return script(*graph, settings.seed, arguments.imports or ())
                reason = "no captured graph of it fails alike"
            except (exit_codes.UsageError, InputError) as error:
                reason = f"its graphs cannot be recorded: {one_line(str(error), 200)}"
    title, text = script(variant, result, latest_seed(), arguments.imports or ()).split("\n", 1)
    return f"{title}\n# This is the Python of the model: {reason}.\n{text}"


@command(
    "Markdown for a bug report: the reduced script, what is to blame, versions, environment. Of torch's own backends "
    "it refuses what upstream's rules for such reports do not allow, and says which. Of a backend of another package "
    "it is for that package's tracker.",
    *FAILURE,
    argument("-o", "--output", metavar="FILE", help="write it here instead of printing it"),
    *yes_no("reduce", "reduce first (default: yes)"),
    argument(
        "--budget",
        type=seconds,
        default=300.0,
        metavar="TIME",
        help="of the verdict, of reducing and of the diagnosis; then the report has what is known (default: 5m)",
    ),
    argument(
        "--similar",
        nargs="*",
        metavar="PATH",
        help="first look for the same operators and signature in these files' ledgers; here, if none is named",
    ),
    epilog=RESULT_CODES,
)
def run_issue(arguments: argparse.Namespace) -> int:
    """The command. Prints the report (or writes it), or says which rules are not met.

    Raises:
        UsageError, InputError: the variant cannot run, a ``--similar`` path cannot be read.
    """
    variant = first_variant(arguments)
    refuse_launches(variant, "issue")
    known = _known(arguments, variant)
    matches: list[similar.Match] = []
    environments = sorted(find_environments(arguments.python), key=lambda e: release_of(e.torch), reverse=True)
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as engines:
        progress = stack.enter_context(Progress())
        folder = stack.enter_context(scratch.folder())
        engine = engines.enter_context(_engine(arguments, environments[0], variant))
        kept = find_kept(engine)
        if kept is not None:
            console.message(taken_over(kept))
        else:
            progress.say(f"running it with torch {engine.environment.torch}")
        end = time.monotonic() + arguments.budget
        failure = kept.diagnosis if kept else _verdict(engine, _until(end, progress), arguments.budget)
        if known is not None:
            matches = similar.search(similar.profile_of(variant, failure.findings), known)
            progress.end()
            # Never into the report.
            (console.output if arguments.output else console.message)(similar.table(matches))
        if failure.verdict not in ("FAIL", "ERROR"):
            return _refuse([_passes(failure)], progress)
        if reported := known_report(engine, failure.findings):
            console.message(f"runner: the ledger says that this is reported: {reported}")
        if (refusal := _not_the_packages(engine, failure)) is not None:
            return _refuse([refusal], progress)
        diagnosis = kept.diagnosis if kept else None
        small, yaml, steps = _reduce(arguments, engine, folder, progress, diagnosis or _told(failure, variant))
        if small is not variant:
            engines.close()
            engine = engines.enter_context(_engine(arguments, environments[0], small, engine.paths))
            diagnosis = None  # of the larger case
        diagnosis = diagnosis or _blame(engine, end, progress, run_words(arguments, variant))
        if diagnosis.stopped == INTERRUPTED:
            return exit_codes.INTERRUPTED
        report = gather(engine, diagnosis, yaml, progress.say)
        versions = (*report.versions, *_older_versions(arguments, engine, environments[1:], progress))
    report = replace(report, origin=variant, versions=versions, matches=tuple(matches), steps=steps)
    text, checks = write(report)
    if report.package is None and not all(check.met for check in checks):
        return _refuse(checks, progress)
    if arguments.output:
        outputs.write("--output", arguments.output, text)
        advice = "" if report.package else "; upstream likes a trace beside it: `runner debug` makes one"
        console.message(f"wrote {arguments.output}{advice}")
    else:
        console.output(text, end="")
    if report.package is not None:
        console.message("\n".join(_for_a_package(report, report.package, checks)))
    return exit_codes.OK


def _until(end: float, progress: Progress) -> Callable[[str], None]:
    """Return what says what goes on, and raises OutOfTime when it is later than ``end``."""

    def say(text: str) -> None:
        progress.say(text)
        if time.monotonic() > end:
            raise OutOfTime

    return say


def _verdict(engine: VariantEngine, say: Callable[[str], None], budget: float) -> VariantFinished:
    """Run the variant. Raises UsageError where the time is not enough for that."""
    try:
        return engine.verdict(lambda: say(f"running it with torch {engine.environment.torch}"))
    except OutOfTime:
        text = f"no verdict within {duration(budget)}: give it more --budget"
        raise exit_codes.UsageError(text, exit_codes.NO_RESULT) from None


def _blame(engine: VariantEngine, end: float, progress: Progress, words: Sequence[str]) -> Diagnosis:
    """Return the diagnosis of the variant that a report is about; at ``end``, or at Ctrl-C, what is known by then.

    An interruption leaves no time for a report, so that it is printed.

    ``words`` are those of ``runner run`` for the variant that was asked about.
    """
    budget = max(end - time.monotonic(), LEAST)
    say = _until(time.monotonic() + budget, progress)
    try:
        diagnosis = find_blame(engine, say, min(BUDGET, BISECTING * budget))
    except OutOfTime:
        text = "no verdict of the reduced case in time: give it more --budget"
        raise exit_codes.UsageError(text, exit_codes.NO_RESULT) from None
    progress.end()
    if diagnosis.stopped == INTERRUPTED:
        console.output(render(diagnosis, words))
    elif diagnosis.stopped:
        console.message(
            f"runner: {diagnosis.stopped}: the report has what is known of the cause; give it more --budget"
        )
    return diagnosis


def _told(failure: VariantFinished | Diagnosis, variant: Variant) -> Diagnosis:
    """Return what is known of a failure as a diagnosis, so that it does not run once more."""
    return failure if isinstance(failure, Diagnosis) else of_verdict(failure, variant)


def _not_the_packages(engine: VariantEngine, failure: VariantFinished | Diagnosis) -> Check | None:
    """Return why a failure under a package's backend is not that package's; None where it may be."""
    signature = main_signature(failure.findings)
    if signature is None or signature.stage != "dynamo" or not is_of_package(engine.variant.backend.backend):
        return None
    fact = "it fails alike under backend eager, which takes no code of the package"
    rule = "the failure is that of the package"
    return Check(False, fact, "report it to PyTorch: the same command with --backend eager", rule)


def _for_a_package(report: ReportInput, package: Package, checks: Sequence[Check]) -> list[str]:
    """Return for whom a report is, and what a person should know before it is sent."""
    lines = [f"runner: this is for the tracker of {package}{f': {package.url}' if package.url else ''}"]
    if report.declined_by:
        lines.append(
            f"runner: {report.declined_by} raised NotImplementedError itself, so this is no defect of PyTorch: ask for "
            "it there, or say in a profile that it is not claimed (`unclaimed: {operators: [...]}`)"
        )
    return lines + [f"runner: note: {check.rule}: {check.fact}; {check.advice}" for check in checks if not check.met]


def _engine(
    arguments: argparse.Namespace, environment: Environment, variant: Variant, paths: Sequence[str] | None = None
) -> VariantEngine:
    """The engine of a variant under one Python.

    A smaller case does not know where the suite of its backend lies: ``paths`` are then those of the first engine,
    which has found the code.
    """
    settings = replace(settings_of(arguments), python=(environment.python,))
    changes = {} if paths is None else {"paths": tuple(paths), "named": None}
    return VariantEngine.of(settings, variant, **slots_of(variant), **changes)


def _passes(event: VariantFinished | Diagnosis) -> Check:
    """Why a variant that does not fail is not reported."""
    why = f"the verdict with torch {event.torch} is {event.verdict}" + (f": {event.reason}" if event.reason else "")
    advice = "first make a case that says something about the compiler: see `runner run`"
    if event.verdict == "PASS":
        advice = "there is nothing to report; another device, dtype or backend may fail"
    return Check(False, why, advice, "fails with the newest torch tried")


def _refuse(checks: Sequence[Check], progress: Progress) -> int:
    """Print what is not met, why, and what to do."""
    progress.end()
    unmet = [check for check in checks if not check.met]
    console.message(f"no report: {len(unmet)} of {len(checks)} rules for reports not met")
    for one in unmet:
        console.message(f"  not met: {one.rule}\n    why:   {one_line(one.fact, 500)}\n    to do: {one.advice}")
    return exit_codes.NO_RESULT


def known_report(engine: VariantEngine, findings: Sequence[Finding]) -> str:
    """Return where the ledger says that this has been reported; empty if it does not."""
    return next(
        (
            entry.issue
            for entry in applying(engine.variant, engine.environment.torch)
            if entry.why == "bug" and entry.issue and any(explains(entry, finding) for finding in findings)
        ),
        "",
    )


def _known(arguments: argparse.Namespace, variant: Variant) -> list[similar.Entry] | None:
    """The known failures to look among; None where nobody asked.

    Raises:
        UsageError: a path cannot be read.
    """
    if arguments.similar is None:
        return None
    paths = arguments.similar or [str(Path(variant.case.file).parent)]
    return [*similar.entries(paths, settings_of(arguments).limits())]


# --- gathering --------------------------------------------------------------------------------


def _reduce(
    arguments: argparse.Namespace,
    engine: VariantEngine,
    folder: Path,
    progress: Progress,
    diagnosis: Diagnosis | None = None,
) -> tuple[Variant, str, str]:
    """The smallest variant that fails alike, its YAML, and a sentence about the way there; ``diagnosis`` is of the
    first one.

    What ``runner why`` has reduced is taken over where it still fails alike.
    """
    if not arguments.reduce:
        return engine.variant, case_text(engine.variant), ""
    from runner.reduce.reducer import Memory, reduce_variant

    earlier = earlier_reduction(engine, signature_of(diagnosis.findings[0])) if diagnosis is not None else None
    if earlier is not None:
        again = reduce_variant(
            engine, budget=0.0, tick=progress.say, folder=folder, diagnosis=diagnosis, memory=Memory(best=earlier.text)
        )
        if again.confirmed and again.text == earlier.text:
            progress.end()
            console.message("runner: taken over from runner why: the smallest case, which fails alike once more")
            return again.variant, again.text, _way(earlier.changes)
    end = time.monotonic() + REDUCING * arguments.budget
    with graph_or_case(engine, diagnosis, folder, progress.say) as (smaller, known):
        found = reduce_variant(
            smaller, budget=end - time.monotonic(), tick=progress.say, folder=folder, diagnosis=known
        )
    if found.interrupted:
        raise KeyboardInterrupt
    more = "" if found.complete else "; there was no time to take away more"
    return found.variant, found.text, _way(len(found.steps), more)


def _way(changes: int, more: str = "") -> str:
    """Return the sentence of a report about how its case was made; empty where nothing was changed."""
    return f"Reduced by a machine ({changes} changes{more})." if changes else ""


def _older_versions(
    arguments: argparse.Namespace, engine: VariantEngine, environments: Sequence[Environment], progress: Progress
) -> Iterator[VersionVerdict]:
    """Yield the verdict of the engine's variant under each of these Pythons."""
    for environment in environments:
        progress.say(f"running it with torch {environment.torch}")
        try:
            with _engine(arguments, environment, engine.variant, engine.paths) as other:
                event = other.verdict()
            yield VersionVerdict(environment.torch, event.verdict, event.reason)
        except (exit_codes.UsageError, InputError) as error:
            yield VersionVerdict(environment.torch, "SKIP", str(error))
