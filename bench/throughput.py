"""How long many small variants take: as scripts, under pytest, under pytest-xdist, and by the runner.

    python bench/throughput.py -n 20                                     a first impression
    python bench/throughput.py --json all.json                           everything; takes hours on two cores
    python bench/throughput.py --backend inductor --ways runner --temperatures cold --json part.json
    python bench/throughput.py --merge part.json other.json              the table of several parts

All ways run the same chains of three to eight operators, whose kernels all differ, with the same number of intra-op threads
and torch's settings as they are. "cold" begins without any cache, the precompiled header included; "warm" is a further pass
with what the last one of that way left. Seconds are the wall time of the whole command, imports included. Each way must
judge every variant green, or the bench stops. "runner-cached" is ``--cached``: its warm pass takes all results from the cold
one. Exits with 1 when a target is missed, with 3 when a way broke.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from tabulate import tabulate
from throughput_cases import SEED, write_cases
from throughput_ways import NEEDS, WAYS, Broken, Work, measure

BACKENDS = ("aot_eager", "inductor")
TEMPERATURES = ("cold", "warm")
SCHEMA = 1


@dataclass(frozen=True)
class Measurement:
    """One pass. ``ran`` of ``count`` variants ran, the rest is extrapolated; ``load`` is the machine's load before it."""

    backend: str
    way: str
    temperature: str
    seconds: float
    cpu: float
    count: int
    ran: int
    slots: int
    seed: int
    torch: str
    cpus: int
    load: float
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be alike to be compared."""
        return self.count, self.slots, self.seed, self.torch, self.cpus


@dataclass(frozen=True)
class Median:
    """The passes of one way, backend and temperature."""

    passes: Sequence[Measurement]

    @property
    def seconds(self) -> float:
        """Of the whole command."""
        return statistics.median(one.seconds for one in self.passes)

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        return statistics.median(one.cpu for one in self.passes)

    @property
    def scaled(self) -> bool:
        """Whether only a sample of the scripts ran."""
        return any(one.ran < one.count for one in self.passes)

    def part(self, name: str) -> float | None:
        """Seconds of a part of the runner's time; None where the journal did not say."""
        known = [one.parts[name] for one in self.passes if name in one.parts]
        return statistics.median(known) if len(known) == len(self.passes) else None

    @property
    def outside(self) -> float | None:
        """Slot seconds outside torch's own phases (both eager runs, float64, the backend's)."""
        busy, torch = self.part("busy"), self.part("torch")
        return busy - torch if busy is not None and torch is not None else None


Medians = Mapping[tuple[str, str, str], Median]


@dataclass(frozen=True)
class Target:
    """Something to reach: a value of at least ``low`` and at most ``high``; None was not measured. ``text`` shows it."""

    what: str
    text: str
    value: float | None
    low: float = -math.inf
    high: float = math.inf

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.value is None:
            return "not measured"
        return "met" if self.low <= self.value <= self.high else "MISSED"


def medians(measurements: Sequence[Measurement]) -> dict[tuple[str, str, str], Median]:
    """By backend, temperature and way, in the table's order.

    Raises:
        ValueError: they are of different settings (variants, slots, seed, torch, processors).
    """
    settings = {one.setting for one in measurements}
    if len(settings) > 1:
        raise ValueError(
            f"these are not alike in (variants, slots, seed, torch, processors): {sorted(map(str, settings))}"
        )
    order = [(b, t, w) for b in BACKENDS for t in TEMPERATURES for w in WAYS]
    found = {key: [one for one in measurements if (one.backend, one.temperature, one.way) == key] for key in order}
    return {key: Median(passes) for key, passes in found.items() if passes}


