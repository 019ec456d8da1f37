"""Does a user who sets nothing see what the runner says? Counts it over the events of a run.

    runner run suites/regressions.suite.yaml --no-known --allow-python --events log.jsonl
    python bench/as_user.py log.jsonl [--suite suites/regressions.suite.yaml] [-j N]

Red variants have a row ``as-user`` in the log. With ``--suite`` the others run now, with torch's own settings, in processes of
their own. Variants that a policy explains are left out: without the policy they differ by design. Exits 1 if any disagrees.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from runner.builder.source import build  # noqa: E402
from runner.cases.model import LAUNCH  # noqa: E402
from runner.contract.oracles import EXPLAINED, row_of  # noqa: E402
from runner.engine.local import LocalEngine  # noqa: E402
from runner.record.events import VariantFinished  # noqa: E402
from runner.record.store import read_events  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.session.plan import (  # noqa: E402
    Planned,
    as_user,
    find_environments,
    job,
)
from runner.session.scheduler import drive, with_reference  # noqa: E402
from runner.verdict import outcomes  # noqa: E402
from runner.verdict.policy import AS_USER  # noqa: E402

CHUNK = 4
"""Jobs that are asked for together."""

Row = tuple[VariantFinished, str]
"""A verdict, and what a run as a user says: ``ok``, its oracles, or nothing where it gave no answer."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the counts and the rows that disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--suite", help="run what has no row yet; the log's suite")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    arguments = parser.parse_args(words)
    events = [event for event in read_events(arguments.log) if isinstance(event, VariantFinished)]
    rows: list[Row] = [(event, event.stages[AS_USER]) for event in events if AS_USER in event.stages]
    if arguments.suite:
        answered = {event.key for event, _ in rows}
        rest = [event for event in events if event.key not in answered and is_asked(event)]
        with contextlib.suppress(KeyboardInterrupt):  # what is known is counted
            for row in answers(rest, arguments.suite, arguments.jobs):
                rows.append(row)
                print(f"{len(rows)} of {len(answered) + len(rest)}: {word_of(*row)}", file=sys.stderr, flush=True)
    counts = collections.Counter((event.torch, word_of(*row)) for row in rows for event in row[:1])
    for (torch, word), number in sorted(counts.items()):
        print(f"torch {torch}: {number} {word}")
    for event, said in rows:
        if word_of(event, said) == "disagree":
            print(f"  {event.torch} {event.id}: {event.verdict} {' '.join(event.oracles)}; as a user: {said}")
    return int(any(word == "disagree" for _, word in counts))


def is_asked(event: VariantFinished) -> bool:
    """Whether a compiler gave a verdict that torch's settings may change."""
    explained = any(label.startswith(EXPLAINED) for label in event.labels)
    return event.verdict in ("PASS", "XFAIL", "FAIL", "ERROR") and not explained and event.backend != LAUNCH


def word_of(event: VariantFinished, said: str) -> str:
    """``agree``, ``disagree`` or ``no answer``. Failures of one kind agree."""
    if not said:
        return "no answer"
    shown = set() if said == "ok" else {row_of(name).group for name in said.split()}
    kinds = {row_of(name).group for name in event.oracles}
    return "agree" if bool(kinds & shown) or kinds == shown else "disagree"


def answers(events: Sequence[VariantFinished], suite: str, slots: int) -> Iterator[Row]:
    """Run the variants of events as a user runs them."""
    variants = {variant.id: variant for variant in load([suite], allow_python=True).variants}
    pythons = {each.python: each for each in find_environments(list(dict.fromkeys(event.python for event in events)))}
    with LocalEngine({each.key: each.python for each in pythons.values()}, slots) as engine:
        for start in range(0, len(events), CHUNK):
            chosen = events[start : start + CHUNK]
            sources = [build(variants[event.id]) for event in chosen]
            jobs = [
                as_user(job(Planned(variants[event.id], pythons[event.python]), source, suffix=f" {AS_USER}"), variants[event.id])
                for event, source in zip(chosen, sources, strict=True)
            ]  # fmt: skip
            results = drive(engine, with_reference(jobs))
            for event, source, outcome in zip(chosen, sources, results, strict=True):
                findings, doubt = outcomes.read(outcome, source)
                names = " ".join(dict.fromkeys(finding.oracle for finding in findings))
                yield event, names or ("" if doubt else "ok")


if __name__ == "__main__":
    sys.exit(main())
