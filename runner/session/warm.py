"""Runs one after another in processes that stay warm: torch is imported, and its compilers are prepared, once.

A process is kept as long as nothing has changed that an answer depends on beside the job. That is the fingerprint of
its interpreter (``runner/engine/fingerprint.py``), the folders of compiled code, and how far its servers warm up. The
fingerprint is taken before a server starts, and once more before each run. What was imported in between cannot differ
from it unnoticed. Code of a person's own is imported by the process of a job alone, which ends with the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from runner.engine.fingerprint import Fingerprint, take_fingerprints
from runner.engine.local import LocalEngine
from runner.engine.servers import Home
from runner.exit_codes import INTERNAL
from runner.record.events import Event, Notice, RunFinished
from runner.session.plan import EVERY, Sample, warmth
from runner.session.run import Plan, Ticker, WarmEngine, open_engine, run
from runner.session.settings import RunSettings

_Identity = tuple[tuple[str, str, str, str], ...]
"""Of each environment its key, its interpreter, the digest of its fingerprint, and how far its servers warm up."""


@dataclass(frozen=True, slots=True)
class _Processes:
    """What is warm: an engine in its home, and what it was started for."""

    identity: _Identity
    home: Home
    engine: LocalEngine


class WarmSession(contextlib.AbstractContextManager["WarmSession"]):
    """Runs plans on one engine of this machine. Leaving it ends all processes.

    ``starts`` counts how often the processes had to start.
    """

    def __init__(self, settings: RunSettings) -> None:
        """Start nothing yet."""
        self.settings = settings
        self.starts = 0
        self._sample = Sample(settings.seed, 2 * EVERY)
        self._processes: _Processes | None = None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(
        self,
        planned: Plan,
        fingerprints: Mapping[str, Fingerprint],
        past: Sequence[Event] = (),
        tick: Ticker | None = None,
    ) -> Generator[Event, None, None]:
        """Run a plan as ``runner.session.run.run`` does. After an error of the harness the next run starts anew.

        Args:
            planned: all variants; those with a verdict in ``past`` do not run.
            fingerprints: of its environments, taken since the files were read.
            past: events of earlier runs whose verdicts still hold, the start of a run first.
            tick: as for ``runner.session.run.run``.

        Raises:
            UsageError, InputError, Exception: as ``runner.session.run.run`` does; no temporary folder can be made.
        """
        gaps = {fingerprint.gaps for fingerprint in fingerprints.values()} - {""}
        if gaps:
            self.close()
            yield Notice(f"processes start anew for each run, since nobody can tell what changes: {'; '.join(gaps)}")
        engine = self._engine(planned, fingerprints)
        code = INTERNAL
        try:
            for event in run(
                planned, self.settings, past=past, tick=tick, warm=WarmEngine(engine, fingerprints, self._sample)
            ):
                code = event.exit_code if isinstance(event, RunFinished) else code
                yield event
        finally:
            if code == INTERNAL:
                self.close()

    def close(self) -> None:
        """End all processes. Can be called twice."""
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.engine.close()

    def _engine(self, planned: Plan, fingerprints: Mapping[str, Fingerprint]) -> LocalEngine:
        """Return the warm engine, or a new one where that no longer fits."""
        variants = [item.variant for item in planned.planned]
        identity = tuple((e.key, e.python, fingerprints[e.key].digest, warmth(variants)) for e in planned.environments)
        processes = self._processes
        if processes is not None:
            home = processes.home
            if processes.identity == identity and home.caches.is_whole() and not home.damage():
                processes.engine.dismiss_foreign()
                return processes.engine
            self.close()
        home = Home()
        engine = open_engine(self.settings, planned, None, home)
        assert isinstance(engine, LocalEngine)
        self._processes = _Processes(identity, home, engine)
        self.starts += 1
        return engine


def fingerprints_of(planned: Plan) -> dict[str, Fingerprint]:
    """Return the fingerprint of each environment of a plan, by its key."""
    taken = take_fingerprints(dict.fromkeys(environment.python for environment in planned.environments))
    return {environment.key: taken[environment.python] for environment in planned.environments}
