"""A run as a library has it: collect variants, plan them, and receive every event as it happens.

    settings = RunSettings(backend=("aot_eager",), confirm=False)
    for event in run(plan(collect(["suites/"], settings), settings), settings):
        if isinstance(event, VariantFinished):
            print(event.verdict, event.id)

The command line is one user of these three functions.
"""

from __future__ import annotations

import os
import platform
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from runner import __version__, interrupts
from runner.cases.model import Variant
from runner.diagnostics import InputError
from runner.engine.fingerprint import Fingerprint, take_fingerprints
from runner.engine.kept import Keep
from runner.engine.local import LocalEngine
from runner.engine.messages import ClosableEngine, Engine
from runner.engine.servers import Home
from runner.exit_codes import FAILED, INTERNAL, INTERRUPTED, NOTHING, OK, USAGE, UsageError
from runner.record.events import (
    RED,
    Event,
    Key,
    Notice,
    RunFinished,
    RunResumed,
    RunStarted,
    VariantFinished,
    VariantStarted,
    finished_of,
    planned_of,
)
from runner.record.signing import signature_of
from runner.record.store import FOLDER, read_events, started_of
from runner.session import history, shards
from runner.session.collect import Loaded
from runner.session.held_passes import HeldPasses
from runner.session.nodes import names_nodes
from runner.session.plan import (
    USER_VARIABLES,
    Environment,
    Planned,
    RunContext,
    Sample,
    checked_environments,
    planned_event,
    precision_flags,
    skip_reason,
    warmth,
    worker_paths,
)
from runner.session.plan import plan as planned_pairs
from runner.session.preflight import import_code
from runner.session.scheduler import Scheduler
from runner.session.settings import RunSettings, parse_shard
from runner.session.variant_run import ORDER_DEPENDENT, VariantResult, run_variant
from runner.text import plural

Ticker = Callable[[list[tuple[str, float, str]]], None]


class StopRun(Exception):
    """Raised by ``tick``: the run ends as at Ctrl-C, and the command goes on."""


@dataclass(frozen=True, slots=True)
class WarmEngine:
    """An engine that outlives a run, with what its processes are known by (``runner/session/warm.py``).

    ``sample`` draws passes of living processes over all its runs.
    """

    engine: ClosableEngine
    fingerprints: Mapping[str, Fingerprint]
    sample: Sample


_TURN = 100
"""Variants that are started between two looks at what runs: limits are enforced while we wait."""


class Session:
    """Runs a plan. ``tick`` is called several times a second with what runs now; ``held`` keeps passes back."""

    def __init__(
        self,
        planned: Sequence[Planned],
        engine: Engine,
        context: RunContext,
        tick: Ticker | None = None,
        held: HeldPasses | None = None,
    ) -> None:
        """Start nothing yet."""
        self.engine, self.context, self.tick = engine, context, tick
        self.queue = deque(planned)
        self.held = HeldPasses(planned) if held is None else held
        self.scheduler: Scheduler[VariantResult] = Scheduler(engine)
        self.bad_verdicts = (*RED, "SKIP") if context.settings.fail_on_skip else RED
        self.red = 0
        self.broken = 0
        self.unchecked: set[str] = set()
        self.unfinished = len(self.queue)
        self.late = False  # the deadline passed and something was left

    @property
    def code(self) -> int:
        """pytest's exit code so far: 0, 1 for red verdicts (and SKIP with --fail-on-skip), 3 when the harness failed
        somewhere."""
        return INTERNAL if self.broken else FAILED if self.red else OK

    def events(self) -> Iterator[Event]:
        """Run everything, and yield what happens.

        When the deadline passes, what runs is ended and stays without a verdict: see ``late``.
        """
        # Ahead of the slots, so that none waits for work; unless a failure is to stop what has not begun.
        window = self.context.slots * (3 if self.context.most_failures is None else 1)
        while (self.queue and not self._stopping()) or len(self.scheduler):
            for _ in range(_TURN):
                if not self.queue or len(self.scheduler) >= window or self._stopping():
                    break
                planned = self.queue.popleft()
                yield VariantStarted(planned.variant.id, planned.environment.torch)
                self.scheduler.start(planned.key, run_variant(planned, self.context))
                yield from self._results()
            if len(self.scheduler):
                self.scheduler.wait(0.1)
                yield from self._results()
            if self.tick is not None:
                self.tick([(job.id, seconds, phase) for job, seconds, phase in self.engine.running()])
            if self.context.time_is_up() and (self.queue or len(self.scheduler)):
                self.late = True
                self.scheduler.cancel()
        self.late = self.late or (self.context.time_is_up() and bool(self.queue))

    def _stopping(self) -> bool:
        most = self.context.most_failures
        return (most is not None and self.red >= most) or self.context.time_is_up()

    def _results(self) -> Iterator[Event]:
        for _, result in self.scheduler.results():
            self.broken += len(result.harness_errors)
            for reason in result.harness_errors:
                yield Notice(f"{result.event.id}: the harness failed, not the case:\n{reason}", "error")
            yield from (Notice(absence) for absence in result.unchecked if absence not in self.unchecked)
            self.unchecked.update(result.unchecked)
            self.unfinished -= 1
            for event in self.held.take(result.event):
                self.red += event.verdict in self.bad_verdicts
                yield event


