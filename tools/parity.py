"""Record what the runner says of the shipped suites, and compare two records: a change of code alone changes no verdict.

python tools/parity.py record FOLDER [--only smoke,found] [--runner PATH] [-- further arguments of runner run]
python tools/parity.py compare OLD NEW

A record is a folder with the event log of each suite. The comparison leaves out times, output and what is where on this machine.
The number of model runs behind a variant may fall and not grow.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.record.events import Key, VariantFinished, finished_of, to_json
from runner.record.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]

PYTHON = ("--allow-python",)
RUNS: Mapping[str, Sequence[str]] = {
    "smoke": ("suites/smoke.suite.yaml",),
    "seeds": ("specs/seeds", "--backend", "aot_eager", "--backend", "inductor", *PYTHON),
    "regressions": ("suites/regressions.suite.yaml", "--no-known", *PYTHON),
    "found": ("suites/found.suite.yaml",),
    "negative": ("suites/negative.suite.yaml",),
    "models": ("suites/models.suite.yaml",),
    "chains": ("suites/chains.suite.yaml",),
    "dynamic": ("suites/dynamic.suite.yaml",),
    "kernels": ("suites/kernels.suite.yaml", *PYTHON),
    "gpu": ("suites/gpu.suite.yaml", *PYTHON),
    "operators": ("suites/operators.suite.yaml", "--shard", "1/3"),
}
"""What is recorded: a name, and the arguments of ``runner run``. Of the operators a third, chosen by a hash of each id."""

VOLATILE = frozenset(
    {
        "event",
        "seconds",
        "spent",
        "output",
        "stack",
        "host",
        "cached",
        "stored_graphs",
        "entry",
        "file",
        "python",
        "repro",
    }
)
"""Fields that differ from run to run, or from checkout to checkout."""


def record(folder: Path, names: Sequence[str], runner: str, further: Sequence[str]) -> int:
    """Run suites and keep each event log. Return 0 unless a run did not end: 0 and 1 are both an end."""
    folder.mkdir(parents=True, exist_ok=True)
    codes = {}
    for name in names:
        log = folder / f"{name}.jsonl"
        command = [runner, "run", *RUNS[name], "--recompile", "-q", "--events", str(log.resolve()), *further]
        codes[name] = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
        print(f"{name}: exit code {codes[name]}", flush=True)
    return int(any(code not in (0, 1) for code in codes.values()))


def results(folder: Path) -> dict[tuple[str, Key], VariantFinished]:
    """Return the verdicts of a record by the name of the log and the variant's key."""
    return {
        (path.stem, key): result
        for path in sorted(folder.glob("*.jsonl"))
        for key, result in finished_of(read_journal(path)[0]).items()
    }


_ELSEWHERE = re.compile(r"0x[0-9a-f]+|\b[0-9]{12,}\b|(?<![\w/])/[^\s:\"']*/(?=(?:specs|suites|runner|tests)/)")
"""What differs from process to process, or from checkout to checkout: addresses, and the folder of the checkout."""


def comparable(value: Any) -> Any:
    """Return a value of a log without tracebacks and without what is where."""
    match value:
        case str():
            return _ELSEWHERE.sub("", value)
        case Mapping():
            return {key: comparable(item) for key, item in value.items() if key != "trace"}
        case list() | tuple():
            return [comparable(item) for item in value]
    return value


def differences(old: VariantFinished, new: VariantFinished) -> Iterator[tuple[str, Any, Any]]:
    """Yield each field that differs, with both values."""
    old_fields, new_fields = to_json(old), to_json(new)
    for name in old_fields.keys() - VOLATILE - {"model_runs"}:
        if comparable(old_fields[name]) != comparable(new_fields[name]):
            yield name, old_fields[name], new_fields[name]
    if old.model_runs is not None and (new.model_runs or 0) > old.model_runs:
        yield "model_runs", old.model_runs, new.model_runs


def compare(old: Path, new: Path) -> int:
    """Print what differs between two records. Return 1 where anything does, or nothing is in both."""
    old_results, new_results = results(old), results(new)
    counts: Counter[str] = Counter()
    for key in sorted(old_results.keys() | new_results.keys()):
        if key not in old_results or key not in new_results:
            counts["missing"] += 1
            print(f"{key}: only in {old if key in old_results else new}")
            continue
        for name, first, second in differences(old_results[key], new_results[key]):
            counts[name] += 1
            print(f"{key}: {name}\n  {first}\n  {second}")
    common = len(old_results.keys() & new_results.keys())
    print(f"{common} variants in both records; differences: {dict(counts) or 'none'}")
    return int(bool(counts) or not common)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--only", default=",".join(RUNS))
    recording.add_argument("--runner", default=str(Path(sys.executable).with_name("runner")))
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    given = list(sys.argv[1:] if words is None else words)
    end = given.index("--") if "--" in given else len(given)  # argparse of Python 3.12 refuses what follows
    arguments = parser.parse_args(given[:end])
    if arguments.command == "compare":
        return compare(arguments.old, arguments.new)
    return record(arguments.folder, arguments.only.split(","), arguments.runner, given[end + 1 :])


if __name__ == "__main__":
    sys.exit(main())
