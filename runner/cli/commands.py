"""The commands: each takes parsed arguments and returns an exit code."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from runner import console, exit_codes, outputs
from runner.cases.limits import Limits
from runner.cases.model import DEVICES, Variant
from runner.cases.select import SelectError
from runner.cases.select import parse as parse_selection
from runner.cases.suites import PathError
from runner.diagnostics import Diagnostic, InputError, nearest
from runner.exit_codes import UsageError
from runner.record.store import journal_of
from runner.session.collect import Loaded, load
from runner.text import in_line, plural

if TYPE_CHECKING:
    from runner.cli.run import Past
    from runner.ledger.review import Run


def run(
    arguments: argparse.Namespace,
    words: Sequence[str],
    only: frozenset[tuple[str, str]] | None = None,
    past: Past | None = None,
) -> int:
    """``runner run``: broken cases beside valid ones do not keep these from running, and the exit code tells."""
    from runner.cli.run import run_variants

    loaded = _load(arguments)
    if loaded.errors and not loaded.variants:
        return refuse(loaded.diagnostics)
    code = run_variants(arguments, words, loaded, _selected(arguments, loaded), only, past)
    if not loaded.errors:
        return code
    # What is valid ran; what is not is said last, where it is read, and decides the exit code.
    refuse(loaded.errors)
    return code if code in (exit_codes.INTERRUPTED, exit_codes.INTERNAL) else exit_codes.USAGE


def resume(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner resume``."""
    from runner.cli import resume as again

    return again.resume(arguments, run)


