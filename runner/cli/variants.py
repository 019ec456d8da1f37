"""The variants that a command line names: loaded, selected, and refused where their files are wrong."""

from __future__ import annotations

import argparse
import gc
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from runner import console, exit_codes
from runner.cases.expand import SelectError
from runner.cases.model import Variant
from runner.cases.suites import PathError
from runner.cases.yaml.reader import without_collector
from runner.cli import outputs
from runner.cli.arguments import settings_of
from runner.diagnostics import Diagnostic, InputError
from runner.session.collect import Loaded, collect, device_reason
from runner.text import in_line, plural

_GUTTER = 8
"""Columns before a line of a file, and one that stays empty."""

_REASONS = 3
"""Why nothing is left, in so many sentences."""


def load_variants(arguments: argparse.Namespace, everything: bool = False, drafts: bool = False) -> Loaded:
    """Return what the paths hold, before ``-k`` and its errors included, after a look at the files that are to be
    written.

    Args:
        arguments: of any command with ``paths`` or ``case``.
        everything: cases that no suite selects, too.
        drafts: entries of ledgers whose reasons are still to be written, too.

    Raises:
        UsageError: a path, device, limit or output that cannot be.
    """
    paths = arguments.paths if hasattr(arguments, "paths") else [arguments.case]
    try:
        with without_collector():
            loaded = collect(paths, replace(settings_of(arguments), select=None), everything, drafts)
            gc.freeze()  # what was read stays to the end: the collector would walk all of it, and free nothing
    except PathError as error:
        raise exit_codes.UsageError(str(error), exit_codes.NOTHING if error.empty else exit_codes.USAGE) from None
    read = {file for variant in loaded.variants for file in variant.case.files}
    outputs.check(arguments, {suite.file for suite in loaded.suites} | read)
    return loaded


def select_variants(arguments: argparse.Namespace, loaded: Loaded, empty: bool = False) -> Loaded:
    """Return the files with the variants that ``-k`` keeps.

    Raise UsageError when none is left, unless ``empty`` is fine.
    """
    try:
        selected = loaded.selected(arguments.select)
    except SelectError as error:
        raise exit_codes.UsageError(f"-k {error}") from None
    for remark in selected.remarks:
        console.message(f"runner: {in_line(remark)}")
    if not selected.variants and not empty:
        code = exit_codes.USAGE if loaded.errors else exit_codes.NOTHING
        raise exit_codes.UsageError(f"nothing selected: {_why_nothing(loaded, settings_of(arguments).device)}", code)
    return selected


def _why_nothing(loaded: Loaded, devices: Sequence[str]) -> str:
    cases = [(suite, case) for suite in loaded.suites for case in suite.cases]
    reasons = [f"none of {plural(len(loaded.variants), 'variant')} is left"] if loaded.variants else []
    reasons += [
        f"case {case.name!r}: {reason}" for suite, case in cases if (reason := device_reason(suite, case, devices))
    ]
    if not reasons and cases:
        reasons = [d.message for d in loaded.diagnostics if d.severity == "warning"]
    more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
    return "; ".join(map(in_line, reasons[:_REASONS])) + more or "no case here"


def matching_variants(arguments: argparse.Namespace) -> Sequence[Variant]:
    """Return the variants that CASE names, at least one. The case alone must be sound, not its file.

    Raises:
        InputError: the case is wrong, or ``-k`` keeps none beside cases that are.
        UsageError: as of ``load_variants`` and ``select_variants``.
    """
    loaded = load_variants(arguments)
    if not loaded.variants and loaded.errors:
        raise InputError(loaded.diagnostics)
    variants = select_variants(arguments, loaded, empty=bool(loaded.errors)).variants
    if not variants:
        raise InputError(loaded.diagnostics)
    return variants


def first_variant(arguments: argparse.Namespace) -> Variant:
    """Return the variant that CASE names; where several match the first, and say so.

    Raises as ``matching_variants``.
    """
    variants = matching_variants(arguments)
    if len(variants) > 1:
        console.message(f"runner: {len(variants)} variants match; this is {in_line(variants[0].id)}")
    return variants[0]


def run_valid(arguments: argparse.Namespace, action: Callable[[Loaded], int]) -> int:
    """Do something with the selected variants, and return the exit code.

    Broken cases beside valid ones do not keep these from running. They are told first, counted last, where that is
    read, and decide the exit code.
    """
    loaded = load_variants(arguments)
    code = refuse(loaded.errors) if loaded.errors else exit_codes.OK
    if loaded.errors and getattr(arguments, "github", False):
        tell_github(loaded.errors)
    if loaded.errors and not loaded.variants:
        return code
    code = action(select_variants(arguments, loaded))
    if not loaded.errors:
        return code
    tell_count(loaded.errors)
    return code if code in (exit_codes.INTERRUPTED, exit_codes.INTERNAL) else exit_codes.USAGE


def refuse(diagnostics: Iterable[Diagnostic]) -> int:
    """Print what is wrong, and return the exit code for it."""
    shown = [*diagnostics]
    tell(shown)
    tell_count(shown)
    return exit_codes.USAGE


def tell(diagnostics: Iterable[Diagnostic]) -> None:
    """Print what is wrong. A line of a file that wrapped would part the caret from its place."""
    width = min(110, max(20, shutil.get_terminal_size((120, 24)).columns - _GUTTER))
    for diagnostic in diagnostics:
        console.message(diagnostic.render(width))


def tell_github(diagnostics: Iterable[Diagnostic]) -> None:
    """Print what is wrong once more, as remarks of GitHub Actions at lines of YAML."""
    from runner.report.github import diagnostic_remarks

    for line in diagnostic_remarks(diagnostics):
        console.command(line)


def tell_count(diagnostics: Sequence[Diagnostic]) -> None:
    """Print how many errors there are, in how many files."""
    files = [d.span.file for d in diagnostics if d.severity == "error"]
    lost = "" if all(file.endswith(".toml") for file in files) else ": these cases cannot run"
    console.message(f"{plural(len(files), 'error')} in {plural(len({*files}), 'file')}{lost}")
