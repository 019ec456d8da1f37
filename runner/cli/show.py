"""``runner show``: a case resolved, with its source."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from runner import console, exit_codes
from runner.builder.source import build, placed
from runner.cases.model import THREADS, Known, Variant
from runner.cli.arguments import add_paths, add_selection
from runner.cli.variants import load_variants, refuse, select_variants
from runner.diagnostics import shown_path
from runner.quote import comment, decimal
from runner.session.collect import names_nodes
from runner.session.plan import TIMEOUT


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner show`` takes."""
    parser.description = "Print a case resolved, with its source; of a file or a folder every case."
    add_paths(parser, many=False)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the first variant of each case, and which variants match beside it.

    Wrong cases beside these come after them.
    """
    loaded = load_variants(arguments)
    if not loaded.variants and loaded.errors:
        return refuse(loaded.diagnostics)
    cases: dict[int, list[Variant]] = {}
    for variant in select_variants(arguments, loaded, empty=bool(loaded.errors)).variants:
        cases.setdefault(id(variant.case), []).append(variant)
    if not cases:
        return refuse(loaded.diagnostics)
    console.output("\n\n".join(describe(variant, others) for variant, *others in cases.values()))
    if loaded.errors and not names_nodes([arguments.case]):
        return refuse(loaded.errors)
    return exit_codes.OK


def describe(variant: Variant, siblings: Sequence[Variant] = ()) -> str:
    """Return the case's properties as comments, one a line, then the source, so that the whole is Python.

    Raises InputError for a value that has no place in Python text.
    """
    case = variant.case
    with placed(case):
        source = build(variant)
        limits = f"{decimal(case.timeout or TIMEOUT)} s" + (f", {case.memory >> 20} MiB" if case.memory else "")
    properties = {
        "id": variant.id,
        "declared": f"{shown_path(case.file)}:{case.span.line}",
        "tags": " ".join(map(str, case.tags)),
        "links": " ".join(map(str, case.links)),
        "backend": _non_defaults(variant.backend),
        "params": ", ".join(f"{k}={v}" for k, v in variant.params.items()),
        "dtype, device": f"{variant.dtype}, {variant.device}",
        "modes": f"train={variant.train} grad={variant.grad.mode} dynamic={variant.dynamic} "
        f"autocast={variant.autocast} "
        f"threads={variant.threads or THREADS}",
        "seed": "" if case.seed is None else str(case.seed),
        "compile": _non_defaults(case.compile),
        "config": ", ".join(f"{k}={v}" for k, v in case.config.items()),
        "expect": _non_defaults(case.expect),
        "requires": _non_defaults(case.requires),
        "tolerance": _non_defaults(case.tolerance),
        "ignore": "; ".join(f"{k}: {v}" for k, v in case.ignore.items()),
        "limits": limits,
    }
    pairs = [(f"{name}:", value) for name, value in properties.items() if value]
    pairs += [("known:", _ledger(entry)) for entry in case.known]
    pairs += [("also:", sibling.id) for sibling in siblings[:20]]
    pairs += [("", f"and {len(siblings) - 20} more")] if len(siblings) > 20 else []
    return "\n".join([*(comment(f"{name:<15} {value}") for name, value in pairs), "", source.text.rstrip()])


def _non_defaults(settings: object) -> str:
    """Return the fields of a dataclass that differ from their defaults."""
    parts = []
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if value and value != field.default and field.compare:  # else it says where, and not what
            parts.append(f"{field.name}={_non_defaults(value) if dataclasses.is_dataclass(value) else value}")
    return ", ".join(parts)


def _ledger(entry: Known) -> str:
    parts = [f"torch {entry.torch}"] if entry.torch else []
    parts += [f"stage {entry.stage}"] if entry.stage else []
    parts += ["/".join(entry.oracle)] if entry.oracle else []
    return ", ".join([*parts, *(text for text in (entry.error, entry.issue or entry.reason) if text)])
