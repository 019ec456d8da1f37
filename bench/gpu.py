"""How fast Inductor variants go through GPUs, some of which spoil their process, beside one script each.

    python bench/gpu.py                                      256 variants, 5 of them assert, 16 processes on one GPU
    python bench/gpu.py --gpus 1,2 --scripts-sample 0        the same on one GPU and on two, 16 processes on each
    python bench/gpu.py -n 64 --asserting 0 --json one.json  a first impression

The variants are those of ``throughput.py``, on ``cuda``. Those that assert index out of range where they are
compiled, and nowhere else: the kernel's assertion leaves their process unable to do anything on the GPU, and their
verdict must be ERROR; that of all others PASS. Other verdicts are listed, since where Inductor measures before it
chooses it may choose wrongly, and so is what took over a minute. "cold" begins without any cache, "warm" is a second
run over what the first left. "steady" leaves out the first and the last variant of each process: start, and the tail
in which failures are confirmed alone and localized; "whole" is the command's time, "a variant" that by the number of
variants, "CPU s" the processor time of all its processes, their own and the kernel's. Scripts check nothing but
values, as many at once as there are processes; of those that would assert no script is red. Exits with 1 when a
target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import commands
from commands import RUNNER, Cost, Target, command_line, option, report_measurement, say, target_table, write_json
from tabulate import tabulate
from throughput_cases import SEED, make_cases, write_spec
from throughput_ways import busy, make_folders, run_script, run_watched, write_by_hand

from runner.cases.model import Variant

BACKEND = "inductor"
SLOW = 60.0
"""Seconds after which a variant is named: none of them has a reason to take so long."""

_ASSERTING = '''"""Indexes out of range where it is compiled."""

import torch


class Asserting(torch.nn.Module):
    """``scale`` makes each case's kernel its own."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Rows of ``x``."""
        if torch.compiler.is_compiling():
            index = index + 1000
        return torch.sin(x * self.scale)[index]
