"""Around a session: environments, the run's folder, reports, interruption."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from runner import __version__, exits
from runner.engine.events import Event, Notice, RunFinished, RunStarted
from runner.engine.journal import Journal
from runner.engine.journal import read as read_journal
from runner.engine.local import LocalEngine
from runner.engine.process import find_python, probe
from runner.exits import UsageError
from runner.ledger import stale_notices
from runner.load import Loaded, names_nodes
from runner.plan import Environment, plan, warmth
from runner.report.junit import JUnitFile
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter
from runner.session import Options, Session
from runner.spec.limits import Limits
from runner.spec.model import Variant

FOLDER = ".runner"
"""Where runs are kept, in the current directory, as pytest keeps its cache."""


def run_variants(
    arguments: argparse.Namespace, words: Sequence[str], loaded: Loaded, variants: Sequence[Variant]
) -> int:
    """Run them, with every report; the exit code."""
    environments = find_environments(arguments.python)
    with _folder() as (folder, warning):
        reports = _Reports.open(arguments, folder)
        begun = time.monotonic()
        code, interrupted = exits.INTERNAL, False
        planned = plan(variants, environments)
        engine = LocalEngine(
            {e.key: e.python for e in environments},
            arguments.jobs,
            warm={e.key: warmth(variants) for e in environments},
            log_folder=folder / "logs",
        )
        options = Options(
            use_known=not arguments.no_known,
            fail_fast=arguments.exitfirst,
            imports=tuple(arguments.imports),
            paths=worker_paths(arguments),
            slots=arguments.jobs,
            seed=arguments.seed,
            files={suite.name: suite.file for suite in loaded.suites},
            default_python=environments[0].python if not arguments.python else "",
            flags=_flags(arguments),
            names_backend=bool(arguments.backend),
            names_device=bool(arguments.device),
            limits=Limits.from_environment().with_overrides(arguments.limit),
        )
        seen: list[Event] = []
        session = Session(planned, engine, [reports.handle, seen.append], options, reports.tick)
        full = not (arguments.select or arguments.backend or arguments.device or names_nodes(arguments.paths))
        begin = _started(words, folder, environments, full)
        seen.append(begin)
        reports.handle(begin)
        try:
            session.announce()
            for text in (warning, _warnings(loaded)):
                if text:
                    reports.handle(Notice(text, "info" if text is not warning else "warning"))
            code = session.run()
            for notice in stale_notices(variants, seen) if options.use_known else ():
                reports.handle(notice)
        except KeyboardInterrupt:
            code, interrupted = exits.INTERRUPTED, True
        finally:
            # The processes go first: reports may take a moment, and nothing should run on meanwhile.
            engine.close()
            reports.handle(RunFinished(code, round(time.monotonic() - begun, 3), interrupted))
            failed = reports.close()
    return exits.INTERNAL if failed and code in (exits.OK, exits.FAILED) else code


def find_environments(pythons: Sequence[str]) -> list[Environment]:
    """The interpreters of ``--python``, or this one. Raises UsageError for one that cannot serve."""
    found: list[Environment] = []
    for number, python in enumerate(pythons or [sys.executable]):
        facts = probe(python)
        if "error" in facts:
            hint = "" if pythons else "; give one that has torch with --python PATH"
            raise UsageError(f"--python {python}: {facts['error']}{hint}" if pythons else facts["error"] + hint)
        path = find_python(python) or python
        same = [e for e in found if e.torch == facts["torch"]]
        if any(e.python == path for e in same):
            continue
        # one name a column: the build tells two of one version apart
        shown = facts["torch"] if not same else f"{facts['build']} ({python})"
        found.append(Environment(str(number), path, shown, facts["build"], facts["python"]))
    return found


def has_latest() -> bool:
    """Whether a run is kept here."""
    return Path(FOLDER, "latest", "events.jsonl").is_file()


def read_events(run: str) -> list[Event]:
    """The events of a run: its folder, its event log, or ``latest``. Raises UsageError."""
    path = Path(FOLDER, "latest") if run == "latest" else Path(run)
    journal = path / "events.jsonl" if path.is_dir() else path
    if not journal.is_file():
        raise UsageError(f"no event log at {journal}; a run's folder holds events.jsonl")
    events, unreadable = read_journal(journal)
    if not any(isinstance(e, RunStarted) for e in events):
        raise UsageError(f"{journal} is no event log")
    if unreadable:
        print(f"runner: {unreadable} lines of {journal} could not be read", file=sys.stderr)
    return events


def report_again(arguments: argparse.Namespace) -> int:
    """``runner report``: the same consumers, fed from a journal."""
    events = read_events(arguments.run)
    if arguments.junit:
        text = render_junit(events, arguments.junit_dialect)
        if arguments.junit == "-":
            print(text)
            return exits.OK
        try:
            Path(arguments.junit).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--junit {arguments.junit}: {error.strerror}") from None
    reporter = Reporter()
    for event in events:
        reporter.handle(event)
    last = events[-1]
    if not isinstance(last, RunFinished):
        reporter.handle(RunFinished(exits.INTERRUPTED, 0.0, interrupted=True))
    reporter.close()
    return exits.OK


@dataclass(slots=True)
class _Reports:
    """Every consumer of a run's events."""

    reporter: Reporter
    junits: list[JUnitFile]
    journals: list[Journal]
    problems: list[str]

    @classmethod
    def open(cls, arguments: argparse.Namespace, folder: Path) -> _Reports:
        problems: list[str] = []
        junits = [folder / "junit.xml"] + ([Path(arguments.junit)] if arguments.junit else [])
        journals = [folder / "events.jsonl"] + ([Path(arguments.events)] if arguments.events else [])
        if arguments.events and os.path.isfile(arguments.events):  # never a device: --events /dev/stdout must stay one
            with contextlib.suppress(OSError):  # the journal will say what is wrong
                os.truncate(arguments.events, 0)  # a log is of one run
        shown = [str(path) for path in (*junits, *journals)]
        reporter = Reporter(reports=shown)
        told: Callable[[str], None] = problems.append
        return cls(
            reporter,
            [JUnitFile(path, arguments.junit_dialect, told) for path in junits],
            [Journal(path, told) for path in journals],
            problems,
        )

    def handle(self, event: Event) -> None:
        for journal in self.journals:
            journal.write(event)
        for junit in self.junits:
            junit.handle(event)
        self.reporter.handle(event)
        self._tell()

    def tick(self, running: list[tuple[str, float, str]]) -> None:
        for junit in self.junits:
            junit.tick()
        self.reporter.tick(running)
        self._tell()

    def _tell(self) -> None:
        while self.problems:
            self.reporter.handle(Notice(self.problems.pop(0)))

    def close(self) -> bool:
        """Whether a report that was asked for is not whole."""
        for junit in self.junits:
            junit.close()
        for journal in self.journals:
            journal.close()
        self._tell()
        self.reporter.close()
        return any(junit.problem for junit in self.junits[1:]) or any(journal.lost for journal in self.journals[1:])