def targets(found: Medians) -> list[Target]:
    """All targets, with what was measured."""

    def ratio(backend: str, way: str, other: str, caches: str = "cold") -> float | None:
        both = [found.get((backend, caches, name)) for name in (other, way)]
        return None if both[0] is None or both[1] is None else both[0].seconds / both[1].seconds

    made = [
        Target(f"{backend}, {caches}: {way} {low:g} times as fast as {other}", "{:.2f} times", value, low=low)
        for backend, caches, way, other, low in (
            ("inductor", "cold", "runner", "scripts", 6.0),
            ("inductor", "cold", "runner", "pytest", 1.5),
            ("inductor", "cold", "runner", "xdist", 1.2),
            ("inductor", "warm", "runner", "xdist", 1.3),
            ("inductor", "warm", "runner-cached", "xdist", 1.3),
            ("aot_eager", "cold", "runner", "scripts", 15.0),
            ("aot_eager", "cold", "runner", "pytest", 1.3),
            ("aot_eager", "cold", "runner", "xdist", 1.5),
        )
        for value in [ratio(backend, way, other, caches)]
    ]
    inductor, aot = (found.get((backend, "cold", "runner")) for backend in ("inductor", "aot_eager"))
    share = each = None
    if inductor is not None and inductor.outside is not None:
        share = inductor.outside / (inductor.part("busy") or 1.0)
    if aot is not None and aot.outside is not None:
        each = aot.outside / aot.passes[0].count
    ray = ratio("aot_eager", "runner", "runner-ray")
    made += [
        Target("inductor: at most 10 % of slot time outside torch's phases", "{:.1%}", share, high=0.1),
        Target("aot_eager: at most 0.1 s a variant outside torch's phases", "{:.3f} s", each, high=0.1),
        Target(
            "aot_eager: --engine ray takes at most 1.3 times the local engine's time", "{:.2f} times", ray, high=1.3
        ),
    ]
    return made


def render(found: Medians) -> tuple[str, bool]:
    """The tables, and whether a target was missed."""
    one = next(iter(found.values())).passes[0]
    parts = [f"{one.count} variants, {one.slots} slots, torch {one.torch}, {one.cpus} processors, seed {one.seed}"]
    parts += [_ways_table(found), _runner_table(found), ""]
    chosen = targets(found)
    rows = [[t.what, "" if t.value is None else t.text.format(t.value), t.verdict] for t in chosen]
    parts.append(tabulate(rows, headers=["target", "measured", ""], disable_numparse=True))
    return "\n".join(parts), any(target.verdict == "MISSED" for target in chosen)


def _ways_table(found: Medians) -> str:
    rows = []
    for (backend, temperature, way), median in found.items():
        ratios = []
        for other in ("scripts", "pytest"):
            base = found.get((backend, temperature, other))
            ratios.append(f"{base.seconds / median.seconds:.2f}" if base is not None else "")
        name = f"{way} (from {median.passes[0].ran})" if median.scaled else way
        seconds = [f"{median.seconds:.1f}", f"{median.seconds / median.passes[0].count:.2f}", f"{median.cpu:.0f}"]
        load = max(one.load for one in median.passes)
        rows.append([backend, temperature, name, *seconds, *ratios, len(median.passes), f"{load:.1f}"])
    headers = [
        "backend",
        "caches",
        "way",
        "seconds",
        "a variant",
        "CPU s",
        "x scripts",
        "x pytest",
        "passes",
        "load avg",
    ]
    text = tabulate(rows, headers=headers, disable_numparse=True, colalign=["left"] * 3 + ["right"] * 7)
    text += '\n"x scripts": how many times as fast as scripts; "load avg": the machine\'s load before the pass'
    if any(median.scaled for median in found.values()):
        text += (
            '\n"(from N)": only the first N scripts ran; the others are taken to last as long as those after the first'
        )
    return f"\n{text}\n"


def _runner_table(found: Medians) -> str:
    rows = []
    for (backend, temperature, way), median in found.items():
        if not way.startswith("runner"):
            continue
        values = {name: median.part(name) for name in ("start", "jobs", "end", "busy", "torch", "load", "judge")}
        one, jobs, busy, outside = median.passes[0], values["jobs"] or 0.0, values["busy"] or 0.0, median.outside
        idle = one.slots * jobs - busy
        told = [f"{idle:.1f} ({idle / (one.slots * jobs):.0%})" if jobs else ""]
        told.append(f"{outside:.1f} ({outside / busy:.1%})" if outside is not None and busy else "")
        told.append(f"{outside / one.count:.3f}" if outside is not None else "")
        shown = ["" if value is None else f"{value:.1f}" for value in values.values()]
        rows.append([backend, temperature, way, *shown, *told])
    if not rows:
        return ""
    headers = ["backend", "caches", "way", "start", "jobs", "end", "busy", "torch", "load", "judge", "idle", "outside",
               "a variant"]  # fmt: skip
    text = tabulate(rows, headers=headers, disable_numparse=True, colalign=["left"] * 3 + ["right"] * 10)
    return (
        f"{text}\n"
        '"start": before the first job; "jobs": from the first to the last; "end": after it (wall seconds)\n'
        '"busy": slot seconds of all jobs; "torch": of these eager, eager again, float64 and the backend\'s run;\n'
        '"idle": slots x jobs - busy; "outside": busy - torch, so that forking, loading, process end and all of the\n'
        "judging count as outside, though judging computes with torch too"
    )


