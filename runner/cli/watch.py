"""``runner watch``: on each save validate the files, and run the variants that mean something else than before."""

from __future__ import annotations

import argparse
import gc
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from runner import console, interrupts
from runner.cli.arguments import DETAIL, ENVIRONMENT, PATHS, SELECTION, command, setting, settings_of
from runner.cli.variants import load_variants, refuse, select_variants, tell, tell_count
from runner.diagnostics import Diagnostic, InputError, shown_path
from runner.engine.fingerprint import Fingerprint
from runner.exit_codes import INTERNAL, INTERRUPTED, UsageError
from runner.record.events import (
    RED,
    Event,
    Key,
    Notice,
    RunFinished,
    RunResumed,
    RunStarted,
    VariantFinished,
)
from runner.report.terminal import WORDS, Reporter
from runner.session.collect import Loaded
from runner.session.history import key_of
from runner.session.plan import planned_event
from runner.session.run import Plan, StopRun, plan
from runner.session.settings import RunSettings
from runner.session.warm import WarmSession, fingerprints_of
from runner.session.watched import Watcher, contents_of, files_of, find_code, folders_of
from runner.text import plural

_NAMED = 5
"""Files, or red variants, that a line names."""


@command(
    "Run cases, then on each save validate the files and run what has changed, in processes that stay warm. "
    "Ctrl-C ends it.",
    *PATHS,
    SELECTION,
    ENVIRONMENT,
    setting("seed", "no_known", "ledger", "values", "confirm"),
    *DETAIL,
    epilog="""\
A variant runs again when its case, a file of its case, its backend, code that
it names or torch has changed. Nothing is kept in .runner; runner run does that.

example: runner watch first.spec.yaml --backend inductor
""",
)
def run(arguments: argparse.Namespace) -> int:
    """Run until a signal comes, or nobody reads what is printed. What is wrong with a file ends nothing."""
    settings = settings_of(arguments)
    with WarmSession(settings) as session:
        return Watch(arguments, settings, session).run()


