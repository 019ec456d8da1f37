"""Around a session: environments, the engine, the run's folder, reports, interruption."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from runner import __version__, console, exit_codes, interrupts
from runner.cases.limits import Limits
from runner.cases.model import Variant
from runner.cli import outputs
from runner.cli.run_arguments import add as add
from runner.cli.variants import run_valid
from runner.exit_codes import UsageError
from runner.ledger.review import stale_notices
from runner.record import lock as writer
from runner.record.events import (
    RED,
    Event,
    Notice,
    RunFinished,
    RunResumed,
    RunStarted,
    VariantFinished,
    VariantPlanned,
)
from runner.record.signing import signature_of
from runner.record.store import FOLDER, make_latest, new_folder, read_events, settled, started_of
from runner.report.handlers import Reports
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter
from runner.session import history, shards
from runner.session.collect import Loaded, names_nodes
from runner.session.environments import checked_environments, worker_paths
from runner.session.options import Options
from runner.session.plan import Environment, Planned, plan, precision_flags, skip_reason, warmth
from runner.session.scheduler import Engine
from runner.session.session import Session
from runner.session.variant_run import planned_event

PRECISE = "on CUDA cuDNN and cuBLAS round as the dtype says: no TF32, no sums in half precision; a case's config: can allow it"


@dataclass(frozen=True, slots=True)
class Past:
    """A run that is taken up again: its folder and its events so far."""

    folder: Path
    events: list[Event]


def run(arguments: argparse.Namespace, only: frozenset[history.Key] | None = None, past: Past | None = None) -> int:
    """``runner run``, limited to ``only``, or going on with ``past``; broken cases do not keep valid ones from running."""
    return run_valid(
        arguments, lambda loaded, variants: run_variants(arguments, arguments.words, loaded, variants, only, past)
    )


class _Closable(Engine, Protocol):
    def close(self) -> None: ...


def run_variants(
    arguments: argparse.Namespace,
    words: Sequence[str],
    loaded: Loaded,
    variants: Sequence[Variant],
    only: frozenset[history.Key] | None = None,
    past: Past | None = None,
) -> int:
    """Run them, with every report; the exit code.

    ``only`` leaves out what has another key. ``past`` is a run to go on with. Raises UsageError, among others when
    the files say something else than they did for ``past``.
    """
    environments = checked_environments(arguments, variants)
    _refuse_contradictions(arguments)
    everything = plan(variants, environments)
    digest = shards.plan_hash(
        everything, f"seed {arguments.seed}", f"known {not arguments.no_known}", *arguments.imports
    )
    if past is not None and started_of(past.events).plan != digest:
        raise UsageError(f"run {past.folder.name} cannot go on: its cases, or the torch under test, have changed since; "
                         "runner rerun --failed runs what has no good verdict in it")  # fmt: skip
    known = history.read()
    chosen, remark = [one for one in everything if only is None or history.key_of(one) in only], ""
    if past is None:
        chosen, remark = _selected(arguments, chosen, known)
    folder, warning = (past.folder, "") if past else new_folder()
    lock = contextlib.ExitStack() if past else writer.lock(folder)  # resume holds it already
    engine = _engine(arguments, environments, variants, folder)
    stamp = {"plan": digest, "shard": str(arguments.shard or "")}
    begun = time.monotonic()
    full = not (arguments.select or arguments.backend or arguments.device or arguments.last_failed)
    full = full and only is None and not arguments.shard and not names_nodes(arguments.paths)
    begin = _started(arguments, words, folder, environments, full, digest, len(chosen), len(everything))
    seen: list[Event] = [*past.events] if past else []
    code, interrupted, failed = exit_codes.INTERNAL, False, False
    with interrupts.held():  # a signal is looked for between two steps, so that the run always comes to its end below
        reports = Reports.open(
            arguments, folder, {key: text for key, text in stamp.items() if text}, again=past is not None
        )

        def tell(event: Event) -> None:
            seen.append(event)
            reports.handle(event)

        def tick(running: list[tuple[str, float, str]]) -> None:
            reports.tick(running)
            interrupts.check()

        try:
            finished = _announce(begin, chosen, past, reports, tell)
            make_latest(folder)
            on_gpu = any(precision_flags(one.variant.device) and not skip_reason(one) for one in chosen)
            remarks = (_warnings(loaded), remark, PRECISE if on_gpu else "")
            for text, severity in ((warning, "warning"), *((text, "info") for text in remarks)):
                if text:
                    tell(Notice(text, severity))
            options = _options(arguments, loaded, environments, begun, getattr(engine, "slots", arguments.jobs))
            queue = [
                one for one in history.ordered(chosen, known, _order(arguments)) if history.key_of(one) not in finished
            ]
            session = Session(queue, engine, [tell], options, tick)
            code = session.run() if chosen else exit_codes.NOTHING  # a shard may be empty, and is one all the same
            if code == exit_codes.OK and any(event.verdict in RED for event in finished.values()):
                code = exit_codes.FAILED
            if session.late:
                code, interrupted = exit_codes.INTERRUPTED, True
                left = len(chosen) - sum(isinstance(event, VariantFinished) for event in seen)
                tell(Notice(f"the budget of {arguments.budget:g} s is used up: {left} of {len(chosen)} without a verdict; "
                            "runner resume goes on", "error"))  # fmt: skip
            for notice in stale_notices(variants, seen) if options.use_known else ():
                tell(notice)
            for notice in _engine_notices(engine):
                tell(notice)
        except KeyboardInterrupt:
            code, interrupted = exit_codes.INTERRUPTED, True
        finally:
            # The processes go first: reports may take a moment, and nothing should run on meanwhile.
            engine.close()
            if interrupts.noted():
                code, interrupted = exit_codes.INTERRUPTED, True
            reports.handle(RunFinished(code, round(time.monotonic() - begun, 3), interrupted))
            failed = reports.close()
            history.update()
            lock.close()
            interrupts.noted()  # too late: the run has ended, and its log says how
    if arguments.diagnose and not interrupted:
        from runner.cli.diagnose import diagnose_run

        diagnose_run(arguments, chosen, seen, folder)
    return exit_codes.INTERNAL if failed and code in (exit_codes.OK, exit_codes.FAILED) else code


def _announce(
    begin: RunStarted, chosen: Sequence[Planned], past: Past | None, reports: Reports, tell: Callable[[Event], None]
) -> dict[history.Key, VariantFinished]:
    """Say what is planned, so that every report knows each variant before anything runs; the verdicts that stand already."""
    announced: set[history.Key] = set()
    finished: dict[history.Key, VariantFinished] = {}
    if past is None:
        tell(begin)
    else:
        events = settled(past.events)
        reports.replay([event for event in events if not isinstance(event, RunFinished)])
        announced = {(e.id, e.torch) for e in events if isinstance(e, VariantPlanned)}
        finished = {(e.id, e.torch): e for e in events if isinstance(e, VariantFinished)}
        tell(RunResumed(started_of(events).run, _now(), len(finished)))
    for one in chosen:
        if history.key_of(one) not in announced:
            tell(planned_event(one))
    return finished


def _selected(
    arguments: argparse.Namespace, chosen: list[Planned], known: history.History
) -> tuple[list[Planned], str]:
    """What ``--shard`` and ``--lf`` leave, and a remark. Raises UsageError when nothing is left."""
    if arguments.shard:
        seconds = None
        if arguments.durations:
            seconds = history.seconds_of(read_events(arguments.durations))
        chosen = shards.chosen(chosen, arguments.shard, seconds)
    if not arguments.last_failed:
        return chosen, ""
    red = [one for one in chosen if (last := known.get(history.key_of(one))) is not None and last.red]
    if red:
        return red, f"--lf: {len(red)} of {len(chosen)} variants, which failed the last time"
    return chosen, "--lf: nothing here failed the last time, so all of it runs"


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    """Raises UsageError for options that undo each other."""
    for wanted, why in (
        (arguments.stress > 1, "--stress runs everything"),
        (arguments.kernel_cache == "private", "--kernel-cache private starts from nothing"),
        (arguments.engine != "local", f"results of --engine {arguments.engine} are not kept"),
    ):
        if arguments.cached and wanted:
            raise UsageError(f"--cached takes what earlier runs have found, and {why}: leave one of them out")
    if arguments.address and arguments.engine != "ray":
        raise UsageError("--address names a Ray cluster: add --engine ray")
    if arguments.durations and not arguments.shard:
        raise UsageError("--durations says how to cut shards: add --shard M/N")


def _engine_notices(engine: object) -> list[Notice]:
    """What a person should know of the engine after a run."""
    texts: list[str] = [*getattr(engine, "notices", list)()]
    return [Notice(text) for text in texts]


def _order(arguments: argparse.Namespace) -> str:
    return "failed-first" if arguments.failed_first and arguments.order == "plan" else str(arguments.order)


def _engine(
    arguments: argparse.Namespace, environments: Sequence[Environment], variants: Sequence[Variant], folder: Path
) -> _Closable:
    pythons = {e.key: e.python for e in environments}
    warm = {e.key: warmth(variants) for e in environments}
    if arguments.engine == "ray":
        from runner.engine.cluster.engine import RayEngine

        made: _Closable = RayEngine(
            pythons,
            # On a cluster as many at once as it has room for, unless somebody says how many.
            None if arguments.address and not arguments.jobs_given else arguments.jobs,
            address=arguments.address,
            gpus=any(v.device.startswith("cuda") for v in variants),
            warm=warm,
            log_folder=folder / "logs",
            kernel_cache=arguments.kernel_cache,
            expected={e.key: e.build for e in environments},
        )
    else:
        from runner.engine.local import LocalEngine

        made = LocalEngine(
            pythons,
            arguments.jobs,
            warm=warm,
            log_folder=folder / "logs",
            kernel_cache=arguments.kernel_cache,
        )
    if not arguments.cached:
        return made
    from runner.engine.cached import CachedEngine
    from runner.engine.fingerprint import take_fingerprints

    by_python = take_fingerprints(pythons.values())
    fingerprints = {key: by_python[python] for key, python in pythons.items()}
    return CachedEngine(made, Path(FOLDER, "results"), fingerprints, folder.name)


def _options(
    arguments: argparse.Namespace, loaded: Loaded, environments: Sequence[Environment], begun: float, slots: int
) -> Options:
    return Options(
        use_known=not arguments.no_known,
        max_fail=1 if arguments.exitfirst else arguments.max_fail,
        retries=arguments.retries,
        stress=arguments.stress,
        isolation=arguments.isolation,
        confirm=arguments.confirm,
        deadline=begun + arguments.budget if arguments.budget else None,
        slow=arguments.slow,
        imports=tuple(arguments.imports),
        paths=worker_paths(arguments),
        slots=slots,
        seed=arguments.seed,
        files={suite.name: suite.file for suite in loaded.suites},
        default_python=environments[0].python if not arguments.python else "",
        flags=_flags(arguments),
        names_backend=bool(arguments.backend),
        names_device=bool(arguments.device),
        limits=Limits.from_environment().with_overrides(arguments.limit),
    )


def report_again(arguments: argparse.Namespace) -> int:
    """``runner report``: the same consumers, fed from a journal."""
    events = read_events(arguments.run)
    if arguments.junit:
        try:
            text = render_junit(events, arguments.junit_dialect)
        except ValueError as error:  # two variants whose testcases would have one name
            raise UsageError(f"--junit {arguments.junit}: this log makes no report: {error}") from None
        if arguments.junit == "-":
            console.output(text)
            return exit_codes.OK
        outputs.write("--junit", arguments.junit, text)
    reporter = Reporter(whole=not sys.stdout.isatty())
    for event in events:
        reporter.handle(event)
    last = events[-1]
    if not isinstance(last, RunFinished):
        reporter.handle(RunFinished(exit_codes.INTERRUPTED, 0.0, interrupted=True))
    reporter.close()
    return exit_codes.OK


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _started(
    arguments: argparse.Namespace,
    words: Sequence[str],
    folder: Path,
    environments: Sequence[Environment],
    full: bool,
    digest: str,
    planned: int,
    total: int,
) -> RunStarted:
    start = RunStarted(
        run=folder.name,
        version=__version__,
        argv=("runner", *words),
        started=_now(),
        host=platform.node(),
        folder=str(folder),
        environments=tuple(
            {"python": e.python, "torch": e.torch, "build": e.build, "version": e.version} for e in environments
        ),
        full=full,
        cwd=os.getcwd(),
        plan=digest,
        shard=str(arguments.shard or ""),
        planned=planned,
        total=total,
        engine=arguments.engine,
    )
    return replace(start, signature=signature_of(start))


def _flags(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What a command that reproduces one variant must repeat."""
    flags = ["--allow-python"] * arguments.allow_python + ["--no-known"] * arguments.no_known
    flags += ["--seed", str(arguments.seed)] if arguments.seed else []
    for name in arguments.imports:
        flags += ["--import", name]
    for limit in arguments.limit:
        flags += ["--limit", limit]
    return tuple(flags)


def _warnings(loaded: Loaded) -> str:
    count = len(loaded.diagnostics) - len(loaded.errors)
    return f"{count} warning{'s' if count > 1 else ''} about these files; runner validate shows them" if count else ""
