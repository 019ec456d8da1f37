"""Does a user who sets nothing see what the runner says? Counts it over the events of a run.

    runner run suites/regressions.suite.yaml --no-known --allow-python --events log.jsonl
    python bench/as_user.py log.jsonl [--suite suites/regressions.suite.yaml] [-j N]

Red variants have a row ``as-user`` in the log. With ``--suite`` the others run now, with torch's own settings, in
processes of their own. Variants that a policy explains are left out: without the policy they differ by design. Exits
1 if any disagrees.
"""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Iterator, Sequence

from commands import command_line, option

from runner.builder.source import build
from runner.cases.model import LAUNCH
from runner.contract.oracles import EXPLAINED, row_of
from runner.engine.local import LocalEngine
from runner.record.events import VariantFinished
from runner.record.store import read_events
from runner.session.collect import load
from runner.session.plan import Planned, as_user, find_environments, job
from runner.session.scheduler import drive, with_reference
from runner.verdict import outcomes
from runner.verdict.policy import AS_USER

CHUNK = 4
"""Jobs that are asked for together."""

Row = tuple[VariantFinished, str]
"""A verdict, and what a run as a user says: ``ok``, its oracles, or nothing where it gave no answer."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the counts and the rows that disagree."""
    arguments = command_line(
        __doc__, option("log"), option("-j", "--jobs", type=int, default=2),
        option("--suite", help="run what has no row yet; the log's suite"),
    ).parse_args(words)  # fmt: skip
    events = [event for event in read_events(arguments.log) if isinstance(event, VariantFinished)]
    rows: list[Row] = [(event, event.stages[AS_USER]) for event in events if AS_USER in event.stages]
    if arguments.suite:
        answered = {event.key for event, _ in rows}
        new = [event for event in events if event.key not in answered and is_asked(event)]
        with contextlib.suppress(KeyboardInterrupt):  # what is known is counted
            for row in answers(new, arguments.suite, arguments.jobs):
                rows.append(row)
                print(f"{len(rows)} of {len(answered) + len(new)}: {word_of(*row)}", file=sys.stderr, flush=True)
    counts = collections.Counter((event.torch, word_of(event, outcome)) for event, outcome in rows)
    for (torch, word), number in sorted(counts.items()):
        print(f"torch {torch}: {number} {word}")
    for event, outcome in rows:
        if word_of(event, outcome) == "disagree":
            print(f"  {event.torch} {event.id}: {event.verdict} {' '.join(event.oracles)}; as a user: {outcome}")
    return int(any(word == "disagree" for _, word in counts))


def is_asked(event: VariantFinished) -> bool:
    """Return whether a compiler gave a verdict that torch's settings may change."""
    explained = any(label.startswith(EXPLAINED) for label in event.labels)
    return event.verdict in ("PASS", "XFAIL", "FAIL", "ERROR") and not explained and event.backend != LAUNCH


def word_of(event: VariantFinished, outcome: str) -> str:
    """Return ``agree``, ``disagree`` or ``no answer``. Failures of one kind agree."""
    if not outcome:
        return "no answer"
    names = () if outcome == "ok" else outcome.split()
    kinds, of_user = ({row_of(name).group for name in oracles} for oracles in (event.oracles, names))
    return "agree" if kinds & of_user or kinds == of_user else "disagree"


def answers(events: Sequence[VariantFinished], suite: str, slots: int) -> Iterator[Row]:
    """Run the variants of events as a user runs them."""
    variants = {variant.id: variant for variant in load([suite], allow_python=True).variants}
    pythons = {entry.python: entry for entry in find_environments([*dict.fromkeys(event.python for event in events)])}
    with LocalEngine({entry.key: entry.python for entry in pythons.values()}, slots) as engine:
        for start in range(0, len(events), CHUNK):
            chosen = events[start : start + CHUNK]
            planned = [Planned(variants[event.id], pythons[event.python]) for event in chosen]
            sources = [build(entry.variant) for entry in planned]
            pairs = zip(planned, sources, strict=True)
            jobs = [as_user(job(entry, source, suffix=f" {AS_USER}"), entry) for entry, source in pairs]
            results = drive(engine, with_reference(jobs))
            for event, source, outcome in zip(chosen, sources, results, strict=True):
                findings, doubt = outcomes.read(outcome, source)
                names = " ".join(dict.fromkeys(finding.oracle for finding in findings))
                yield event, names or ("" if doubt else "ok")


if __name__ == "__main__":
    sys.exit(main())
