"""How long many small variants take: as scripts, under pytest, under pytest-xdist, and by the runner.

    python bench/throughput.py -n 20                                     a first impression
    python bench/throughput.py --json all.json                           everything; takes hours on two cores
    python bench/throughput.py --backend inductor --ways runner --temperatures cold --json part.json
    python bench/throughput.py --merge part.json other.json              the table of several parts

All ways run the same chains of three to eight operators, whose kernels all differ, with the same number of intra-op
threads and torch's settings as they are. "cold" begins without any cache, the precompiled header included; "warm" is
a further pass with what the last one of that way left. Seconds are the wall time of the whole command, imports
included. Each way must judge every variant green, or the bench stops. "runner-cached" is ``--cached``: its warm pass
takes all results from the cold one. Exits with 1 when a target is missed, with 3 when a way broke.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import commands
from commands import Target, command_line, option, report_measurement, target_table, write_json
from tabulate import tabulate
from throughput_cases import SEED, write_cases
from throughput_ways import NEEDS, WAYS, Measurement, Work, measure

BACKENDS = ("aot_eager", "inductor")
TEMPERATURES = ("cold", "warm")
SCHEMA = 1


Medians = Mapping[tuple[str, str, str], Measurement]


def medians(measurements: Sequence[Measurement]) -> Medians:
    """Return medians by backend, temperature and way, in the table's order.

    Raises:
        ValueError: they are of different settings (variants, slots, seed, torch, processors).
    """
    settings = {measurement.setting for measurement in measurements}
    if len(settings) > 1:
        names = "variants, slots, seed, torch, processors"
        raise ValueError(f"these are not alike in ({names}): {sorted(map(str, settings))}")
    groups = commands.medians(measurements, lambda measurement: measurement.key, "seconds", "cpu", "load", "parts")
    counts = Counter(measurement.key for measurement in measurements)
    order = [(backend, temperature, way) for backend in BACKENDS for temperature in TEMPERATURES for way in WAYS]
    return {key: dataclasses.replace(groups[key], passes=counts[key]) for key in order if key in groups}


RATIOS = (
    ("inductor", "cold", "runner", "scripts", 6.0), ("inductor", "cold", "runner", "pytest", 1.5),
    ("inductor", "cold", "runner", "xdist", 1.2), ("inductor", "warm", "runner", "xdist", 1.3),
    ("inductor", "warm", "runner-cached", "xdist", 1.3), ("aot_eager", "cold", "runner", "scripts", 15.0),
    ("aot_eager", "cold", "runner", "pytest", 1.3), ("aot_eager", "cold", "runner", "xdist", 1.5),
)  # fmt: skip
"""Backend, caches, a way, the way that it is compared with, and how many times as fast it is to be."""


def targets(passes: Medians) -> list[Target]:
    """Return all targets, with what was measured."""

    def ratio(backend: str, caches: str, way: str, base: str) -> float | None:
        pair = passes.get((backend, caches, base)), passes.get((backend, caches, way))
        return pair[0].seconds / pair[1].seconds if pair[0] and pair[1] else None

    inductor, aot = (passes.get((backend, "cold", "runner")) for backend in ("inductor", "aot_eager"))
    share = inductor.outside / inductor.parts["busy"] if inductor and inductor.outside is not None else None
    seconds = aot.outside / aot.count if aot and aot.outside is not None else None
    ray = ratio("aot_eager", "cold", "runner", "runner-ray")
    return [
        *(
            Target(f"{backend}, {caches}: {way} {low:g} times as fast as {base}", "{:.2f} times",
                   ratio(backend, caches, way, base), low=low)
            for backend, caches, way, base, low in RATIOS
        ),
        Target("inductor: at most 10 % of slot time outside torch's phases", "{:.1%}", share, high=0.1),
        Target("aot_eager: at most 0.1 s a variant outside torch's phases", "{:.3f} s", seconds, high=0.1),
        Target("aot_eager: --engine ray takes at most 1.3 times the local engine's time", "{:.2f} times",
               ray, high=1.3),
    ]  # fmt: skip


def render(passes: Medians) -> tuple[str, bool]:
    """Return the tables, and whether a target was missed."""
    first = next(iter(passes.values()))
    setting = f"{first.slots} slots, torch {first.torch}, {first.cpus} processors, seed {first.seed}"
    table, missed = target_table(targets(passes))
    parts = [f"{first.count} variants, {setting}", _ways_table(passes), _runner_table(passes), table]
    return "\n\n".join(filter(None, parts)), missed


def _ways_table(passes: Medians) -> str:
    rows, notes = [], ""
    for (backend, temperature, way), median in passes.items():
        bases = [passes.get((backend, temperature, name)) for name in ("scripts", "pytest")]
        ratios = [f"{base.seconds / median.seconds:.2f}" if base else "" for base in bases]
        seconds = [f"{median.seconds:.1f}", f"{median.seconds / median.count:.2f}", f"{median.cpu:.0f}"]
        if median.ran < median.count:
            way = f"{way} (from {median.ran})"
            notes = '\n"(from N)": only the first N scripts ran; the others count as long as those after the first'
        rows.append([backend, temperature, way, *seconds, *ratios, median.passes, f"{median.load:.1f}"])
    notes = '\n"x scripts": how many times as fast as scripts; "load avg": the machine\'s load before the pass' + notes
    return _table("way, seconds, a variant, CPU s, x scripts, x pytest, passes, load avg", rows) + notes


def _runner_table(passes: Medians) -> str:
    rows = []
    for key, median in passes.items():
        if median.parts:
            parts, outside = median.parts, median.outside
            texts = [f"{parts[name]:.1f}" if name in parts else "" for name in PARTS]
            whole = median.slots * parts.get("jobs", 0.0)
            idle = whole - parts.get("busy", 0.0)
            texts.append(f"{idle:.1f} ({idle / whole:.0%})" if whole else "")
            if outside is not None and parts["busy"]:
                texts += [f"{outside:.1f} ({outside / parts['busy']:.1%})", f"{outside / median.count:.3f}"]
            rows.append([*key, *texts])
    names = ", ".join(["way", *PARTS, "idle", "outside", "a variant"])
    return f"{_table(names, rows)}\n{LEGEND}" if rows else ""


PARTS = ("start", "jobs", "end", "busy", "torch", "load", "judge")
LEGEND = """\
"start": before the first job; "jobs": from the first to the last; "end": after it (wall seconds)
"busy": slot seconds of all jobs; "torch": of these eager, eager again, float64 and the backend's run;
"idle": slots x jobs - busy; "outside": busy - torch, so that forking, loading, process end and all of the
judging count as outside, though judging computes with torch too"""


def _table(names: str, rows: Sequence[Sequence[object]]) -> str:
    headers = ["backend", "caches", *names.split(", ")]
    return tabulate(rows, headers, disable_numparse=True, colalign=["left"] * 3 + ["right"] * (len(headers) - 3))


def run(arguments: argparse.Namespace, root: Path) -> list[Measurement]:
    """Measure what the arguments ask for; with ``--json`` each pass is kept as soon as it has ended.

    Raises:
        Broken: a way did not judge every variant green.
    """
    file, variants = write_cases(root, arguments.count, arguments.seed)
    work = Work(root, file, variants, arguments.seed, arguments.slots, arguments.scripts_sample)
    measurements: list[Measurement] = []
    rounds = range(arguments.rounds)
    for _, backend, way, caches in itertools.product(rounds, arguments.backend, arguments.ways, arguments.temperatures):
        if way != "runner-ray" or backend == "aot_eager":  # what the engine costs shows where the jobs are short
            measurements.append(measure(work, way, backend, caches))
            write(arguments.json, measurements)
    return measurements


def write(path: Path | None, measurements: Sequence[Measurement]) -> None:
    """Keep measurements as JSON, if there is a file for them."""
    write_json(path, {"schema": SCHEMA, "measurements": [dataclasses.asdict(entry) for entry in measurements]})


def read(path: Path) -> list[Measurement]:
    """Return what ``write`` kept.

    Raises:
        ValueError: the file is something else.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']}, not {SCHEMA}")
        return [Measurement(**entry) for entry in data["measurements"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} holds no measurements: {error!r}") from error


def _words(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the type of an option that takes some of ``known``, separated by commas."""

    def parse(text: str) -> list[str]:
        wrong = {*text.split(",")} - {*known}
        if wrong:
            raise argparse.ArgumentTypeError(f"no {', '.join(sorted(wrong))!r}; there is {', '.join(known)}")
        return [word for word in known if word in text.split(",")]

    return parse


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    return command_line(
        __doc__,
        option("-n", dest="count", type=_count, default=200, help="variants (default: 200)"),
        option("--slots", type=_count, default=2, help="processes at once, of xdist and runner (default: 2)"),
        option("--backend", type=_words(BACKENDS), default=[*BACKENDS], help="default: aot_eager,inductor"),
        option("--ways", type=_words(WAYS), default=[*WAYS[:4]], help="default: scripts,pytest,xdist,runner"),
        option("--with-ray", action="store_true", help="also runner --engine ray, for aot_eager"),
        option("--temperatures", type=_words(TEMPERATURES), default=[*TEMPERATURES], help="default: cold,warm"),
        option("--rounds", type=_count, default=1, help="do all of it so often and take medians (default: 1)"),
        option("--scripts-sample", type=_count, default=0, metavar="N", help="run N scripts only and scale"),
        option("--seed", type=int, default=SEED, help=f"of the cases (default: {SEED})"),
        option("--json", type=Path, metavar="FILE", help="keep the measurements, each as soon as it is made"),
        option("--keep", metavar="FOLDER", help="work here, and leave cases, scripts, caches and logs behind"),
        option(
            "--merge", nargs="+", type=Path, metavar="FILE", help="measure nothing: the table of these --json files"
        ),
    )


def report(arguments: argparse.Namespace, root: Path) -> tuple[str, bool]:
    """Measure or merge, and return the tables, and whether a target was missed.

    Raises:
        ValueError: a way needs a package that is not there, or a file holds no measurements.
    """
    if arguments.merge:
        measurements = [entry for file in arguments.merge for entry in read(file)]
        write(arguments.json, measurements)
        return render(medians(measurements))
    if arguments.with_ray and "runner-ray" not in arguments.ways:
        arguments.ways.append("runner-ray")
    for way in arguments.ways:
        if way in NEEDS and importlib.util.find_spec(NEEDS[way]) is None:
            package = {"xdist": "pytest-xdist"}.get(NEEDS[way], NEEDS[way])
            install = f"{sys.executable} -m pip install {package}"
            raise ValueError(f"{way} needs {package}: {install}, or choose other --ways")
    return render(medians(run(arguments, root)))


def main() -> int:
    """Measure or merge, and print; return the exit code."""
    return report_measurement(parser(), report)


if __name__ == "__main__":
    sys.exit(main())
