"""The order of a hunt: rounds while there is time for one more, between them reductions that keep to their share, then
reports.

Of a group its first case is reduced, and the reduced case is diagnosed and reported in upstream's form.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.cases.model import Variant
from runner.cases.serialize import plain
from runner.diagnose.bug_report import find_blame, gather
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import VariantEngine
from runner.diagnose.repro import script
from runner.diagnose.similar import operators_of
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.files import read_text, replace_text
from runner.hunt.groups import (
    CASE,
    FAILURES,
    REDUCED,
    REPORT,
    SCRIPT,
    Group,
    Ledger,
    Line,
    Reduction,
    Report,
    State,
    append_line,
    folder_of,
    groups_of,
    read_triage,
    write_groups,
)
from runner.hunt.rounds import Rounds
from runner.reduce.reducer import reduce_variant
from runner.report.diagnosis import sentence
from runner.report.issue import write
from runner.session.collect import collect
from runner.session.settings import RunSettings
from runner.text import duration, one_line, plural
from runner.verdict.signature import id_of


@dataclass(frozen=True, slots=True)
class Share:
    """What one reduction or report may take of the machine: seconds, and slots.

    ``beside`` is how many go on at once, with it.
    """

    budget: float
    slots: int = 1
    beside: int = 1


def reduce_group(
    folder: Path, settings: RunSettings, ledger: Ledger, group: Group, share: Share, tick: Callable[[], None]
) -> Reduction:
    """Reduce the first case of a group, and write the result into the group's folder.

    Args:
        folder: of the hunt.
        settings: of the hunt's runs.
        ledger: what may explain the smaller case.
        group: one with a folder.
        share: of the machine. The reduction's own seconds are its part of the time of all that go on at once.
        tick: called several times a second. It may raise KeyboardInterrupt, which ends the reduction.

    Raises:
        KeyboardInterrupt: it was cut short; nothing of it counts.
    """
    began = time.monotonic()
    own = folder_of(folder, group.id)

    def end(problem: str) -> Reduction:
        return Reduction(group.id, round((time.monotonic() - began) / share.beside, 3), one_line(problem, 300))

    if not (own / CASE).is_file():
        return end("its case is gone")
    try:
        variant = drawn_variant(own, group, settings)
        if variant is None:
            return end("its case has changed")
        with VariantEngine.of(settings, variant, slots=share.slots) as engine:
            torch = engine.environment.torch
            reduced = reduce_variant(engine, budget=share.budget, tick=lambda text: tick())
    except (UsageError, InputError) as error:
        return end(str(error))
    if reduced.interrupted:
        raise KeyboardInterrupt
    if not reduced.confirmed:
        return end("in a process of its own no case fails alike: " + "; ".join(reduced.notes))
    replace_text(own / REDUCED, reduced.text)
    with contextlib.suppress(InputError):  # a value without a place in Python text
        diagnosis = Diagnosis(reduced.variant.id, torch, "FAIL", findings=reduced.findings)
        replace_text(
            own / SCRIPT, script(_with_python_of(own, reduced.variant), diagnosis, settings.seed, settings.imports)
        )
    # Findings of one process know no stage; the signature does.
    findings = [replace(finding, stage=finding.stage or reduced.signature.stage) for finding in reduced.findings]
    data = {key: value for key, value in plain(reduced.variant.case).items() if key != "name"}
    return replace(
        end(""),
        before=reduced.size_before.operators,
        after=reduced.size_after.operators,
        elements=reduced.size_after.elements,
        complete=reduced.complete,
        known=ledger.explain(reduced.variant, torch, findings, reduced=True),
        case=id_of(json.dumps(data, sort_keys=True, default=str)),
    )


def _with_python_of(own: Path, variant: Variant) -> Variant:
    """Return a reduced variant with the model in Python of the group's folder: the reduction's own copy is gone."""
    case, module = variant.case, variant.case.module
    if module is None:
        return variant
    return replace(variant, case=replace(case, module=replace(module, file=str(own / Path(module.file).name))))


def drawn_variant(own: Path, group: Group, settings: RunSettings) -> Variant | None:
    """Return the variant of a group's case that is red; None where somebody has changed the case.

    Raises:
        UsageError, InputError: the case cannot be read.
    """
    names = {red.id.partition("::")[2] for red in group.reds}
    variants = collect([own / CASE], settings).variants
    return next((variant for variant in variants if variant.id.partition("::")[2] in names), None)


def report_group(folder: Path, settings: RunSettings, group: Group, share: Share, tick: Callable[[], None]) -> Report:
    """Diagnose the reduced case of a group, and write its report into the group's folder; arguments as of
    ``reduce_group``.

    Raises:
        KeyboardInterrupt: it was cut short; nothing of it counts.
    """
    began = time.monotonic()
    own = folder_of(folder, group.id)

    def end(problem: str = "", **more: Any) -> Report:
        return Report(group.id, round((time.monotonic() - began) / share.beside, 3), one_line(problem, 300), **more)

    def say(text: str) -> None:
        tick()
        if time.monotonic() - began > share.budget:
            raise UsageError(f"it takes longer than {duration(share.budget)}")

    try:
        variant = _reduced_variant(own, group, settings)
        if variant is None:
            return end("its reduced case is gone or has changed")
        with VariantEngine.of(settings, variant, slots=share.slots) as engine:
            diagnosis = find_blame(engine, say)
            if diagnosis.verdict not in FAILURES:
                return end(f"the verdict of the reduced case is {diagnosis.verdict}: {diagnosis.reason}")
            report = gather(engine, diagnosis, read_text(own / REDUCED), say)
    except (UsageError, InputError) as error:
        return end(str(error))
    text, checks = write(replace(report, steps=_steps(group)), draft=True)
    replace_text(own / REPORT, text)
    culprit = diagnosis.culprit
    return end(
        unmet=sum(not check.met for check in checks),
        culprit=one_line(sentence(replace(culprit, step=None, place=None)), 200) if culprit else "",
        cause=cause_of(group, variant, diagnosis),
    )


def _reduced_variant(own: Path, group: Group, settings: RunSettings) -> Variant | None:
    """Return the variant of the reduced case; None where somebody has removed or changed it."""
    has_files = all((own / name).is_file() for name in (CASE, REDUCED))
    drawn = drawn_variant(own, group, settings) if has_files else None
    variants = collect([own / REDUCED], settings).variants if drawn else ()
    return next((variant for variant in variants if drawn and variant.backend == drawn.backend), None)


def cause_of(group: Group, variant: Variant, diagnosis: Diagnosis) -> str:
    """Return a hash of the operators of a reduced case, its stage, its oracle and what is to blame.

    It is empty where torch's bisector names no single application or setting: a whole backend may have any number of
    bugs. It is also empty where the diagnosis shows another failure than the group's.
    """
    culprit, signature = diagnosis.culprit, diagnosis.signature
    if culprit is None or signature is None or not (culprit.subsystem and culprit.name):
        return ""
    if (signature.stage, signature.oracle) != (group.first.stage, group.first.oracle):
        return ""
    # The name of a node has its number in the graph, so its operator says more.
    blamed = (culprit.backend, culprit.subsystem, culprit.operator or culprit.name)
    return id_of(json.dumps([sorted(operators_of(variant.case.chain)), signature.stage, signature.oracle, *blamed]))


def _steps(group: Group) -> str:
    """Return a sentence about the way to the reduced case."""
    reduction = group.reduction
    if reduction is None:
        return ""
    more = "" if reduction.complete else "; there was no time to take away more"
    return f"Reduced by a machine (from {plural(reduction.before, 'operator')} to {reduction.after}{more})."


LEAST = 20.0
"""Seconds that a reduction needs to be worth its start."""
REPORTING = 60.0
"""Seconds that a report needs to be worth its start.

