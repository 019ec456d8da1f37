"""Writes the table of docs/lab/2026-11-numerics.md from event logs of the suite numerics.

python tools/numerics_page.py LOG ... --write docs/lab/2026-11-numerics.md
python tools/numerics_page.py LOG ...            # prints it

LOG is an events.jsonl; of a variant that stands in several logs the last one counts.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from runner.record.events import VariantFinished  # noqa: E402
from runner.record.journal import read_journal  # noqa: E402
from runner.worker.comparison.accuracy import STEPS  # noqa: E402

BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"
INPUTS = {"output": "patterns", "output[0]": "float8 pairs", "output[1]": "pairs"}
BINARY = "binary.spec.yaml"
SHOWN = 4
"""Parts of the histogram that have a column; the others are one."""

Key = tuple[str, str, str]
"""Operator, dtype and inputs."""


def finished(logs: Sequence[Path]) -> Iterable[VariantFinished]:
    """Return the results of logs, the later one of each variant."""
    events = [event for log in logs for event in read_journal(log)[0] if isinstance(event, VariantFinished)]
    return {event.id: event for event in events}.values()


def measured(events: Iterable[VariantFinished]) -> dict[Key, dict[str, Mapping[str, Any]]]:
    """Return the numbers of each output, by backend."""
    numbers: dict[Key, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for event in events:
        for entry in event.accuracy:
            kind = INPUTS.get(entry["path"], entry["path"])
            if event.file.endswith(BINARY) or kind == "patterns":
                name = event.case.rpartition("::")[2]
                numbers[name, event.dtype, kind][event.backend] = entry
    return dict(sorted(numbers.items()))


def counts(errors: Mapping[str, Any]) -> list[str]:
    """Return the cells of one side's errors: its histogram, the largest, and special values that are other ones."""
    ulps = [*errors["ulps"][:SHOWN], sum(errors["ulps"][SHOWN:])]
    largest = errors["largest"]
    text = f"{largest:.3g}" if isinstance(largest, float) else str(largest)
    return [
        *(str(count or "") for count in ulps),
        text,
        str(errors["other_class"] or ""),
        str(errors["other_zero"] or ""),
    ]


def table(numbers: Mapping[Key, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return a row for eager's errors of each operator, and one for each backend that has other bits."""
    steps = [f"to {step:g}" for step in STEPS[:SHOWN]] + ["beyond", "largest", "other NaN or inf", "other zero"]
    head = ["operator", "dtype", "inputs", "run", *steps, "other bits than eager"]
    rows = [head, ["---"] * len(head)]
    plain: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, dtype, kind), backends in numbers.items():
        entries = {backend: entry for backend, entry in sorted(backends.items()) if "eager" in entry}
        if all(is_plain(entry) for entry in backends.values()):
            plain[dtype, kind].append(f"`{name}`")
            continue
        for entry in [*entries.values()][:1]:
            rows.append([f"`{name}`", dtype, kind, "eager", *counts(entry["eager"]), ""])
        for backend, entry in entries.items():
            if entry["different"]:
                rows.append(["", "", "", backend, *counts(entry["compiled"]), str(entry["different"])])
    exact = [["dtype", "inputs", "rounded right in eager, with eager's bits under each backend"], ["---"] * 3]
    exact += [[dtype, kind, ", ".join(names)] for (dtype, kind), names in sorted(plain.items())]
    return (
        "\n".join(f"| {' | '.join(row)} |" for row in rows)
        + "\n\n"
        + "\n".join(f"| {' | '.join(row)} |" for row in exact)
        + "\n"
    )


def is_plain(entry: Mapping[str, Any]) -> bool:
    """Return whether eager is off by half a unit at most, or is no float, and the compiled bits are eager's."""
    eager = entry.get("eager", {"ulps": [0], "other_class": 0, "other_zero": 0})
    return not (entry["different"] or sum(eager["ulps"][1:]) or eager["other_class"] or eager["other_zero"])


def summary(events: Iterable[VariantFinished], numbers: Mapping[Key, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return a line for each backend: variants, verdicts, and how many outputs have eager's bits."""
    verdicts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    seconds: dict[str, float] = defaultdict(float)
    for event in events:
        verdicts[event.backend][event.verdict] += 1
        seconds[event.backend] += event.seconds
    lines = [
        "| backend | variants | verdicts | outputs | with eager's bits | seconds of all variants |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for backend, words in sorted(verdicts.items()):
        entries = [backends[backend] for backends in numbers.values() if backend in backends]
        same = sum(not entry["different"] for entry in entries)
        text = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
        lines.append(
            f"| {backend} | {sum(words.values())} | {text} | {len(entries)} | {same} | {seconds[backend]:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    arguments = parser.parse_args()
    events = [*finished(arguments.logs)]
    numbers = measured(events)
    text = f"\n{summary(events, numbers)}\n{table(numbers)}\n"
    if arguments.write is None:
        print(text)
        return 0
    page = arguments.write.read_text(encoding="utf-8")
    arguments.write.write_text(re.sub(rf"(?s)(?<={BEGIN}).*(?={END})", lambda _: text, page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