@contextlib.contextmanager
def _folder() -> Iterator[tuple[Path, str]]:
    """A new folder for this run and, when it is not where it should be, why."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-") + str(os.getpid())
    base = Path(FOLDER)
    try:
        folder = base / "runs" / stamp
        (folder / "logs").mkdir(parents=True)
        if not (base / ".gitignore").exists():
            (base / ".gitignore").write_text("*\n")
        latest = base / f"latest.{os.getpid()}"
        latest.symlink_to(Path("runs") / stamp)
        latest.replace(base / "latest")
        why = ""
    except OSError as error:  # full, read-only, somebody's own file of that name
        folder = Path(tempfile.mkdtemp(prefix="runner-"))
        (folder / "logs").mkdir()
        why = f"cannot keep runs here ({error.strerror}); this one is in {folder}"
    yield folder, why  # not inside the try: an error of the run is none of the folder


def worker_paths(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Folders at the end of the workers' path: this one, when the person named a backend or a module to import."""
    named = any(":" in backend for backend in getattr(arguments, "backend", ())) or arguments.imports
    return (os.getcwd(),) if named else ()


def _started(words: Sequence[str], folder: Path, environments: Sequence[Environment], full: bool) -> RunStarted:
    return RunStarted(
        run=folder.name,
        version=__version__,
        argv=("runner", *words),
        started=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
        host=platform.node(),
        folder=str(folder),
        environments=tuple(
            {"python": e.python, "torch": e.torch, "build": e.build, "version": e.version} for e in environments
        ),
        full=full,
    )


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