Under inductor the script alone may take 40, because its kernels are built anew.
"""
SHARE = 1 / 3
"""Part of the time that reductions and reports may take."""
SLOTS = 2
"""Slots of a reduction or a report while others wait.

A reduction tries that many candidates at once, and drops those behind the first success.
"""
TICK = 0.5
"""Seconds between two looks at what goes on."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a hunt goes on: seconds or rounds, both counted from its first beginning.

    ``each`` bounds one reduction, and one report.
    """

    budget: float | None = None
    rounds: int | None = None
    each: float = 120.0


class Hunt:
    """A hunt in a folder. ``tell`` takes a line for each finished round, reduction and report."""

    def __init__(
        self, folder: Path, state: State, places: dict[str, str], rounds: Rounds, bounds: Bounds,
        tell: Callable[[str], None]
    ) -> None:  # fmt: skip
        """Take up what ``state`` has. Raises InputError for a triage that cannot be read."""
        self.folder, self.state, self.rounds, self.bounds, self.tell = folder, state, rounds, bounds, tell
        self._places, self._triage = places, read_triage(folder)
        self._earlier, self._began = state.hunting + state.reducing, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Return the seconds of this hunt, those before it was resumed included."""
        return self._earlier + time.monotonic() - self._began

    def groups(self) -> list[Group]:
        """Return its groups as they are now.

        People may edit the triage meanwhile; half of an edit is no reason to end.
        """
        with contextlib.suppress(InputError):
            self._triage = read_triage(self.folder)
        return groups_of(self.state, self._places, self._triage)

    def run(self) -> None:
        """Hunt until the budget is used up. Raises KeyboardInterrupt when a person ends it."""
        while self.has_time():
            self._round()
            self._reduce(self.allowance())
        self._reduce(self._remaining())
        # At the end: a group without a reduced case is worth more than a report.
        report = partial(report_group, self.folder, self.rounds.settings)
        self._work("reporting", report, lambda group: group.is_unreported, REPORTING, self._remaining())
        write_groups(self.folder, self.state.head, self.groups())

    def has_time(self) -> bool:
        """Return whether one more round may begin: it lasts about as long as the last one, and reductions have their
        share."""
        rounds, bounds = self.state.rounds, self.bounds
        if bounds.rounds is not None and len(rounds) >= bounds.rounds:
            return False
        if bounds.budget is None or not rounds:
            return True
        groups = self.groups()
        wanted = REPORTING * sum(group.is_unreported for group in groups)
        if any(group.is_pending for group in groups):
            wanted = math.inf
        reserved = max(0.0, min(wanted, SHARE * bounds.budget - self.state.reducing))
        return self.elapsed + rounds[-1].drawing + rounds[-1].running + reserved <= bounds.budget

    def allowance(self) -> float:
        """Return the seconds that reductions may take now without passing their share of the time so far; without a
        budget, all."""
        if self.bounds.budget is None:
            return math.inf
        return min(SHARE / (1 - SHARE) * self.state.hunting - self.state.reducing, self._remaining())

    def _remaining(self) -> float:
        return math.inf if self.bounds.budget is None else self.bounds.budget - self.elapsed

    def _round(self) -> None:
        groups = {group.id: group for group in self.groups()}

        def has_group(key: str) -> bool:
            return key in self._places or (key in groups and (folder_of(self.folder, key) / CASE).is_file())

        done = self.rounds.run(self.state.next_round, has_group)
        self._add(done)
        fresh = [group for group in self.groups() if group.id not in groups and group.is_new]
        names = "".join(
            f"\n  new: {one_line(f'{group.id} {group.first.severity}: {group.first.signature}', 150)}"
            for group in fresh
        )
        self.tell(
            f"round {done.round}: {done.variants} variants, {len(done.red)} red, "
            f"{plural(len(fresh), 'new group')}{names}"
        )

    def _reduce(self, seconds: float) -> None:
        """Reduce groups that wait while the seconds are enough for one more."""
        work = partial(reduce_group, self.folder, self.rounds.settings, self.rounds.ledger)
        self._work("reducing", work, lambda group: group.is_pending, LEAST, seconds)

    def _work(
        self, verb: str, work: Callable[[Group, Share, Callable[[], None]], Reduction | Report],
        waits: Callable[[Group], bool], least: float, seconds: float,
    ) -> None:  # fmt: skip
        """Do this with groups that wait for it, the worst first and several at once.

        ``work`` has a thread for each group. It calls its third argument several times a second, which may end it.
        ``least`` seconds are enough for one more.
        """
        deadline = time.monotonic() + seconds
        slots = self.rounds.settings.slots()
        width = max(1, slots // SLOTS)
        running: dict[Future[Reduction | Report], str] = {}
        is_ended = threading.Event()

        def tick() -> None:
            if is_ended.is_set():
                raise KeyboardInterrupt

        with ThreadPoolExecutor(width) as pool, contextlib.ExitStack() as stack:
            stack.callback(is_ended.set)  # where an exception ends this, the threads end too
            while True:
                waiting = [group for group in self.groups() if waits(group) and group.id not in running.values()]
                remaining = deadline - time.monotonic()
                if remaining < min(least, self.bounds.each):
                    waiting = []
                beside = min(width, len(running) + len(waiting))
                for group in waiting[: width - len(running)]:
                    share = Share(min(remaining, self.bounds.each), max(1, slots // beside), beside)
                    running[pool.submit(work, group, share, tick)] = group.id
                if not running:
                    return
                self.rounds.say(
                    f"{verb} {plural(len(running), 'group')}; {', '.join(running.values())}; {len(waiting)} wait"
                )
                for future in wait(running, TICK, FIRST_COMPLETED).done:
                    key = running.pop(future)
                    done = future.result()
                    self._add(done)
                    self.tell(f"{key}: {done}")

    def _add(self, line: Line) -> None:
        """Record what is done. The groups' files follow: they can be made again, and the record cannot."""
        append_line(self.folder, line)
        self.state.add(line)
        write_groups(self.folder, self.state.head, self.groups())