PRECISE = (
    "on CUDA cuDNN and cuBLAS round as the dtype says: no TF32, no sums in half precision; a case's config: can "
    "allow it"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will run.

    Attributes:
        loaded: the suites, and what is wrong with their files.
        environments: the Pythons, in the order of the report's columns.
        planned: the variants of this run, in report order; a shard's alone.
        total: how many variants all shards have together.
        digest: of the whole plan, which shards and resumed runs must share.
        whole: whether nothing was left out by name, expression or shard.
        left_out: what was, each with a version of torch, where a ledger in a file of its own may speak of it.
        remark: why fewer variants than asked for run; empty mostly.
    """

    loaded: Loaded
    environments: tuple[Environment, ...]
    planned: tuple[Planned, ...]
    total: int
    digest: str
    whole: bool
    remark: str = ""
    left_out: tuple[tuple[Variant, str], ...] = ()


def plan(
    loaded: Loaded,
    settings: RunSettings | None = None,
    *,
    paths: Sequence[str] = (),
    only: Collection[Key] | None = None,
    past: Sequence[Event] = (),
) -> Plan:
    """Return the variants under every Python, cut to what the settings ask for.

    Args:
        loaded: as ``collect`` returns it.
        settings: as for ``collect``, and ``python``, ``shard``, ``durations``, ``last_failed``.
        paths: those that were collected: a path with ``::CASE`` makes the plan one of a part.
        only: ids and torch versions to keep; all if None.
        past: the events of a run that goes on: nothing is selected anew.

    Raises:
        UsageError: settings contradict each other, or a Python lacks torch or a module.
        InputError: no Python has a backend that a file names.
    """
    settings = settings or RunSettings()
    environments = checked_environments(settings, loaded.variants)
    settings.refuse_contradictions()
    everything = planned_pairs(loaded.variants, environments)
    digest = digest_of(everything, settings)
    planned = [item for item in everything if only is None or history.key_of(item) in only]
    planned, remark = (planned, "") if past else _selected(settings, planned)
    named = settings.select or settings.backend or settings.device or settings.last_failed or settings.shard
    whole = not named and only is None and not names_nodes(paths)
    left_out = _left_out(loaded, everything, planned)
    return Plan(loaded, tuple(environments), tuple(planned), len(everything), digest, whole, remark, left_out)


def digest_of(planned: Sequence[Planned], settings: RunSettings) -> str:
    """Return what a run's log says of its plan: sixteen hex digits of its variants and of what changes verdicts."""
    variants = [item.variant for item in planned]
    known = f"known {not settings.no_known}"
    return shards.plan_hash(planned, f"seed {settings.seed}", known, *settings.imports, *shards.ledger_texts(variants))


def _left_out(
    loaded: Loaded, everything: Sequence[Planned], planned: Sequence[Planned]
) -> tuple[tuple[Variant, str], ...]:
    kept = {history.key_of(item) for item in planned}
    pairs = [
        *((item.variant, item.environment.torch) for item in everything if history.key_of(item) not in kept),
        *((variant, torch) for variant in loaded.left_out for torch in {item.environment.torch for item in everything}),
    ]
    return tuple(pair for pair in pairs if pair[0].ledger)


def run(
    planned: Plan,
    settings: RunSettings | None = None,
    *,
    folder: Path | None = None,
    argv: Sequence[str] = (),
    past: Sequence[Event] = (),
    tick: Ticker | None = None,
    home: Home | None = None,
    warm: WarmEngine | None = None,
) -> Generator[Event, None, None]:
    """Run a plan, and yield every event as it happens: first ``RunStarted``, one ``VariantPlanned`` each, last
    ``RunFinished``.

    The processes end with the iteration, however it ends; those of a ``warm`` engine end their jobs alone.
    ``RunFinished.exit_code`` is pytest's.

    Args:
        planned: what to run.
        settings: how.
        folder: for logs of processes; none are kept if None.
        argv: the command line that asks for this run, which the events repeat.
        past: the events of a run that goes on: what has a verdict in them does not run again.
        home: of the local engine, made before; a new one if None.
        tick: called several times a second with (id, seconds, phase) of each variant that runs. StopRun ends the run.
        warm: an engine that the caller closes, for the environments of this plan; a new one if None.

    Raises:
        UsageError, InputError: code that the run names cannot be had; ``RunFinished`` is yielded before.
        Exception: a defect of the runner, likewise.
    """
    settings = settings or RunSettings()
    begun = time.monotonic()
    fingerprints = _fingerprints(settings, planned) if warm is None else warm.fingerprints
    engine = open_engine(settings, planned, folder, home, fingerprints) if warm is None else warm.engine
    code, interrupted = INTERNAL, False
    defect: Exception | None = None
    session: Session | None = None
    try:
        yield from _announce(planned, settings, folder, argv, past)
        yield from import_code(engine, planned.planned, settings)
        sample = None if warm is None else warm.sample
        session = _session(planned, settings, engine, past, begun, tick, fingerprints, sample)
        wavers = False
        for event in session.events():
            wavers = wavers or is_wavering(event)
            yield event
        code, interrupted = _code(settings, planned, session, past), session.late
        if session.late:
            yield Notice(
                f"the budget of {settings.budget:g} s is used up: {session.unfinished} of {len(planned.planned)} "
                "without a verdict; "
                "runner resume goes on",
                "error",
            )
        yield from environment_changes(planned, fingerprints) if wavers else ()
        yield from sorted(engine.notices(), key=lambda notice: notice.severity == "info")
    except (KeyboardInterrupt, StopRun):
        code, interrupted = INTERRUPTED, True
    except (UsageError, InputError) as error:
        code, defect = USAGE, error
    except Exception as error:  # noqa: BLE001 (it is raised again, after the event that ends the log)
        defect = error
    finally:
        # The processes go first: what takes the last event may take a moment, and nothing should run on meanwhile.
        if warm is None:
            engine.close()
        else:
            engine.cancel_all()
            engine.wait(0)
    if interrupts.noted():
        code, interrupted = INTERRUPTED, True
    yield from session.held.rest() if session is not None else ()
    yield RunFinished(code, round(time.monotonic() - begun, 3), interrupted)
    if defect is not None:
        raise defect


def is_wavering(event: Event) -> bool:
    """Return whether a variant said something else when it ran again."""
    return isinstance(event, VariantFinished) and (event.verdict == "FLAKY" or ORDER_DEPENDENT in event.labels)


def environment_changes(planned: Plan, fingerprints: Mapping[str, Fingerprint]) -> Iterator[Notice]:
    """Yield a warning for each Python that is another one than at the start: what wavers may come of that."""
    environments = [environment for environment in planned.environments if environment.key in fingerprints]
    now = take_fingerprints(dict.fromkeys(environment.python for environment in environments)) if environments else {}
    for each in environments:
        if now[each.python].digest != fingerprints[each.key].digest:
            yield Notice(
                f"{each.python}: its packages, its variables or runner's code changed during the run: "
                "what is FLAKY or order-dependent may come from that; run it again"
            )


def _fingerprints(settings: RunSettings, planned: Plan) -> Mapping[str, Fingerprint]:
    """Return the fingerprint of each environment, where something of earlier runs may be used."""
    has_graphs = any(item.variant.backend.backend == "inductor" and not skip_reason(item) for item in planned.planned)
    if not (settings.cached or settings.keep_warm or (settings.loads_graphs() and has_graphs)):
        return {}
    by_python = take_fingerprints(e.python for e in planned.environments)
    return {e.key: by_python[e.python] for e in planned.environments}


def open_engine(
    settings: RunSettings,
    planned: Plan,
    folder: Path | None,
    home: Home | None = None,
    fingerprints: Mapping[str, Fingerprint] | None = None,
) -> ClosableEngine:
    """Return the engine that the settings ask for; it starts its processes when it is given jobs.

    Raises:
        UsageError: no such cluster.
    """
    environments, variants = planned.environments, [item.variant for item in planned.planned]
    pythons = {e.key: e.python for e in environments}
    warm = {e.key: warmth(variants) for e in environments}
    logs = folder / "logs" if folder is not None else None
    jobs = settings.slots()
    if settings.engine == "ray":
        from runner.engine.cluster.engine import RayEngine

        engine: ClosableEngine = RayEngine(
            pythons,
            # On a cluster as many at once as it has room for, unless somebody says how many.
            None if settings.address and settings.jobs is None else jobs,
            address=settings.address,
            gpus=any(variant.device.startswith("cuda") for variant in variants),
            warm=warm,
            log_folder=logs,
            kernel_cache=settings.kernel_cache,
            expected={e.key: e.build for e in environments},
        )
    else:
        if settings.keep_warm:
            home = home or Home()
            home.keep = _keep(environments, fingerprints or {})
        local = engine = LocalEngine(
            pythons, jobs, warm=warm, log_folder=logs, kernel_cache=settings.kernel_cache, home=home
        )
        if settings.confirm and len(variants) < jobs:  # a processor is free for what a failure would wait for
            for key in {
                item.environment.key
                for item in planned.planned
                if item.variant.device == "cpu" and not skip_reason(item)
            }:
                local.prepare(key, "fresh", USER_VARIABLES)
    if not settings.cached:
        return engine
    from runner.engine.caches import CachedEngine

    return CachedEngine(engine, Path(FOLDER, "results"), fingerprints or {}, folder.name if folder is not None else "")


def _keep(environments: Sequence[Environment], fingerprints: Mapping[str, Fingerprint]) -> Keep:
    """Return which interpreters have processes that outlive the run: those whose fingerprint has no gap."""
    gaps = [f"{e.python}: {fingerprints[e.key].gaps}" for e in environments if fingerprints[e.key].gaps]
    digests = {e.python: fingerprints[e.key].digest for e in environments if not fingerprints[e.key].gaps}
    return Keep(digests, "; ".join(gaps))


def narrowed(planned: Plan, chosen: Sequence[Planned], remark: str, settings: RunSettings) -> Plan:
    """Return a plan of all shards with some of its variants, cut to the shard of the settings.

    Args:
        planned: the plan without ``shard``.
        chosen: of its variants, in the order in which they run; all shards must be given the same ones.
        remark: why no others run.
        settings: those of the run.
    """
    part = _shard_of(settings, [*chosen])
    kept = {history.key_of(item) for item in part}
    others = (item for item in planned.planned if item.variant.ledger and history.key_of(item) not in kept)
    return replace(
        planned, planned=tuple(part), total=len(chosen), whole=False,
        left_out=(*planned.left_out, *((each.variant, each.environment.torch) for each in others)),
        remark="; ".join(filter(None, (planned.remark, remark))),
    )  # fmt: skip


def _shard_of(settings: RunSettings, planned: list[Planned]) -> list[Planned]:
    if not settings.shard:
        return planned
    seconds = history.seconds_of(read_events(settings.durations)) if settings.durations else None
    return shards.chosen(planned, parse_shard(str(settings.shard)), seconds)


def _selected(settings: RunSettings, planned: list[Planned]) -> tuple[list[Planned], str]:
    """Return what ``shard`` and ``last_failed`` leave, and a remark."""
    planned = _shard_of(settings, planned)
    if not settings.last_failed:
        return planned, ""
    known = history.read()
    last = [(item, one) for item in planned if (one := known.get(history.key_of(item))) is not None]
    strange = sum(not one.own for _, one in last)
    remark = f"; {strange} verdicts of logs that you did not write here do not count" if strange else ""
    if not any(one.red and one.own for _, one in last):
        return planned, f"--lf: nothing here failed the last time, so all of it runs{remark}"
    chosen = [each for each, one in last if one.red or not one.own]  # what others say of a variant may hide a failure
    return chosen, f"--lf: {len(chosen)} of {len(planned)} variants, which failed the last time{remark}"


def _announce(
    planned: Plan, settings: RunSettings, folder: Path | None, argv: Sequence[str], past: Sequence[Event]
) -> Iterator[Event]:
    """Yield what is planned, so that every report knows each variant before anything runs."""
    if past:
        yield RunResumed(started_of([*past]).run, _now(), len(finished_of(past)))
    else:
        yield _started(planned, settings, folder, argv)
    announced = planned_of(past)
    for each in planned.planned:
        if history.key_of(each) not in announced:
            yield planned_event(each)
    on_gpu = any(precision_flags(item.variant.device) and not skip_reason(item) for item in planned.planned)
    count = len(planned.loaded.diagnostics) - len(planned.loaded.errors)
    warnings = f"{plural(count, 'warning')} about these files; runner validate shows them" if count else ""
    texts = (warnings, planned.remark, PRECISE if on_gpu else "")
    yield from (Notice(text, "info") for text in texts if text)


def _session(
    planned: Plan,
    settings: RunSettings,
    engine: Engine,
    past: Sequence[Event],
    begun: float,
    tick: Ticker | None,
    fingerprints: Mapping[str, Fingerprint],
    sample: Sample | None,
) -> Session:
    order = "failed-first" if settings.failed_first and settings.order == "plan" else settings.order
    finished = finished_of(past)
    queue = [e for e in history.ordered(planned.planned, history.read(), order) if history.key_of(e) not in finished]
    context = RunContext(
        settings,
        slots=getattr(engine, "slots", settings.slots()),
        paths=worker_paths(settings, planned.loaded.variants),
        suites={suite.name: suite for suite in planned.loaded.suites},
        default_python=planned.environments[0].python if not settings.python else "",
        deadline=begun + settings.budget if settings.budget else None,
        limits=settings.limits(),
        fingerprints=fingerprints if settings.loads_graphs() else {},
        sample=sample or Sample(settings.seed, len(queue)),
    )
    held = HeldPasses(() if settings.no_known else planned.planned, planned.left_out, finished.values())
    return Session(queue, engine, context, tick, held)


def _code(settings: RunSettings, planned: Plan, session: Session, past: Sequence[Event]) -> int:
    if session.late:
        return INTERRUPTED
    if planned.loaded.errors and session.code != INTERNAL:
        return USAGE
    if not planned.planned:
        return OK if settings.shard else NOTHING  # an empty shard is a shard too
    if session.code == OK and any(event.verdict in session.bad_verdicts for event in finished_of(past).values()):
        return FAILED
    return session.code


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _started(planned: Plan, settings: RunSettings, folder: Path | None, argv: Sequence[str]) -> RunStarted:
    start = RunStarted(
        run=folder.name if folder is not None else "",
        version=__version__,
        argv=("runner", *argv),
        started=_now(),
        host=platform.node(),
        folder=str(folder or ""),
        environments=tuple(
            {"python": e.python, "torch": e.torch, "build": e.build, "version": e.version} for e in planned.environments
        ),
        full=planned.whole,
        cwd=os.getcwd(),
        plan=planned.digest,
        shard=str(settings.shard or ""),
        planned=len(planned.planned),
        total=planned.total,
        engine=settings.engine,
        suites={suite.name: suite.file for suite in planned.loaded.suites},
    )
    return replace(start, signature=signature_of(start))