@dataclass(slots=True)
class Watch:
    """What is known of the variants so far: the last verdict of each, and the digest of what it depended on."""

    arguments: argparse.Namespace
    settings: RunSettings
    session: WarmSession
    watcher: Watcher = field(default_factory=Watcher)
    _started: RunStarted | None = None
    _contents: dict[Key, str] = field(default_factory=dict)
    _verdicts: dict[Key, VariantFinished] = field(default_factory=dict)
    _diagnostics: Sequence[Diagnostic] = ()  # of the last reading
    _notices: set[str] = field(default_factory=set)  # that were told

    def run(self) -> int:
        """Run everything, then what changes.

        Raises:
            KeyboardInterrupt: a signal came.
            UsageError: something typed is wrong, before anything has run.
        """
        changes: set[str] = set()
        while True:
            try:
                with interrupts.held():  # so that no line is cut off
                    if not self._look(changes):
                        return INTERRUPTED
            except InputError as error:
                self.watcher.add({os.path.abspath(diagnostic.span.file) for diagnostic in error.diagnostics}, ())
                self._diagnostics = error.diagnostics
                refuse(error.diagnostics)
            except UsageError as error:
                if not changes:
                    raise
                console.message(f"runner: {error}")
            if not changes:
                console.message(f"runner: watching {plural(self.watcher.count, 'file')}; Ctrl-C ends it")
            gc.unfreeze()  # what was read does not stay to the end of this command
            gc.collect()
            changes = self.watcher.wait()

    def _look(self, changes: Collection[str]) -> bool:
        """Read the files, and run what has changed. Return whether anybody still reads what is printed."""
        loaded = self._load()
        self._tell(loaded.diagnostics, changes)
        selected = select_variants(self.arguments, loaded, empty=bool(loaded.errors or changes))
        if not selected.variants:
            return True
        planned = plan(selected, self.settings, paths=self.arguments.paths)
        code = find_code(planned, self.settings)
        self.watcher.add(code.edited, folders_of(code.edited, ()))
        fingerprints = fingerprints_of(planned)
        contents = contents_of(planned, fingerprints, code)
        changed = {key for key, content in contents.items() if self._contents.get(key) != content}
        reporter = Reporter(
            verbose=self.arguments.detail == "verbose", quiet=self.arguments.detail == "quiet", table=False
        )
        if changes and (changed or not all(map(os.path.isdir, changes))):
            reporter.handle(Notice(_change_text(changes, len(changed), len(contents)), "info"))
        if changed:
            for key in changed:
                self._contents.pop(key, None)
                self._verdicts.pop(key, None)
            self._run(planned, fingerprints, contents, reporter)
            if len(changed) < len(contents):
                reporter.handle(Notice(self._total_text(contents, changed), "info"))
        reporter.close()
        return not reporter.is_broken

    def _load(self) -> Loaded:
        """Read the files until each was looked at before it was read. Raises UsageError and InputError."""
        paths = self.arguments.paths
        while True:
            loaded = load_variants(self.arguments)
            files = files_of(loaded, paths, self.settings)
            if not self.watcher.add(files, folders_of(files, paths)):
                return loaded

    def _tell(self, diagnostics: Sequence[Diagnostic], changes: Collection[str]) -> None:
        """Print what is wrong with files that have changed, and what was not told before."""
        told, self._diagnostics = self._diagnostics, diagnostics
        tell(
            diagnostic
            for diagnostic in diagnostics
            if diagnostic not in told or os.path.abspath(diagnostic.span.file) in changes
        )
        if any(diagnostic.severity == "error" for diagnostic in diagnostics):
            tell_count(diagnostics)

    def _run(
        self, planned: Plan, fingerprints: Mapping[str, Fingerprint], contents: Mapping[Key, str], reporter: Reporter
    ) -> None:
        """Run what has no verdict, until a file changes. Raises KeyboardInterrupt at a signal."""
        is_stopped = False

        def tick(running: list[tuple[str, float, str]]) -> None:
            nonlocal is_stopped
            reporter.tick(running)
            interrupts.check()
            is_stopped = self.watcher.has_changes()
            if is_stopped:
                raise StopRun

        for event in self.session.run(planned, fingerprints, self._past(planned), tick):
            match event:
                case RunStarted():
                    self._started = event
                case VariantFinished():
                    self._verdicts[event.key], self._contents[event.key] = event, contents[event.key]
                case RunFinished(exit_code=code) if code == INTERNAL:
                    self._forget_red(contents)
            if is_stopped and isinstance(event, RunFinished):
                reporter.handle(Notice("a file has changed: what runs is ended", "info"))
            elif not (isinstance(event, RunResumed) or (isinstance(event, Notice) and event.message in self._notices)):
                reporter.handle(event)
            if isinstance(event, Notice):
                self._notices.add(event.message)
            elif isinstance(event, RunFinished) and event.interrupted and not is_stopped:
                raise KeyboardInterrupt

    def _past(self, planned: Plan) -> list[Event]:
        """Return the events of the variants whose verdicts still hold; none before the first run."""
        if self._started is None:
            return []
        kept = [item for item in planned.planned if key_of(item) in self._verdicts]
        return [self._started, *map(planned_event, kept), *(self._verdicts[key_of(each)] for each in kept)]

    def _forget_red(self, contents: Collection[Key]) -> None:
        """Let red variants run with the next change: where the harness failed it may be to blame."""
        for key in [key for key in contents if key in self._verdicts and self._verdicts[key].verdict in RED]:
            del self._contents[key]

    def _total_text(self, contents: Collection[Key], changed: Collection[Key]) -> str:
        """Say how many of all variants have which verdict, and which of the others are red."""
        verdicts = {key: self._verdicts[key].verdict for key in contents if key in self._verdicts}
        counts = Counter(WORDS.get(verdict, verdict.lower()) for verdict in verdicts.values())
        red = [key[0] for key, verdict in verdicts.items() if verdict in RED and key not in changed]
        more = f", and {len(red) - _NAMED} more" if len(red) > _NAMED else ""
        still = f"; still red: {', '.join(red[:_NAMED])}{more}" if red else ""
        return f"of all {len(contents)}: {', '.join(f'{count} {word}' for word, count in counts.most_common())}{still}"


def _change_text(changes: Collection[str], count: int, total: int) -> str:
    names = sorted(map(shown_path, changes))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"changed: {', '.join(names[:_NAMED])}{more}; {count} of {plural(total, 'variant')} to run"