def rerun(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner rerun``."""
    from runner.cli import resume as again

    return again.rerun(arguments, run)


def merge(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner merge``."""
    from runner.cli.merge import merge_runs

    outputs.check(arguments, {os.path.realpath(journal_of(run)) for run in arguments.runs})
    return merge_runs(arguments)


def list(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner list``: valid variants are listed even when other files are broken; the exit code says so."""
    loaded = _load(arguments)
    for variant in _selected(arguments, loaded, empty=bool(loaded.errors)):
        console.output(in_line(variant.id))
    return refuse(loaded.diagnostics) if loaded.errors else exit_codes.OK


def validate(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner validate``."""
    loaded = _load(arguments, everything=True)
    diagnostics = [*loaded.diagnostics]
    if not loaded.suites and not diagnostics:
        raise UsageError(
            f"{', '.join(arguments.paths)}: no .suite.yaml and no .spec.yaml file here or below", exit_codes.NOTHING
        )
    if arguments.build:
        from runner.cli.build import try_out

        diagnostics += try_out(arguments, loaded)
    for diagnostic in diagnostics:
        console.message(diagnostic.render())
    errors = sum(d.severity == "error" for d in diagnostics)
    cases = len({id(v.case) for v in loaded.variants})
    console.output(f"{plural(cases, 'valid case')}, {plural(len(loaded.variants), 'variant')}, {plural(errors, 'error')}, "
          f"{plural(len(diagnostics) - errors, 'warning')}")  # fmt: skip
    return exit_codes.USAGE if errors else exit_codes.OK


def schema(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner schema``."""
    from runner.cases.yaml.schema import schema_text

    console.output(schema_text(arguments.name), end="")
    return exit_codes.OK


def show(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner show``."""
    from runner.report.case import describe

    chosen, others = _one(arguments)
    console.output(describe(chosen, others))
    return exit_codes.OK


def repro(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner repro``."""
    from runner.diagnose.repro import script

    console.output(script(_chosen(arguments)), end="")
    return exit_codes.OK


def sanitize(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner sanitize``."""
    from runner.cli.sanitize import run as run_sanitizer

    chosen, others = _one(arguments)
    return run_sanitizer(arguments, [chosen, *others])


def diagnose(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner diagnose``."""
    from runner.cli.diagnose import run as start

    return start(arguments, _chosen(arguments))


def reduce(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner reduce``."""
    from runner.cli.reduce import run as start

    return start(arguments, _chosen(arguments))


def minify(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner minify``."""
    from runner.cli.minify import run as start

    return start(arguments, _chosen(arguments))


def explain(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner explain``."""
    from runner.cli.explain import run as start

    return start(arguments, _chosen(arguments))


def debug(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner debug``."""
    from runner.cli.debug import run as start

    return start(arguments, _chosen(arguments))


def replay(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner replay``."""
    from runner.cli.replay import run as start

    return start(arguments)


def issue(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner issue``."""
    from runner.cli.issue import run as start

    return start(arguments, _chosen(arguments))


def bench(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner bench``: as in ``run``, broken cases do not keep valid ones from being timed."""
    from runner.cli.bench import run as start

    loaded = _load(arguments)
    if loaded.errors and not loaded.variants:
        return refuse(loaded.diagnostics)
    code = start(arguments, _selected(arguments, loaded))
    if not loaded.errors:
        return code
    refuse(loaded.errors)
    return code if code in (exit_codes.INTERRUPTED, exit_codes.INTERNAL) else exit_codes.USAGE


def report(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner report``."""
    from runner.cli.run import report_again

    outputs.check(arguments, {os.path.realpath(journal_of(arguments.run))})
    return report_again(arguments)


def selftest(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner selftest``."""
    from runner.cli.selftest import run as run_selftest

    return run_selftest(arguments)


def ledger(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """``runner ledger``: the entries by state; with ``--update`` rewritten from a run first."""
    from runner.ledger.review import RED_STATES, read_run, review
    from runner.record.store import has_latest, read_events
    from runner.report.ledger import render_ledger

    if (arguments.add or arguments.dry_run) and not arguments.update:
        raise UsageError("--add and --dry-run go with --update RUN")
    loaded = _load(arguments)
    chosen = arguments.update or arguments.run or ("latest" if has_latest() else None)
    run = read_run(loaded.variants, read_events(chosen)) if chosen else None
    entries = review(loaded.variants, run)
    left = False
    if arguments.update and run is not None:
        left = _update_ledger(arguments, loaded, run)
        if not arguments.dry_run:
            loaded = _load(arguments)
            run = read_run(loaded.variants, read_events(chosen or ""))
            entries = review(loaded.variants, run)
        for entry in entries:
            if entry.state == "stale":
                console.message(f"runner: {entry.known.span}: stale, take it away by hand: {entry.detail}")
    elif entries:
        console.output(render_ledger(entries, run is not None))
    if loaded.errors:
        return refuse(loaded.diagnostics)
    if not entries and not arguments.update:
        raise UsageError("nothing found: no known: entry here", exit_codes.NOTHING)
    return exit_codes.FAILED if left or any(e.state in RED_STATES for e in entries) else exit_codes.OK


def _update_ledger(arguments: argparse.Namespace, loaded: Loaded, run: Run) -> bool:
    """Rewrite the entries and print the diff; whether something is left to do by hand."""
    from runner.ledger.review import review
    from runner.ledger.update import plan, rewrite

    made = plan(review(loaded.variants, run), loaded.variants, run, arguments.add)
    console.output(rewrite(made, _limits(arguments), arguments.dry_run), end="")
    for note in made.notes:
        console.message(f"runner: {note}")
    return bool(made.notes)


def refuse(diagnostics: Iterable[Diagnostic]) -> int:
    """Print what is wrong; the exit code for it."""
    shown = [*diagnostics]
    for diagnostic in shown:
        console.message(diagnostic.render())
    errors = sum(d.severity == "error" for d in shown)
    files = len({d.span.file for d in shown if d.severity == "error"})
    console.message(f"{plural(errors, 'error')} in {plural(files, 'file')}: these cases cannot run")
    return exit_codes.USAGE


def _limits(arguments: argparse.Namespace) -> Limits:
    try:
        return Limits.from_environment(os.environ).with_overrides(arguments.limit)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _load(arguments: argparse.Namespace, everything: bool = False) -> Loaded:
    limits = _limits(arguments)
    for device in getattr(arguments, "device", ()):
        match = re.fullmatch(r"(\w+)(:[0-9]{1,2})?", device, re.ASCII)
        if match is None:
            raise UsageError(f"--device {device!r}: expected a device as torch names it, such as cpu, cuda or cuda:1")
        # A typo must not turn every variant into a green SKIP; what an imported module adds is not known here.
        if match[1] not in DEVICES and not getattr(arguments, "imports", ()):
            raise UsageError(
                f"--device {device}: torch has no such device; {nearest(device, DEVICES) or 'such as ' + ', '.join(DEVICES[:4])}"
            )
    paths = arguments.paths if hasattr(arguments, "paths") else [arguments.case]
    try:
        loaded = load(
            paths,
            backends=getattr(arguments, "backend", ()),
            devices=getattr(arguments, "device", ()),
            allow_python=arguments.allow_python,
            limits=limits,
            everything=everything,
            any_device=bool(getattr(arguments, "imports", ())),
        )
    except PathError as error:
        raise UsageError(str(error), exit_codes.NOTHING if error.empty else exit_codes.USAGE) from None
    except SelectError as error:
        raise UsageError(str(error)) from None
    outputs.check(arguments, {suite.file for suite in loaded.suites} | {v.case.file for v in loaded.variants})
    return loaded


def _selected(arguments: argparse.Namespace, loaded: Loaded, empty: bool = False) -> Sequence[Variant]:
    """Variants that ``-k`` keeps. Raises UsageError when none is left, unless ``empty`` is fine."""
    chosen: Sequence[Variant] = loaded.variants
    if getattr(arguments, "select", None):
        try:
            predicate = parse_selection(arguments.select)
        except SelectError as error:
            raise UsageError(f"-k {error}") from None
        chosen = [v for v in chosen if predicate(v)]
    if not chosen and not empty:
        total = len(loaded.variants)
        raise UsageError(
            f"nothing selected: none of {total} variants is left" if total else "nothing selected: no case here",
            exit_codes.NOTHING,
        )
    return chosen


def _one(arguments: argparse.Namespace) -> tuple[Variant, Sequence[Variant]]:
    """The variant that CASE names, and the others that match too. The case alone must be sound, not its file."""
    loaded = _load(arguments)
    if not loaded.variants and loaded.errors:
        raise InputError(loaded.diagnostics)
    chosen = _selected(arguments, loaded)
    return chosen[0], chosen[1:]


def _chosen(arguments: argparse.Namespace) -> Variant:
    """The variant that CASE names; where several match the first, and that is said."""
    chosen, others = _one(arguments)
    if others:
        console.message(f"runner: {len(others) + 1} variants match; this is {in_line(chosen.id)}")
    return chosen
