"""Group the red variants of runs by signature, as a Markdown table.

    python bench/sweep.py .runner/runs/*/events.jsonl

The variant with the shortest chain stands first in its group, and its id alone is what to reduce.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from runner.cases.model import Case
from runner.record.events import RED, VariantFinished, finished_of
from runner.record.journal import read_journal
from runner.session.collect import load
from runner.verdict.signature import assess
from runner.worker.oracles import rank_of

IDS = 3  # of a group that are printed


@dataclass
class Group:
    """The red variants of one signature, with how long each one's chain is."""

    verdict: str
    severity: str
    signature: str
    members: list[tuple[int, VariantFinished]] = field(default_factory=list)

    def row(self) -> str:
        """Return the group as a row of the table."""
        ids = [event.id for _, event in sorted(self.members, key=lambda member: (member[0], member[1].id))]
        more = f" and {len(ids) - IDS} more" if len(ids) > IDS else ""
        text = self.signature.replace("|", "\\|").replace("`", "'")
        listed = ", ".join(map(_short, ids[:IDS]))
        return f"| {len(ids)} | {self.verdict} | {self.severity} | `{text}` | {listed}{more} |"


def _short(identifier: str) -> str:
    """Return an id without its folder and its backend."""
    return identifier.rpartition("/")[2].rpartition("@")[0]


def group_variants(events: Iterable[VariantFinished], lengths: dict[str, int]) -> list[Group]:
    """Group red variants by verdict and signature, the worst and largest group first. ``lengths`` are the chains' by label."""
    groups: dict[tuple[str, str], Group] = {}
    for event in events:
        if event.verdict not in RED:
            continue
        known = event if event.signature else assess(event)
        group = groups.setdefault(
            (event.verdict, known.signature), Group(event.verdict, known.severity or "", known.signature)
        )
        group.members.append((lengths.get(event.label, 0), event))
    return sorted(groups.values(), key=lambda group: (rank_of(group.severity), -len(group.members)))


def lengths_of(events: Iterable[VariantFinished]) -> dict[str, int]:
    """Return the number of steps of each red variant's chain by its label; nothing for files that are gone."""
    files = sorted({event.file for event in events if event.verdict in RED})
    variants = load(files, everything=True).variants if files else ()
    return {variant.label: _length(variant.case) for variant in variants}


def _length(case: Case) -> int:
    return len(case.chain)


def main(arguments: list[str] | None = None) -> int:
    """Print the table of the logs that the command line names, and what each verdict counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "logs", nargs="+", metavar="RUN_LOG", help="event logs; of a variant in several the last one counts"
    )
    finished: dict[object, VariantFinished] = {}
    for log in parser.parse_args(arguments).logs:
        events, problems = read_journal(log)
        for problem in problems.lines():
            print(problem, file=sys.stderr)
        finished.update(finished_of(events))
    verdicts = collections.Counter(event.verdict for event in finished.values())
    print(f"{len(finished)} variants:", ", ".join(f"{count} {word}" for word, count in verdicts.most_common()))
    print("\n| count | verdict | severity | signature | smallest first |\n| ---: | --- | --- | --- | --- |")
    for group in group_variants(finished.values(), lengths_of(finished.values())):
        print(group.row())
    return 0


if __name__ == "__main__":
    sys.exit(main())
