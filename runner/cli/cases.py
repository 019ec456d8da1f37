"""Commands that read cases and run none: ``list``, ``validate`` and ``show``; ``schema`` prints what they may hold."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

from runner import console, exit_codes
from runner.builder.editor_schema import KINDS, editor_schema
from runner.builder.source import Source, build, placed
from runner.cases.model import THREADS, Known, Variant
from runner.cases.operator_texts import VERSIONS
from runner.cases.problems import by_line
from runner.cases.yaml.schema import NAMES, schema_text
from runner.cases.yaml.values import flow
from runner.cli import outputs
from runner.cli.arguments import CASE, ENVIRONMENT, PATHS, SELECTION, argument, command, github, one_of, settings_of
from runner.cli.variants import load_variants, refuse, select_variants, tell, tell_github
from runner.diagnostics import Diagnostic, Span, shown_path, source_line
from runner.quote import comment, decimal
from runner.session.collect import Loaded
from runner.session.nodes import names_nodes
from runner.text import in_line, plural

if TYPE_CHECKING:
    from runner.engine.messages import Outcome

_AT_ONCE = 1000
"""Ids that are printed in one go: each print takes as long as a look at ten ids."""


@command(
    "One id a line, in the order of reports. Each can be given to run, show, diagnose and the others.",
    *PATHS,
    SELECTION,
    one_of(
        argument("--tags", action="store_true", help="the tags instead, each with how many variants have it"),
        argument("--backends", action="store_true", help="the backends instead, each with how many variants have it"),
    ),
)
def run_list(arguments: argparse.Namespace) -> int:
    """List valid variants even when other files are broken; the exit code says so."""
    loaded = load_variants(arguments)
    code = refuse(loaded.errors) if loaded.errors else exit_codes.OK
    variants = select_variants(arguments, loaded, empty=bool(loaded.errors)).variants
    if arguments.tags:
        _print_counts(Counter(tag for variant in variants for tag in variant.case.tags))
    elif arguments.backends:
        _print_counts(Counter(variant.backend.name for variant in variants))
    else:
        for start in range(0, len(variants), _AT_ONCE):
            console.output("\n".join(in_line(variant.id) for variant in variants[start : start + _AT_ONCE]))
    return code


def _print_counts(counts: Counter[str]) -> None:
    from tabulate import tabulate  # which no other command of this module waits for

    rows = [(in_line(name), plural(count, "variant")) for name, count in sorted(counts.items())]
    console.output(tabulate(rows, tablefmt="plain", disable_numparse=True))


@command(
    "Every error of every file, at its line and column. Needs no torch; --build does.",
    *PATHS,
    ENVIRONMENT,
    argument(
        "--build",
        action="store_true",
        help="also make every model and its inputs and call it, on the meta device where that can be",
    ),
    argument("--sarif", metavar="FILE", help="SARIF 2.1.0 here; - is standard output, and then nothing else"),
    github("in a job of GitHub Actions: also remarks at lines of YAML"),
)
def run_validate(arguments: argparse.Namespace) -> int:
    """Print every error and warning, and how much is valid."""
    loaded = load_variants(arguments, everything=True)
    diagnostics = [*loaded.diagnostics]
    unbuilt: Counter[str] = Counter()
    if not loaded.suites and not diagnostics and loaded.entries is None:
        raise exit_codes.UsageError(
            f"{', '.join(arguments.paths)}: no .suite.yaml and no .spec.yaml file here or below", exit_codes.NOTHING
        )
    if arguments.build:
        refusals, unbuilt = try_out(arguments, loaded)
        diagnostics = by_line([*diagnostics, *refusals])
    tell(diagnostics)
    if arguments.github:
        tell_github(diagnostics)
    if arguments.sarif:
        from runner.report.sarif import render

        if arguments.sarif == "-":
            console.output(render(diagnostics), end="")
            return exit_codes.USAGE if any(d.severity == "error" for d in diagnostics) else exit_codes.OK
        outputs.write("--sarif", arguments.sarif, render(diagnostics))
    errors = sum(d.severity == "error" for d in diagnostics)
    counts = {
        "valid case": len({(v.case.file, v.case.name) for v in loaded.variants}),
        "variant": len(loaded.variants),
        "error": errors,
        "warning": len(diagnostics) - errors,
    }
    entries = [] if loaded.entries is None else [plural(loaded.entries, "entry of a ledger", "entries of ledgers")]
    console.output(", ".join([*(plural(count, name) for name, count in counts.items()), *entries]))
    if loaded.python:
        what = f"{plural(loaded.python, 'case')} with Python (module:, kernels:)"
        console.output(f"left out: {what}; read that code, then add --allow-python")
    for reason, count in unbuilt.most_common():
        console.output(f"not built: {plural(count, 'variant')}: {in_line(reason)}")
    return exit_codes.USAGE if errors else exit_codes.OK


def try_out(arguments: argparse.Namespace, loaded: Loaded) -> tuple[list[Diagnostic], Counter[str]]:
    """Return a diagnostic for each case that torch refuses, and why variants were not built, with how many.

    One backend's variant is enough for each dtype, device and set of params.
    """
    from runner.engine.local import LocalEngine  # late: an engine is needed here alone
    from runner.session.plan import Planned, checked_environments, job, plan, skip_reason, worker_paths
    from runner.session.preflight import import_code
    from runner.session.scheduler import drive, with_reference

    settings = settings_of(arguments)
    environments = checked_environments(settings, loaded.variants)
    chosen: dict[str, Planned] = {}
    unbuilt: Counter[str] = Counter()
    for planned in plan(loaded.variants, environments):
        if reason := skip_reason(planned):
            unbuilt[reason] += 1
        else:
            chosen.setdefault(f"{planned.variant.label} {planned.environment.key}", planned)
    built = [(planned, build(planned.variant)) for planned in chosen.values()]
    paths = worker_paths(settings)
    jobs = [
        replace(job(planned, source, imports=settings.imports, paths=paths), task="build") for planned, source in built
    ]
    pythons, warm = {e.key: e.python for e in environments}, {e.key: "import" for e in environments}
    with LocalEngine(pythons, settings.slots(), warm=warm) as engine:
        import_code(engine, [planned for planned, _ in built], settings)
        answers = zip(drive(engine, with_reference(jobs)), built, strict=True)
    refusals = (_refusal(outcome, planned.variant, source) for outcome, (planned, source) in answers)
    return [*filter(None, refusals)], unbuilt


def _refusal(outcome: Outcome, variant: Variant, source: Source) -> Diagnostic | None:
    from runner.verdict import outcomes  # late, with the engine

    if outcome.ended != "result":
        return _at(variant.case.span, f"case {variant.case.name!r}: {outcomes.describe(outcome)}")
    error = outcome.result.get("error")
    if error is None or variant.case.expect.raises is not None:  # what it is to raise, a run compares
        return None
    place = source.place(error.get("line")) or variant.case.span
    first = str(error["message"]).strip().split("\n")[0]
    return _at(place, f"torch refuses this: {error['type']}: {first}", f"variant {variant.label.rpartition('::')[2]}")


def _at(span: Span, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(span, message, hint, text=source_line(span.file, span.line))


@command("Print a case resolved, with its source; of a file or a folder every case.", *CASE, SELECTION)
def run_show(arguments: argparse.Namespace) -> int:
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
    return refuse(loaded.errors) if loaded.errors and not names_nodes([arguments.case]) else exit_codes.OK


def describe(variant: Variant, siblings: Sequence[Variant] = ()) -> str:
    """Return the case's properties as comments, one a line, then the source, so that the whole is Python.

    Raises InputError for a value that has no place in Python text.
    """
    from runner.session.plan import TIMEOUT  # late: no other command here plans

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
        "params": ", ".join(f"{k}={flow(v) if isinstance(v, tuple) else v}" for k, v in variant.params.items()),
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
    values = [
        (field.name, getattr(settings, field.name), field.default)
        for field in fields(settings)  # type: ignore[arg-type]
        if field.compare  # else it says where, and not what
    ]
    return ", ".join(
        f"{name}={_non_defaults(value) if is_dataclass(value) else value}"
        for name, value, default in values
        if value and value != default
    )


def _ledger(entry: Known) -> str:
    torch, stage = (
        f"{name} {value}" if value else "" for name, value in (("torch", entry.torch), ("stage", entry.stage))
    )
    texts = (torch, stage, "/".join(entry.oracle), entry.error, entry.signature, entry.issue or entry.reason)
    return ", ".join(filter(None, texts))


@command(
    "Draft-07, for editors and other tools. Those of spec and suite files know every operator that a step may call. "
    "events is one line of a run's events.jsonl, project a project file.",
    argument("name", nargs="?", choices=(*NAMES, "events", "project"), default="spec"),
    argument(
        "--torch", choices=VERSIONS, help="of spec and suite: the operators of this torch alone (default: of each)"
    ),
)
def run_schema(arguments: argparse.Namespace) -> int:
    """Print the schema. Raises UsageError for a version of torch with a schema that has no operators."""
    if arguments.name in KINDS:
        text = editor_schema(arguments.name, arguments.torch)
    elif arguments.torch is not None:
        raise exit_codes.UsageError(f"--torch goes with {' and '.join(KINDS)}: {arguments.name} has no operators")
    else:
        text = schema_text(arguments.name)
    console.output(text, end="")
    return exit_codes.OK