'''


@dataclass(frozen=True)
class Measurement:
    """One run of ``count`` variants, ``asserting`` of which assert. Times are seconds of wall time."""

    way: str  # scripts or runner
    gpus: int
    caches: str
    slots: int
    count: int
    asserting: int
    ran: int
    whole: float
    steady: float | None = None  # a variant
    ends: Sequence[float] = ()  # when each variant ended, after the command's begin
    wrong: Sequence[str] = ()  # verdicts other than the right ones, and what took longer than SLOW
    user: float = 0.0  # processor seconds of all its processes
    system: float = 0.0

    @property
    def key(self) -> tuple[str, int, str]:
        """Return what its table row is for."""
        return self.way, self.gpus, self.caches


def write_cases(folder: Path, count: int, asserting: int, seed: int) -> tuple[Path, list[Variant]]:
    """Write the cases, those that assert spread among the others; return the file and the variants that do not assert.

    Raises:
        ValueError: the runner finds the file wrong.
    """
    cases = make_cases(count - asserting, seed)
    index = {"shape": [4], "dtype": "int64", "init": {"randint": [0, 8]}}
    for number in range(asserting):
        case = {
            "name": f"asserting_{number}", "inputs": {"x": [8, 8], "index": index},
            "module": {"file": "asserting.py", "name": "Asserting", "args": {"scale": 1.5 + number}},
        }  # fmt: skip
        cases.insert((number + 1) * count // (asserting + 1), case)
    (folder / "asserting.py").write_text(_ASSERTING, encoding="utf-8")
    file = folder / "gpu.spec.yaml"
    variants = write_spec(file, cases, devices=("cuda",), allow_python=True)
    return file, [variant for variant in variants if variant.case.module is None]


def steady(times: Sequence[float], slots: int) -> float | None:
    """Return wall seconds a variant between the first and the last ``slots`` ends; None where too few remain."""
    inner = sorted(times)[slots : len(times) - slots]
    return (inner[-1] - inner[0]) / (len(inner) - 1) if len(inner) > slots else None


def is_right(key: str, verdict: str) -> bool:
    """Return whether the verdict of the variant with the id ``key`` is the right one."""
    return verdict == ("ERROR" if "::asserting_" in key else "PASS")


def run_runner(file: Path, place: Path, gpus: int, slots: int, seed: int) -> tuple[Cost, list[float], list[str]]:
    """Run them all on the first ``gpus`` GPUs.

    Returns:
        the cost, after how many seconds each variant ended, and what is not as it should be: a wrong verdict, or the
        right one after too long.

    Raises:
        Broken: the command did not come to its end.
    """
    words = [*RUNNER, "run", str(file), "--allow-python", "--device", "cuda", "--backend", BACKEND, "-j", str(slots)]
    devices = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))).split(",")[:gpus]
    began = time.monotonic()
    cost, ends = run_watched([*words, "--seed", str(seed)], place, CUDA_VISIBLE_DEVICES=",".join(devices))
    results = [result for _, result in ends]
    faults = []
    for result in sorted(results, key=lambda result: is_right(result["id"], result["verdict"])):
        text = f"{result['id']}: {result['reason']}"
        if not is_right(result["id"], result["verdict"]):
            faults.append(f"{result['verdict']} {text}")
        elif busy(result) > SLOW:
            faults.append("; ".join([f"{busy(result):.0f} s {text}", *result["notes"]]))
    return cost, [moment - began for moment, _ in ends], faults


def run_by_hand(root: Path, variants: Sequence[Variant], slots: int) -> tuple[float, list[Cost]]:
    """Run one script each, ``slots`` at once; return wall seconds, and what each cost.

    Raises:
        Broken: one failed.
    """
    write_by_hand(root / BACKEND / "by-hand", variants, BACKEND)
    place = make_folders(root / "scripts")
    began = time.monotonic()
    with ThreadPoolExecutor(slots) as pool:
        costs = [*pool.map(lambda variant: run_script(root / BACKEND, variant.case.name, place), variants)]
    return time.monotonic() - began, costs


def measure(arguments: argparse.Namespace, root: Path) -> list[Measurement]:
    """Run all that the arguments ask for, and write each down as soon as it has ended.

    Raises:
        Broken: see ``run_runner`` and ``run_by_hand``.
    """
    count, asserting = arguments.count, arguments.asserting
    file, plain = write_cases(root, count, asserting, arguments.seed)
    measurements: list[Measurement] = []

    def add(measurement: Measurement) -> None:
        measurements.append(measurement)
        say(f"{measurement.key}: {measurement.whole:.1f} s, steady {measurement.steady or 0:.4f} s")
        write_json(arguments.json, [dataclasses.asdict(entry) for entry in measurements])

    if arguments.scripts_sample:
        variants, slots = plain[: arguments.scripts_sample], arguments.per_gpu
        with cores(arguments.cores):
            seconds, costs = run_by_hand(root, variants, slots)
        scale = count / len(variants)
        user, system = (scale * sum(getattr(cost, name) for cost in costs) for name in ("user", "system"))
        setting = ("scripts", 1, "cold", slots, count, 0, len(variants))
        add(Measurement(*setting, seconds * scale, user=user, system=system))
    for turn in range(arguments.rounds):
        for gpus in arguments.gpus:
            slots = arguments.per_gpu * gpus
            place = make_folders(root / f"runner-{turn}-{gpus}")
            for caches in ("cold", "warm"):
                with cores(arguments.cores * gpus):
                    cost, ends, wrong = run_runner(file, place, gpus, slots, arguments.seed)
                setting = ("runner", gpus, caches, slots, count, asserting, len(ends))
                add(Measurement(*setting, cost.seconds, steady(ends, slots), ends, wrong, cost.user, cost.system))
    return measurements


@contextlib.contextmanager
def cores(count: int) -> Iterator[None]:
    """Let what is started meanwhile use so many processor cores; 0: all."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[: count or None])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def medians(measurements: Sequence[Measurement]) -> dict[tuple[str, int, str], Measurement]:
    """Return one measurement for each way, number of GPUs and state of the caches: the median of the rounds."""
    return commands.medians(measurements, lambda measurement: measurement.key, "whole", "steady")


def targets(runs: Mapping[tuple[str, int, str], Measurement]) -> list[Target]:
    """Return what was to be reached, and what was. Caches are cold."""
    keys = ("runner", 1, "cold"), ("runner", 2, "cold"), ("scripts", 1, "cold")
    alone, pair, scripts = (runs.get(key) for key in keys)
    calm = alone.steady if alone else None
    speedup = scripts.whole / alone.whole if scripts and alone else None
    gain = calm / pair.steady if calm and pair and pair.steady else None
    return [
        Target("at most 60 ms a variant in steady state, 16 processes", "{:.4f} s", calm, high=0.060),
        Target("at least 10 times as fast as one script each", "{:.1f} times", speedup, low=10.0),
        Target("two GPUs at least 1.8 times as fast as one, steady", "{:.2f} times", gain, low=1.8),
    ]


def render(measurements: Sequence[Measurement]) -> tuple[str, bool]:
    """Return the tables, and whether a target was missed."""
    runs, first = medians(measurements), measurements[0]
    rows = [
        [
            run.way, run.gpus, run.slots, run.caches, f"{run.whole:.1f}", f"{run.whole / run.count:.4f}",
            f"{run.steady:.4f}" if run.steady else "", f"{run.user:.0f} + {run.system:.0f}", run.ran, len(run.wrong),
        ]
        for run in runs.values()
    ]  # fmt: skip
    headers = ["way", "GPUs", "slots", "caches", "whole s", "a variant", "steady", "CPU s", "ran", "wrong"]
    table, missed = target_table(targets(runs))
    wrong = [f"{run.gpus} GPUs, {run.caches}: {fault}" for run in measurements for fault in run.wrong]
    asserting = max(run.asserting for run in measurements)
    parts = [f"{first.count} variants, of which {asserting} assert under the runner",
             tabulate(rows, headers=headers, disable_numparse=True), table]  # fmt: skip
    return "\n\n".join([*parts, *["\n".join(["not as they should be:", *wrong])] * bool(wrong)]), missed


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: each is to be at least 1")
    return numbers


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    return command_line(
        __doc__,
        option("-n", dest="count", type=int, default=256, help="variants, those that assert too (default: 256)"),
        option("--asserting", type=int, default=5, help="how many spoil their process (default: 5)"),
        option("--gpus", type=_numbers, default=[1], help="numbers of GPUs to use, such as 1,2 (default: 1)"),
        option("--per-gpu", type=int, default=16, help="processes for each GPU (default: 16)"),
        option("--cores", type=int, default=0, help="processor cores for each GPU (default: all there are)"),
        option("--scripts-sample", type=int, default=64, metavar="N", help="run N scripts and scale (default: 64)"),
        option("--rounds", type=int, default=1, help="take medians of so many (default: 1)"),
        option("--seed", type=int, default=SEED, help=f"of the cases (default: {SEED})"),
        option("--json", type=Path, metavar="FILE", help="keep the measurements"),
        option("--keep", metavar="FOLDER", help="work here, and leave everything behind"),
    )


if __name__ == "__main__":
    sys.exit(report_measurement(parser(), lambda arguments, root: render(measure(arguments, root))))
