"""``runner run``: variants with every report, in a folder of their own; ``resume`` and ``rerun``, which take up a run.

The command line that began a run stands in its event log. One that this user did not write on this machine is a
stranger's: what is left of its command line is shown and asked about, and the folder is the current one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import console, exit_codes, interrupts, quote
from runner.cases.limits import show_size
from runner.cli import outputs
from runner.cli.affected import narrow
from runner.cli.arguments import (
    DETAIL,
    ENVIRONMENT,
    EXAMPLES,
    HARMLESS,
    OUTPUTS,
    PATHS,
    PYTEST_JOBS,
    SELECTION,
    Parser,
    argument,
    command,
    group,
    junit,
    reader,
    setting,
    settings_of,
)
from runner.cli.breadth import breadth_line
from runner.cli.project import has_project
from runner.cli.variants import run_valid
from runner.engine.servers import Home
from runner.files import entries_below, link_problem
from runner.ledger.review import stale_notices
from runner.record.events import RED, Event, Key, Notice, RunFinished, RunStarted, finished_of, planned_of
from runner.record.signing import why_foreign
from runner.record.store import (
    KEEP_VARIABLE,
    USUAL_KEEP,
    Keep,
    is_kept_here,
    journal_of,
    keep_from_environment,
    lock,
    lock_file,
    make_latest,
    new_folder,
    parse_keep,
    read_log,
    settled,
    started_of,
)
from runner.report.handlers import EndFile, Options, Reports, built_in
from runner.report.terminal import Reporter
from runner.session import history
from runner.session.collect import Loaded
from runner.session.run import Plan, plan
from runner.session.run import run as run_plan
from runner.session.settings import RunSettings
from runner.text import one_line, plural


@dataclass(frozen=True, slots=True)
class Past:
    """A run that is taken up again: its folder and its events so far."""

    folder: Path
    events: list[Event]


@command(
    "Run every variant in a process of its own and compare it with eager PyTorch. A folder means its suites.",
    *PATHS,
    SELECTION,
    ENVIRONMENT,
    PYTEST_JOBS,
    setting("seed", "no_known", "ledger", "values"),
    group(
        "what runs, and when",
        setting(
            "exitfirst",
            "max_fail",
            "last_failed",
            "failed_first",
            "order",
            "retries",
            "stress",
            "confirm",
            "shard",
            "durations",
            "budget",
            "cached",
            "recompile",
            "fail_on_skip",
        ),
        argument(
            "--affected-by",
            metavar="WHAT",
            help="only what a change of the compiler can affect, by a kept run with --coverage-lines: a file with a "
            "diff, - for standard input, FILE:LINES such as torch/_inductor/ir.py:20-30, or FILE",
        ),
    ),
    group("where it runs", setting("isolation", "kernel_cache", "keep_warm", "engine", "address")),
    group(
        "reports",
        argument(
            "--diagnose",
            action="store_true",
            help="then say of each FAIL and ERROR what is to blame, as runner diagnose does",
        ),
        argument(
            "--op-by-op",
            nargs="?",
            choices=("failed", "all"),
            const="all",
            default=None,
            help="then run the operator calls of the cases one by one, as runner ops does; failed: of red cases alone",
        ),
        *junit(
            "JUnit XML here, besides the one in the run's folder",
            "extended adds file, line and properties to testcases; strict passes junit-10.xsd",
        ),
        argument(
            "--events", metavar="FILE", help="the event log (JSON lines) here, besides the one in the run's folder"
        ),
        *OUTPUTS,
        *DETAIL,
        setting("slow", "accuracy", "coverage", "coverage_lines"),
        argument(
            "--keep",
            metavar="RULE",
            type=reader(parse_keep),
            help=f"of the runs kept here: '{USUAL_KEEP}' (default), '50 runs', '2 GiB' or all. "
            f"Older ones are removed at the end. {KEEP_VARIABLE} in the environment changes the default",
        ),
    ),
    epilog=EXAMPLES,
)
def run(arguments: argparse.Namespace) -> int:
    """``runner run``. torch is imported while files are read: what was typed is to run, and nothing else can name a
    Python."""
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
        if not settings.keep_warm:  # else torch may be there already
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
    keep = arguments.keep or keep_from_environment()
    events = past.events if past else []
    if arguments.affected_by and past is None and only is None:  # resume and rerun --failed know what to run
        planned = _affected(arguments, loaded, settings)
    else:
        planned = plan(loaded, settings, paths=arguments.paths, only=only, past=events)
    if past is not None and started_of(events).plan != planned.digest:
        raise exit_codes.UsageError(
            f"run {past.folder.name} cannot go on: its cases, a ledger, or the torch under test, have changed since; "
            "runner rerun --failed runs what has no good verdict in it"
        )
    for option, path in outputs.event_logs(arguments):
        holder.enter_context(lock_file(path, option))
    folder, warning = (past.folder, "") if past else new_folder()
    if not past:  # resume holds it already
        holder.enter_context(lock(folder))
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
    if end.exit_code == exit_codes.OK and arguments.detail != "quiet":
        console.output(breadth_line(planned, settings, received), end="")
    if arguments.op_by_op and not end.interrupted:
        _run_op_by_op(arguments, loaded, received)
        make_latest(folder)  # not the run of the single calls
    pruned = history.prune(keep, folder)
    if arguments.detail == "verbose" and (pruned.names or not pruned.enough):
        console.message(f"runner: {_pruned_words(keep, pruned)}")
    broken = failed and end.exit_code in (exit_codes.OK, exit_codes.FAILED)
    return exit_codes.INTERNAL if broken else end.exit_code


def _affected(arguments: argparse.Namespace, loaded: Loaded, settings: RunSettings) -> Plan:
    """Return the plan of what a change can affect. All shards select alike, so each is cut afterwards."""
    settings.refuse_contradictions()
    everything = plan(loaded, replace(settings, shard=None, durations=None), paths=arguments.paths)
    return narrow(everything, arguments.affected_by, _recording_words(arguments), settings)


def _recording_words(arguments: argparse.Namespace) -> str:
    """Return the command that records lines of the same variants."""
    words = [*arguments.words]
    for number, word in enumerate(words):
        if word == "--affected-by":
            words[number : number + 2] = ["--coverage-lines"]
        elif word.startswith("--affected-by="):
            words[number] = "--coverage-lines"
    return quote.shell_words(["runner", *words] if words[:1] == ["run"] else words)


def _run_op_by_op(arguments: argparse.Namespace, loaded: Loaded, events: Sequence[Event]) -> None:
    """Run the operator calls of the variants, or of those that are red. What comes of it changes no exit code."""
    from runner.cli.op_by_op import op_by_op

    red = {event.id for event in finished_of(events).values() if event.verdict in RED}
    variants = [v for v in loaded.variants if arguments.op_by_op == "all" or v.id in red]
    if variants:
        try:
            op_by_op(arguments, variants, run_words)
        except exit_codes.UsageError as error:
            console.message(f"runner: --op-by-op: {error}")


def run_words(words: list[str]) -> int:
    """Run a command line of ``runner run`` in this process, and return its exit code."""
    parsed = _parsed(run_parser(), words)
    return run_valid(parsed, lambda loaded: run_variants(parsed, loaded, None, None))


def _pruned_words(keep: Keep, pruned: history.Pruned) -> str:
    """Say which runs were removed, and why more than the rule allows stay."""
    removed = "removed no old run"
    if names := pruned.names:
        which = " to ".join(dict.fromkeys((names[0], names[-1])))
        removed = f"removed {plural(len(names), 'old run')} ({show_size(pruned.size)}): {which}"
    stays = "" if pruned.enough else "; more stay: unfinished, in use, or the last red ones of a suite"
    return f"{removed}; kept are {keep} (--keep){stays}"


def _declared(loaded: Loaded) -> Any:
    """Return what the loaded files say, as ``Options.declared`` gives it to pages."""
    from runner.report.site.results import Declared

    return Declared.of(loaded.variants)


_FOREIGN = """\
A log that you did not write on this machine (its signature says so) holds somebody else's command line. It is shown \
and you are asked, or pass --yes. It runs in the current folder, and without options that run code, name files, \
remove runs, leave processes or open connections: --allow-python, --python, --import, --backend PACKAGE:FUNCTION, \
--junit, --events, --html, --report, --limit, --durations, --engine, --address, --keep, --keep-warm. \
What is left out is named.
"""


_RUN = (
    argument(
        "run", nargs="?", default="latest", metavar="RUN", help="a run's folder, its name, its event log, or latest"
    ),
    argument("--yes", action="store_true", help="do not ask about a log that you did not write here"),
)
"""The run to take up."""


def command_line(
    arguments: argparse.Namespace, started: RunStarted, extra_words: Sequence[str], advice: str
) -> argparse.Namespace:
    """Return what a run's command line with ``extra_words`` means; the current folder becomes the run's.

    Raises UsageError, among others when they are somebody else's and nobody agrees to them.
    """
    words = [*started.argv[1:]]
    if words[:1] != ["run"]:
        raise exit_codes.UsageError(
            f"run {one_line(started.run)} was made by {one_line(quote.shell_words(started.argv))}: "
            "only what runner run began can go on"
        )
    parser = run_parser()
    reason = why_foreign(started)
    withheld: list[str] = []
    if reason:
        options = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
        words, withheld = taken_words(words, options)
    cut = words.index("--") if "--" in words else len(words)  # what follows -- are paths
    words = [*words[:cut], *extra_words, *words[cut:]]
    parsed = _parsed(parser, words)  # first: a command line that is wrong needs no question
    parsed.shell = os.getcwd()
    if reason:
        agree(reason, words, withheld, arguments.yes, advice)
    else:
        _go_to(started)
    parsed.no_project |= has_project()  # of which the command line above says nothing: printed commands leave it out
    return parsed


def run_parser() -> Parser:
    """Return the parser of ``runner run``."""
    parser = Parser(prog="runner run")
    run.add(parser)
    parser.set_defaults(command="run")
    return parser


def _parsed(parser: Parser, words: list[str]) -> argparse.Namespace:
    """What a command line means. Raises UsageError, also when it only asks for help."""
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            return parser.parse_args(words[1:], argparse.Namespace(words=words))
    except SystemExit as end:
        reason = text.getvalue().partition("error: ")[2] if end.code else "it asks for help, and runs nothing"
        line = one_line(quote.shell_words(["runner", *words]))
        raise exit_codes.UsageError(f"cannot run {line}: {one_line(reason)}") from None


def _go_to(started: RunStarted) -> None:
    """The folder in which the run began: its paths are relative to it."""
    if not started.cwd or started.cwd == os.getcwd():
        return
    try:
        os.chdir(started.cwd)
    except OSError as error:
        raise exit_codes.UsageError(
            f"run {started.run} began in {started.cwd}, which is out of reach: {error.strerror}"
        ) from None
    console.message(f"runner: in {started.cwd}")


SHOWN = 10_000
"""Characters of a command line that a person can be expected to look at."""


def taken_words(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """The words of a ``runner run`` command line that are taken from a stranger, and those that are left out.

    ``options`` says of each option of ``runner run`` whether it takes a value. Raises UsageError for an unknown option.
    """
    accepted: list[str] = []
    withheld: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--":  # what follows are paths
            accepted += [word, *remaining]
        elif not word.startswith("--"):
            accepted.append(word)
        else:
            name, equals, value = word.partition("=")
            option = _full_name(name, options)
            values = [next(remaining, "")] if options[option] and not equals else []
            # A backend of the form package:function is code to import.
            harmless = option in HARMLESS and not (option == "--backend" and ":" in "".join([value, *values]))
            (accepted if harmless else withheld).extend([word, *values])
    return accepted, withheld


def _full_name(name: str, options: Mapping[str, bool]) -> str:
    """The option that a name or its beginning means. Raises UsageError."""
    names = [name] if name in options else [option for option in options if option.startswith(name)]
    if len(names) != 1:
        raise exit_codes.UsageError(f"its command line has {quote.shell_word(name)}, which is no option of runner run")
    return names[0]


def agree(reason: str, words: Sequence[str], withheld: Sequence[str], yes: bool, advice: str) -> None:
    """Show what is about to run, and go on only when the person says so. ``advice`` says how to add what is left out.

    Raises UsageError when nobody can be asked, or the answer is no.
    """
    command = quote.shell_words(["runner", *words])
    if len(command) > SHOWN:
        raise exit_codes.UsageError(
            f"nothing was run: the command line of this log has {len(command):,} characters, too many to look at"
        )
    console.message(f"runner: this log was not written by you on this machine: {reason}. Its command line:")
    console.message(f"  {command}")
    if withheld:
        console.message(f"left out: {one_line(quote.shell_words(withheld), SHOWN)}; {advice}")
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise exit_codes.UsageError(
            "nothing was run: there is no terminal to ask at; look at the command line above and pass --yes"
        )
    console.message(f"run it in {os.getcwd()}? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise exit_codes.UsageError("nothing was run")


_ENDS = (exit_codes.FAILED, exit_codes.INTERNAL, exit_codes.USAGE, exit_codes.NOTHING)
"""Codes that a complete run may have ended with although no verdict is red: ``--fail-on-skip``, cases with errors, a
defect."""


@command(
    "Run what has no verdict yet, by the command line that began the run, into its folder and reports.",
    *_RUN,
    epilog=f"One process at a time writes to a run's folder.\n\n{_FOREIGN}",
)
def run_resume(arguments: argparse.Namespace) -> int:
    """Run what an interrupted or killed run has no verdict for, into the same folder and reports."""
    folder = _folder_of(journal_of(arguments.run))
    with lock(folder):  # before its log is read: another process may be about to add to it
        log = read_log(str(folder))
        log.demand_whole()
        planned, finished = planned_of(log.events).keys(), finished_of(log.events)
        if finished.keys() - planned:
            raise exit_codes.UsageError(
                f"run {log.started.run} cannot go on: its log lacks the plan of what has a verdict; runner rerun "
                "runs it anew"
            )
        last = log.events[-1]
        whole = len(planned) == log.started.planned
        if whole and planned <= finished.keys() and isinstance(last, RunFinished) and not last.interrupted:
            console.message(f"runner: nothing is left to do in run {log.started.run}; runner report shows it")
            red = any(result.verdict in RED for result in finished.values())
            code = last.exit_code if last.exit_code in _ENDS else exit_codes.OK
            return exit_codes.FAILED if red and code in (exit_codes.OK, exit_codes.NOTHING) else code
        parsed = command_line(arguments, log.started, [], "runner rerun RUN -- OPTION ... takes them")
        if folder.is_relative_to(os.getcwd()):
            folder = folder.relative_to(os.getcwd())
        # Killed while it announced its plan, it has run nothing: then the command line says again what to select.
        return run_again(parsed, frozenset(planned) if whole else None, Past(folder, log.events))


def _folder_of(journal: Path) -> Path:
    """The folder of a run that is to go on. Raises UsageError where it is or holds a link: links may lead anywhere."""
    folder = journal.parent.resolve()
    if journal.name != "events.jsonl":
        raise exit_codes.UsageError(f"{journal} cannot go on: a run goes on in its own folder, in events.jsonl")
    if not is_kept_here(folder) and (problem := link_problem(journal.parent)):
        raise exit_codes.UsageError(f"{journal.parent} cannot go on: {problem}")
    # Before anything is written: an archive may hold a link in place of a file of the run.
    for entry in entries_below(folder):
        if entry.is_symlink():
            raise exit_codes.UsageError(f"{folder} cannot go on: {entry.path} is a link to somewhere else")
    return folder


@command(
    "A new run by the command line of an earlier one. Options after -- are added to it.",
    *_RUN,
    argument("--failed", action="store_true", help="only what has no good verdict in it"),
    epilog=f"example: runner rerun --failed -- --stress 20 -j 1\n\n{_FOREIGN}",
    usage="runner rerun [-h] [--yes] [--failed] [RUN] [-- OPTION ...]",
)
def run_rerun(arguments: argparse.Namespace) -> int:
    """A new run by the same command line; with ``--failed`` of what had no good verdict."""
    log = read_log(arguments.run)
    log.demand_whole()
    only = None
    if arguments.failed:
        finished = finished_of(log.events)
        only = frozenset(key for key in planned_of(log.events) if key not in finished or finished[key].verdict in RED)
        if not only:
            console.message(f"runner: nothing failed in run {log.started.run}")
            return exit_codes.NOTHING
    parsed = command_line(arguments, log.started, arguments.more, "pass them after -- to have them")
    return run_again(parsed, only)
