"""One round: its cases are drawn by their numbers and run, and what is red is kept."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from runner import interrupts
from runner.cases.model import Variant
from runner.diagnose.repro import script
from runner.diagnostics import InputError
from runner.engine.local import LocalEngine
from runner.generate.files import text_of
from runner.generate.generator import CaseGenerator, GeneratedCase
from runner.hunt.files import CASE, SCRIPT, folder_of, request_of, spec_of, write_text
from runner.hunt.groups import FAILURES
from runner.hunt.known import Ledger
from runner.hunt.state import Head, Red, Round
from runner.record.events import RED, RunFinished, VariantFinished
from runner.session.collect import collect
from runner.session.plan import Environment
from runner.session.run import plan
from runner.session.run import run as run_plan
from runner.session.settings import RunSettings
from runner.text import one_line
from runner.verdict.signature import assess, worst_findings

Say = Callable[[str], None]
"""Takes one line that says what is being done; behind a semicolon stands what changes often."""


class Rounds(contextlib.AbstractContextManager["Rounds"]):
    """Runs rounds of a hunt. Its generator lives on between them, because torch's operator database takes seconds to import."""

    def __init__(
        self, folder: Path, head: Head, environment: Environment, settings: RunSettings, ledger: Ledger, say: Say
    ) -> None:
        """Start nothing yet."""
        self.folder, self.head, self.settings, self.ledger, self.say = folder, head, settings, ledger, say
        self._engine = LocalEngine(
            {environment.key: environment.python}, settings.slots(), warm={environment.key: "import"}
        )
        self.generator = CaseGenerator(self._engine, environment, request_of(head), settings.slots())
        self._torch = environment.torch
        self._asked = False

    def __exit__(self, *about: object) -> None:
        """End the generator's processes."""
        with interrupts.held():
            self._engine.close()

    def run(self, number: int, has_group: Callable[[str], bool]) -> Round:
        """Draw and run a round, and write what its red results need.

        Args:
            number: of the round.
            has_group: whether a signature's group is there already, or known; a group that is neither gets its folder here.

        Raises:
            KeyboardInterrupt: it was cut short; nothing of it counts.
            UsageError: the generator cannot work, or a backend is missing.
        """
        began = time.monotonic()
        if not self._asked:
            self.say("reading torch's operator database")
            self.generator.find_operators()
            self._asked = True
        first = number * self.head.batch
        cases = self.generator.draw(
            range(first, first + self.head.batch), lambda: self.say(f"round {number}: drawing {self.head.batch} cases")
        )
        drawn = time.monotonic()
        path = spec_of(self.folder, number)
        results, variants = self._results(path, number, cases) if cases else ([], {})
        red = self._red(path, cases, results, variants, has_group)
        verdicts = Counter[str](event.verdict for event in results)
        seconds = time.monotonic() - drawn
        return Round(number, len(cases), len(results), round(drawn - began, 3), round(seconds, 3), dict(verdicts), red)

    def _results(
        self, path: Path, number: int, cases: list[GeneratedCase]
    ) -> tuple[list[VariantFinished], Mapping[str, Variant]]:
        """Run the cases, and return their results and their variants by id."""
        write_text(path, text_of([case.data for case in cases]))
        planned = plan(collect([path], self.settings), self.settings)
        results: list[VariantFinished] = []

        def tick(running: list[tuple[str, float, str]]) -> None:
            self.say(f"round {number}: running {len(planned.planned)} variants; {len(results)} ended")

        with contextlib.closing(run_plan(planned, self.settings, tick=tick)) as events:
            for event in events:
                if isinstance(event, VariantFinished):
                    results.append(event)
                elif isinstance(event, RunFinished) and event.interrupted:
                    raise KeyboardInterrupt
        return results, {job.variant.id: job.variant for job in planned.planned}

    def _red(
        self, path: Path, cases: list[GeneratedCase], results: list[VariantFinished], variants: Mapping[str, Variant],
        has_group: Callable[[str], bool],
    ) -> tuple[Red, ...]:  # fmt: skip
        """Return the red results, in the order of their cases. The file of the round keeps their cases alone."""
        by_name = {str(case.data["name"]): case for case in cases}
        events = [event if event.signature else assess(event) for event in results if event.verdict in RED]
        numbers = {id_: by_name[variant.case.name].number for id_, variant in variants.items()}
        events.sort(key=lambda event: (numbers[event.id], event.id))
        reds: list[Red] = []
        for event in events:
            variant = variants[event.id]
            case = by_name[variant.case.name]
            known = self.ledger.explain(variant, self._torch, event.findings) if event.verdict in FAILURES else ""
            red = _red_of(event, f"rounds/{path.name}", case.number, known)
            if not (
                known
                or has_group(red.signature_id)
                or any(earlier.signature_id == red.signature_id for earlier in reds)
            ):
                own = folder_of(self.folder, red.signature_id)
                write_text(own / CASE, text_of([case.data]))
                with contextlib.suppress(InputError):  # a value without a place in Python text
                    if red.verdict in FAILURES:
                        write_text(own / SCRIPT, script(variant, event, self.settings.seed))
            reds.append(red)
        kept = [case for case in cases if any(red.number == case.number for red in reds)]
        if kept:
            write_text(path, text_of([case.data for case in kept]))
        else:
            path.unlink(missing_ok=True)
        return tuple(reds)


def _red_of(event: VariantFinished, file: str, number: int, known: str) -> Red:
    """Return what a hunt keeps of a result. Stage and oracle are those of the finding that its signature is made of."""
    finding = worst_findings(event.findings)[0] if event.findings else None
    return Red(
        f"{file}::{event.id.partition('::')[2]}",
        number,
        event.verdict,
        event.signature_id,
        event.signature,
        event.severity or "",
        (finding.stage if finding else None) or "",
        finding.oracle if finding else "",
        one_line(event.reason, 500),
        known,
    )


def settings_for(settings: RunSettings) -> RunSettings:
    """Return the settings of a hunt's runs: its seed is the generator's, its budget and its shard are of all rounds."""
    return replace(settings, seed=0, budget=None, shard=None)
