"""``runner run``: variants with every report, in a folder of their own."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner import console, exit_codes, interrupts, quote
from runner.cases.limits import show_size
from runner.cli import outputs
from runner.cli.arguments import (
    EXAMPLES,
    add_environment,
    add_junit,
    add_outputs,
    add_paths,
    add_pytest_jobs,
    add_selection,
    add_settings,
    add_verbose,
    set_epilog,
    settings_of,
)
from runner.cli.variants import run_valid
from runner.engine.home import Home
from runner.exit_codes import UsageError
from runner.ledger.review import stale_notices
from runner.record import lock
from runner.record.events import Event, Key, Notice, RunFinished
from runner.record.keep import USUAL, VARIABLE, Keep, from_environment, parse
from runner.record.store import make_latest, new_folder, settled, started_of
from runner.report.handlers import EndFile, Options, Reports
from runner.report.reporters import built_in
from runner.report.terminal import Reporter
from runner.session import history
from runner.session.collect import Loaded
from runner.session.prune import Pruned, prune
from runner.session.run import plan
from runner.session.run import run as run_plan
from runner.session.settings import RunSettings
from runner.text import plural

if TYPE_CHECKING:
    from runner.report.site.declared import Declared


@dataclass(frozen=True, slots=True)
class Past:
    """A run that is taken up again: its folder and its events so far."""

    folder: Path
    events: list[Event]


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner run`` takes."""
    parser.description = (
        "Run every variant in a process of its own and compare it with eager PyTorch. A folder means its suites."
    )
    set_epilog(parser, EXAMPLES)
    add_paths(parser)
    add_selection(parser)
    add_environment(parser)
    add_pytest_jobs(parser)
    add_settings(parser, "seed", "no_known")
    add_settings(
        parser.add_argument_group("what runs, and when"),
        "exitfirst", "max_fail", "last_failed", "failed_first", "order", "retries", "stress", "confirm", "shard", "durations",
        "budget", "cached", "recompile", "fail_on_skip",
    )  # fmt: skip
    add_settings(parser.add_argument_group("where it runs"), "isolation", "kernel_cache", "engine", "address")
    reports = parser.add_argument_group("reports")
    reports.add_argument("--diagnose", action="store_true",
                         help="then say of each FAIL and ERROR what is to blame, as runner diagnose does")  # fmt: skip
    add_junit(reports, "JUnit XML here, besides the one in the run's folder",
              "extended adds file, line and properties to testcases; strict passes junit-10.xsd")  # fmt: skip
    reports.add_argument(
        "--events", metavar="FILE", help="the event log (JSON lines) here, besides the one in the run's folder"
    )
    add_outputs(reports)
    add_verbose(reports)
    add_settings(reports, "slow", "coverage", "coverage_lines")
    reports.add_argument(
        "--keep", metavar="RULE", type=_rule,
        help=f"of the runs kept here; older ones are removed at the end: '{USUAL}' (default), '50 runs', '2 GiB' or all; "
        f"{VARIABLE} in the environment changes the default",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """``runner run``. torch is imported while files are read: what was typed is to run, and nothing else can name a Python."""
    with early_home(settings_of(arguments)) as home:
        return run_valid(arguments, lambda loaded: run_variants(arguments, loaded, None, None, home))


def run_again(arguments: argparse.Namespace, only: frozenset[Key] | None = None, past: Past | None = None) -> int:
    """Run, limited to ``only``, or going on with ``past``; broken cases do not keep valid ones from running.

    At the end say where what was printed holds, if the shell that ``arguments`` name is in another folder.
    """
    code = run_valid(arguments, lambda loaded: run_variants(arguments, loaded, only, past))
    if (here := os.getcwd()) != arguments.shell:
        console.message(f"runner: the paths and commands above hold in another folder: cd {quote.shell_word(here)}")
    return code


@contextlib.contextmanager
def early_home(settings: RunSettings) -> Iterator[Home | None]:
    """Let torch be imported while files are read, unless stored results or a cluster may do without."""
    if settings.cached or settings.engine != "local":
        yield None
        return
    with Home() as home:
        home.prepare(settings.python or [sys.executable])
        yield home


def run_variants(
    arguments: argparse.Namespace,
    loaded: Loaded,
    only: frozenset[Key] | None,
    past: Past | None,
    home: Home | None = None,
) -> int:
    """Run the selected variants, with every report; return the exit code.

    Raises:
        UsageError: among others when the files say something else than they did for ``past``.
    """
    with contextlib.ExitStack() as holder:
        return _run_variants(arguments, loaded, only, past, home, holder)


def _run_variants(
    arguments: argparse.Namespace,
    loaded: Loaded,
    only: frozenset[Key] | None,
    past: Past | None,
    home: Home | None,
    holder: contextlib.ExitStack,
) -> int:
    """Do it. ``holder`` gets the lock of a new run's folder, which lasts until all is written."""
    settings, chosen = settings_of(arguments), outputs.reporters_of(arguments, "events", "junit")
    keep = arguments.keep or from_environment()
    events = past.events if past else []
    planned = plan(loaded, settings, paths=arguments.paths, only=only, past=events)
    if past is not None and started_of(events).plan != planned.digest:
        raise UsageError(f"run {past.folder.name} cannot go on: its cases, or the torch under test, have changed since; "
                         "runner rerun --failed runs what has no good verdict in it")  # fmt: skip
    for option, path in outputs.event_logs(arguments):
        holder.enter_context(lock.lock_file(path, option))
    folder, warning = (past.folder, "") if past else new_folder()
    if not past:  # resume holds it already
        holder.enter_context(lock.lock(folder))
    received: list[Event] = [*events]
    end = RunFinished(exit_codes.INTERNAL, 0.0)  # unless the run says otherwise
    complete = False
    with interrupts.held():  # a signal is looked for between two steps, so that the run always comes to its end below
        stamp = {"plan": planned.digest, "shard": str(settings.shard or "")}
        options = Options(
            dialect=arguments.junit_dialect, stamp={key: text for key, text in stamp.items() if text},
            again=past is not None, folder=folder, declared=lambda _: _declared(loaded),
        )  # fmt: skip
        own = [built_in("events", folder / "events.jsonl"), built_in("junit", folder / "junit.xml")]
        terminal = Reporter(
            slow=settings.slow, verbose=arguments.detail == "verbose", quiet=arguments.detail == "quiet",
            earlier=history.seconds_by_key,
        )  # fmt: skip
        reports = Reports(terminal, [*own, *chosen], options)
        pages = [file for file in reports.files if isinstance(file, EndFile) and file.option == "--html"]

        def tick(running: list[tuple[str, float, str]]) -> None:
            reports.tick(running)
            try:
                interrupts.check()
            except KeyboardInterrupt:
                reports.reporter.clear()  # the processes take a moment to end, and a third signal leaves no time
                raise

        def tell(event: Event) -> None:
            received.append(event)
            reports.handle(event)

        stream = run_plan(planned, settings, folder=folder, argv=arguments.words, past=events, tick=tick, home=home)
        try:
            reports.replay([event for event in settled(events) if not isinstance(event, RunFinished)])
            for number, event in enumerate(stream):
                if isinstance(event, RunFinished):
                    end, complete = event, True
                    notices = () if event.interrupted or settings.no_known else stale_notices(loaded.variants, received)
                    for notice in notices:
                        tell(notice)
                tell(event)
                if number == 0:
                    make_latest(folder)
                    if warning:
                        tell(Notice(warning))
        finally:
            stream.close()
            if not complete:
                reports.handle(end)
            failed = reports.close()
            history.update()
            interrupts.noted()  # too late: the run has ended, and its log says how
    if arguments.diagnose and not end.interrupted:
        from runner.cli.diagnose import diagnose_run

        diagnose_run(settings, planned.planned, received, folder, draw=bool(pages))
        for file in pages:
            file.write()  # once more, with the causes
    pruned = prune(keep, folder)
    if arguments.detail == "verbose" and (pruned.names or not pruned.enough):
        console.message(f"runner: {_pruned_words(keep, pruned)}")
    broken = failed and end.exit_code in (exit_codes.OK, exit_codes.FAILED)
    return exit_codes.INTERNAL if broken else end.exit_code


def _rule(text: str) -> Keep:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pruned_words(keep: Keep, pruned: Pruned) -> str:
    """Say which runs were removed, and why more than the rule allows stay."""
    count, names = len(pruned.names), pruned.names
    removed = f"removed {plural(count, 'old run')} ({show_size(pruned.size)})" if names else "removed no old run"
    if names:
        removed += f": {names[0]}" + (f" to {names[-1]}" if count > 1 else "")
    stays = "" if pruned.enough else "; more stay: unfinished, in use, or the last red ones of a suite"
    return f"{removed}; kept are {keep} (--keep){stays}"


def _declared(loaded: Loaded) -> Declared:
    from runner.report.site.declared import Declared

    return Declared.of(loaded.variants)