def run(arguments: argparse.Namespace, root: Path) -> list[Measurement]:
    """Measure what the arguments ask for; with ``--json`` each pass is kept as soon as it has ended.

    Raises:
        Broken: a way did not judge every variant green.
    """
    say = _Progress()
    file, variants = write_cases(root, arguments.count, arguments.seed)
    work = Work(root, file, variants, arguments.seed, arguments.slots, arguments.scripts_sample, say)
    done: list[Measurement] = []
    for _ in range(arguments.rounds):
        for backend in arguments.backend:
            for way in arguments.ways:
                if way == "runner-ray" and backend != "aot_eager":
                    continue  # what the engine costs shows where the jobs are short
                for temperature in arguments.temperatures:
                    load = os.getloadavg()[0]
                    say(f"{backend} {way} {temperature} begins")
                    one = measure(work, way, backend, warm=temperature == "warm")
                    say(f"{backend} {way} {temperature}: {one.seconds:.1f} s")
                    done.append(
                        Measurement(
                            backend, way, temperature, one.seconds, one.cpu, work.count, one.ran, work.slots, work.seed,
                            version("torch"), os.cpu_count() or 0, load, dict(one.parts),
                        )
                    )  # fmt: skip
                    if arguments.json:
                        write(Path(arguments.json), done)
    return done


class _Progress:
    """Lines with the minutes since the begin, to stderr."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"[{minutes:3d}:{seconds:02d}] {text}", file=sys.stderr, flush=True)


def write(path: Path, measurements: Sequence[Measurement]) -> None:
    """Keep measurements as JSON."""
    data = {"schema": SCHEMA, "measurements": [dataclasses.asdict(one) for one in measurements]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Measurement]:
    """What ``write`` kept.

    Raises:
        ValueError: the file is something else.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']}, not {SCHEMA}")
        return [Measurement(**one) for one in data["measurements"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} holds no measurements: {error!r}") from error


def _words(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of ``known``, separated by commas."""

    def parse(text: str) -> list[str]:
        wrong = [word for word in text.split(",") if word not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"no {', '.join(wrong)!r}; there is {', '.join(known)}")
        return [word for word in known if word in text.split(",")]

    return parse


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("-n", dest="count", type=_count, default=200, help="variants (default: 200)")
    made.add_argument("--slots", type=_count, default=2, help="processes at once, of xdist and runner (default: 2)")
    made.add_argument("--backend", type=_words(BACKENDS), default=[*BACKENDS], help="default: aot_eager,inductor")
    made.add_argument("--ways", type=_words(WAYS), default=[*WAYS[:4]], help="default: scripts,pytest,xdist,runner")
    made.add_argument("--with-ray", action="store_true", help="also runner --engine ray, for aot_eager")
    made.add_argument("--temperatures", type=_words(TEMPERATURES), default=[*TEMPERATURES], help="default: cold,warm")
    made.add_argument("--rounds", type=_count, default=1, help="do all of it so often and take medians (default: 1)")
    made.add_argument("--scripts-sample", type=_count, default=0, metavar="N", help="run N scripts only and scale")
    made.add_argument("--seed", type=int, default=SEED, help=f"of the cases (default: {SEED})")
    made.add_argument("--json", metavar="FILE", help="keep the measurements, each as soon as it is made")
    made.add_argument("--keep", metavar="FOLDER", help="work here, and leave cases, scripts, caches and logs behind")
    made.add_argument("--merge", nargs="+", metavar="FILE", help="measure nothing: the table of these --json files")
    return made


def main() -> int:
    """Measure or merge, and print; the exit code."""
    line = parser()
    arguments = line.parse_args()
    try:
        if arguments.merge:
            measurements = [one for file in arguments.merge for one in read(Path(file))]
            if arguments.json:
                write(Path(arguments.json), measurements)
        else:
            if arguments.with_ray and "runner-ray" not in arguments.ways:
                arguments.ways.append("runner-ray")
            for way in arguments.ways:
                if way in NEEDS and importlib.util.find_spec(NEEDS[way]) is None:
                    package = {"xdist": "pytest-xdist"}.get(NEEDS[way], NEEDS[way])
                    line.error(
                        f"{way} needs {package}: {sys.executable} -m pip install {package}, or choose other --ways"
                    )
            with tempfile.TemporaryDirectory(prefix="throughput-") as folder:
                root = Path(arguments.keep or folder).resolve()
                root.mkdir(parents=True, exist_ok=True)
                measurements = run(arguments, root)
        text, missed = render(medians(measurements))
    except (ValueError, OSError) as error:
        line.error(str(error))
    except Broken as error:
        print(f"throughput: {error}", file=sys.stderr)
        return 3
    print(text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
