"""The cases of suites as parameters of a test: a vendor's own repository checks its backend under pytest.

    @pytest.mark.parametrize("case", runner.conformance("acme:compile_graph", "core.suite.yaml"))
    def test_conformance(case):
        case.check()

All cases that are asked for share one run, in which they run beside each other. It begins with the first question.
"""

from __future__ import annotations

import atexit
import os
import unittest
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace

from runner.cli.project import has_project
from runner.diagnostics import InputError
from runner.record.events import RED, Event, Key, RunFinished, VariantFinished
from runner.report.failure import Disagreement, render_failure
from runner.session.collect import collect
from runner.session.history import key_of
from runner.session.run import Plan, plan, run
from runner.session.settings import RunSettings
from runner.text import in_line

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def conformance(backend: str, suite: Paths, settings: RunSettings | None = None) -> tuple[ConformanceCase, ...]:
    """Return the variants of suites under a backend, as parameters of a test. Nothing runs before one is asked.

    Args:
        backend: a name for ``torch.compile``, or ``package:function``.
        suite: the path of a suite or spec file, of a folder, or several paths, such as a suite and a profile.
        settings: of the run; ``backend`` takes the place of its own.

    Raises:
        PathError: a path names nothing.
        InputError: a file cannot be read.
        UsageError: a setting is wrong, or no such backend.
    """
    paths = [suite] if isinstance(suite, str | os.PathLike) else [*suite]
    settings = replace(settings or RunSettings(no_project=has_project()), backend=(backend,))
    loaded = collect(paths, settings)
    if loaded.errors:
        raise InputError(loaded.errors)
    shared = _SharedRun(plan(loaded, settings), settings)
    several = len(shared.plan.environments) > 1
    return tuple(
        ConformanceCase(
            in_line(item.variant.label + (f" torch {item.environment.torch}" if several else "")), key_of(item), shared
        )
        for item in shared.plan.planned
    )


def note_selection(cases: Sequence[ConformanceCase], is_alone: bool) -> None:
    """Note that these cases alone will be asked about, ``is_alone`` each by a run of its own."""
    for shared in {id(case.run): case.run for case in cases}.values():
        shared.only, shared.is_alone = {case.key for case in cases if case.run is shared}, is_alone


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One variant. ``label`` is its id without the backend."""

    label: str
    key: Key
    run: _SharedRun

    @property
    def __name__(self) -> str:
        """The label: pytest makes the name of a test of it."""
        return self.label

    def check(self) -> VariantFinished:
        """Return the verdict if it is ``PASS`` or ``XFAIL``.

        Raises:
            Disagreement: it is red, with the text of ``runner run``.
            unittest.SkipTest: it is ``SKIP``, with the reason. pytest skips the test.
            RuntimeError: the run has ended without it.
        """
        __tracebackhide__ = True  # for pytest: the text says what failed
        event = self.run.verdict_of(self.key)
        if event.verdict in RED:
            raise Disagreement(f"{event.verdict} {in_line(event.id)}\n{render_failure(event)}")
        if event.verdict == "SKIP":
            raise unittest.SkipTest(event.reason)
        return event


class _SharedRun:
    """The run of all variants of one call. ``only`` are the ones that somebody will ask about; None where that is
    unknown.

    Where ``is_alone``, each has a run of its own: other processes ask about the others.
    """

    def __init__(self, whole: Plan, settings: RunSettings) -> None:
        self.plan, self.settings = whole, settings
        self.only: Collection[Key] | None = None
        self.is_alone = False
        self._events: Generator[Event, None, None] | None = None
        self._verdicts: dict[Key, VariantFinished] = {}

    def verdict_of(self, key: Key) -> VariantFinished:
        if key not in self._verdicts and (self._events is None or self.is_alone):
            self._begin({key} if self.is_alone else self.only)
        while key not in self._verdicts and self._events is not None:
            self._take(next(self._events, None))
        if key not in self._verdicts:
            raise RuntimeError(f"the run has ended without a verdict of {in_line(key[0])}")
        return self._verdicts[key]

    def _begin(self, keys: Collection[Key] | None) -> None:
        kept = [item for item in self.plan.planned if keys is None or key_of(item) in keys]
        self._events = run(replace(self.plan, planned=tuple(kept), whole=keys is None), self.settings)
        atexit.register(self._events.close)

    def _take(self, event: Event | None) -> None:
        if event is None:
            self._events = None
        elif isinstance(event, VariantFinished):
            self._verdicts[event.key] = event
        elif isinstance(event, RunFinished) and event.interrupted:
            raise KeyboardInterrupt
