"""How fast Inductor variants go through GPUs, some of which spoil their process, beside one script each.

    python bench/gpu.py                                      256 variants, 5 of them assert, 16 processes on one GPU
    python bench/gpu.py --gpus 1,2 --scripts-sample 0        the same on one GPU and on two, 16 processes on each
    python bench/gpu.py -n 64 --asserting 0 --json one.json  a first impression

The variants are those of ``throughput.py``, on ``cuda``. Those that assert index out of range where they are compiled, and
nowhere else: the kernel's assertion leaves their process unable to do anything on the GPU, and their verdict must be ERROR;
that of all others PASS. Other verdicts are listed, since where Inductor measures before it chooses it may choose wrongly, and
so is what took over a minute. "cold" begins without any cache, "warm" is a second run over what the first left. "steady"
leaves out the first and the last variant of each process: start, and the tail in which failures are confirmed alone and
localized; "whole" is the command's time, "a variant" that by the number of variants, "CPU s" the processor time of all its
processes, their own and the kernel's. Scripts check nothing but values, as many at once as there are processes; of those
that would assert no script is red. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml
from tabulate import tabulate
from throughput_cases import SEED, make_cases
from throughput_ways import Broken, Watch, busy, cpu_seconds, make_folders, run_command, run_script, tail, write_by_hand

from runner.cases.model import Variant
from runner.session.collect import load

BACKEND = "inductor"
STEADY = 0.060
"""Seconds of wall time that a variant may take in steady state, on one GPU with 16 processes."""
SLOW = 60.0
"""Seconds after which a variant is named: none of them has a reason to take so long."""
SCRIPTS = 10.0
"""How many times as fast as one script each the runner is to be."""
TWO = 1.8
"""How many times as fast two GPUs are to be as one."""

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
    def each(self) -> float:
        """Wall time by variant."""
        return self.whole / self.count


def write_cases(folder: Path, count: int, asserting: int, seed: int) -> tuple[Path, list[Variant]]:
    """Write the cases, those that assert spread among the others; the file and the variants that do not assert.

    Raises:
        ValueError: the runner finds the file wrong.
    """
    cases = make_cases(count - asserting, seed)
    for number in range(asserting):
        index = {"shape": [4], "dtype": "int64", "init": {"randint": [0, 8]}}
        module = {"file": "asserting.py", "name": "Asserting", "args": {"scale": 1.5 + number}}
        case = {"name": f"asserting_{number}", "inputs": {"x": [8, 8], "index": index}, "module": module}
        cases.insert((number + 1) * count // (asserting + 1), case)
    (folder / "asserting.py").write_text(_ASSERTING, encoding="utf-8")
    file = folder / "gpu.spec.yaml"
    text = yaml.safe_dump({"cases": cases}, sort_keys=False, default_flow_style=None, width=120)
    file.write_text(text, encoding="utf-8")
    loaded = load([str(file)], devices=("cuda",), everything=True, allow_python=True)
    if loaded.diagnostics or len(loaded.variants) != count:
        raise ValueError("\n".join(diagnostic.render() for diagnostic in loaded.diagnostics[:5]) or f"{file}: too few")
    return file, [variant for variant in loaded.variants if variant.case.module is None]


def steady(times: Sequence[float], slots: int) -> float | None:
    """Wall seconds a variant between the first and the last ``slots`` ends; None where too few remain."""
    inner = sorted(times)[slots : len(times) - slots]
    return (inner[-1] - inner[0]) / (len(inner) - 1) if len(inner) > slots else None


def expected(key: str, verdict: str) -> bool:
    """Whether the verdict of the variant with the id ``key`` is the right one."""
    return verdict == ("ERROR" if "::asserting_" in key else "PASS")


def run_runner(file: Path, place: Path, gpus: int, slots: int, seed: int) -> tuple[float, list[float], list[str]]:
    """Run them all on the first ``gpus`` GPUs.

    Gives wall seconds, after how many of them each variant ended, and what is not as it should be: a wrong verdict, or the
    right one after too long.

    Raises:
        Broken: the command did not come to its end.
    """
    command = [sys.executable, "-m", "runner", "run", str(file), "--allow-python", "--device", "cuda"]
    command += ["--backend", BACKEND, "-j", str(slots), "--seed", str(seed)]
    latest = place / "run" / ".runner" / "latest"
    latest.unlink(missing_ok=True)
    watch = Watch(latest / "events.jsonl")
    ours = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
    began = time.monotonic()
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(ours.split(",")[:gpus])}
    code = run_command(command, place / "run", place, watch.look, shown)
    seconds = time.monotonic() - began
    watch.look()
    if code not in (0, 1) or not watch.finished:
        raise Broken(f"exit code {code} after {len(watch.finished)} variants\n{tail(place / 'output')}")
    wrong = [one for one in watch.finished if not expected(one["id"], one["verdict"])]
    told = [f"{one['verdict']} {one['id']}: {one['reason']}" for one in wrong]
    slow = [one for one in watch.finished if one not in wrong and busy(one) > SLOW]
    told += [f"{busy(one):.0f} s {one['id']}: {'; '.join([one['reason'], *one['notes']])}" for one in slow]
    return seconds, [end - began for end in watch.times], told


def run_by_hand(root: Path, variants: Sequence[Variant], slots: int) -> float:
    """One script each, ``slots`` at once; wall seconds.

    Raises:
        Broken: one failed.
    """
    write_by_hand(root / BACKEND / "by-hand", variants, BACKEND)
    place = make_folders(root / "scripts")
    began = time.monotonic()
    with ThreadPoolExecutor(slots) as pool:
        list(pool.map(lambda variant: run_script(root / BACKEND, variant.case.name, place), variants))
    return time.monotonic() - began


def measure(arguments: argparse.Namespace, root: Path) -> list[Measurement]:
    """All runs that the arguments ask for, each written down as soon as it has ended.

    Raises:
        Broken: see ``run_runner`` and ``run_by_hand``.
    """
    count, asserting = arguments.count, arguments.asserting
    file, plain = write_cases(root, count, asserting, arguments.seed)
    done: list[Measurement] = []

    def add(one: Measurement) -> None:
        done.append(one)
        print(
            f"{one.way} {one.gpus} {one.caches}: {one.whole:.1f} s, steady {one.steady or 0:.4f} s",
            file=sys.stderr,
            flush=True,
        )
        if arguments.json:
            text = json.dumps([dataclasses.asdict(each) for each in done], indent=1)
            Path(arguments.json).write_text(text + "\n", encoding="utf-8")

    if arguments.scripts_sample:
        some, slots = plain[: arguments.scripts_sample], arguments.per_gpu
        with cores(arguments.cores):
            before, seconds = cpu_seconds(), run_by_hand(root, some, slots)
        scale = count / len(some)
        user, system = ((now - then) * scale for now, then in zip(cpu_seconds(), before, strict=True))
        whole = seconds * scale
        add(Measurement("scripts", 1, "cold", slots, count, 0, len(some), whole, user=user, system=system))
    for turn in range(arguments.rounds):
        for gpus in arguments.gpus:
            slots = arguments.per_gpu * gpus
            place = make_folders(root / f"runner-{turn}-{gpus}")
            for caches in ("cold", "warm"):
                before = cpu_seconds()
                with cores(arguments.cores * gpus):
                    whole, ends, wrong = run_runner(file, place, gpus, slots, arguments.seed)
                took = (now - then for now, then in zip(cpu_seconds(), before, strict=True))
                calm = steady(ends, slots)
                made = (slots, count, asserting, len(ends), whole, calm, ends, wrong)
                add(Measurement("runner", gpus, caches, *made, *took))
    return done


@contextlib.contextmanager
def cores(count: int) -> Iterator[None]:
    """What is started meanwhile may use so many processor cores; 0: all."""
    before = os.sched_getaffinity(0)
    if count:
        os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def medians(found: Sequence[Measurement]) -> dict[tuple[str, int, str], Measurement]:
    """One measurement for each way, number of GPUs and state of the caches: the median of the rounds."""
    keys = dict.fromkeys((one.way, one.gpus, one.caches) for one in found)
    made = {}
    for key in keys:
        same = [one for one in found if (one.way, one.gpus, one.caches) == key]
        calm = [one.steady for one in same if one.steady is not None]
        whole = statistics.median(one.whole for one in same)
        made[key] = dataclasses.replace(same[0], whole=whole, steady=statistics.median(calm) if calm else None)
    return made


def targets(found: Mapping[tuple[str, int, str], Measurement]) -> list[tuple[str, str, str]]:
    """What was to be reached, what was, and in a word whether it was. Caches are cold."""
    rows = []

    def add(what: str, text: str, value: float | None, good: bool) -> None:
        rows.append(
            (what, "" if value is None else text.format(value), "" if value is None else ("met" if good else "MISSED"))
        )

    one, two, scripts = (
        found.get(key) for key in (("runner", 1, "cold"), ("runner", 2, "cold"), ("scripts", 1, "cold"))
    )
    calm = one.steady if one else None
    add(f"at most {STEADY * 1000:.0f} ms a variant in steady state", "{:.4f} s", calm, (calm or 0) <= STEADY)
    ratio = scripts.whole / one.whole if scripts and one else None
    add(f"at least {SCRIPTS:.0f} times as fast as one script each", "{:.1f} times", ratio, (ratio or 0) >= SCRIPTS)
    ratio = one.steady / two.steady if one and two and one.steady and two.steady else None
    add(f"two GPUs at least {TWO} times as fast as one, steady", "{:.2f} times", ratio, (ratio or 0) >= TWO)
    return rows


def render(found: Sequence[Measurement]) -> tuple[str, bool]:
    """The tables, and whether a target was missed."""
    shown = [
        [
            m.way,
            m.gpus,
            m.slots,
            m.caches,
            f"{m.whole:.1f}",
            f"{m.each:.4f}",
            f"{m.steady:.4f}" if m.steady else "",
            f"{m.user:.0f} + {m.system:.0f}",
            m.ran,
            len(m.wrong),
        ]
        for m in medians(found).values()
    ]
    headers = ["way", "GPUs", "slots", "caches", "whole s", "a variant", "steady", "CPU s", "ran", "wrong"]
    rows = targets(medians(found))
    first = found[0]
    wrong = "".join(f"\n{m.gpus} GPUs, {m.caches}: {told}" for m in found for told in m.wrong)
    return (
        f"{first.count} variants, of which {max(m.asserting for m in found)} assert under the runner\n\n"
        + tabulate(shown, headers=headers, disable_numparse=True)
        + "\n\n"
        + tabulate(rows, headers=["target (cold)", "measured", ""], disable_numparse=True)
        + (f"\n\nnot as they should be:{wrong}" if wrong else "")
    ), any(row[2] == "MISSED" for row in rows)


def _numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text}: each is to be at least 1")
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "-n", dest="count", type=int, default=256, help="variants, those that assert among them (default: 256)"
    )
    made.add_argument("--asserting", type=int, default=5, help="how many spoil their process (default: 5)")
    made.add_argument("--gpus", type=_numbers, default=[1], help="numbers of GPUs to use, such as 1,2 (default: 1)")
    made.add_argument("--per-gpu", type=int, default=16, help="processes for each GPU (default: 16)")
    made.add_argument("--cores", type=int, default=0, help="processor cores for each GPU (default: all there are)")
    made.add_argument(
        "--scripts-sample", type=int, default=64, metavar="N", help="run N scripts and scale (default: 64)"
    )
    made.add_argument("--rounds", type=int, default=1, help="take medians of so many (default: 1)")
    made.add_argument("--seed", type=int, default=SEED, help=f"of the cases (default: {SEED})")
    made.add_argument("--json", metavar="FILE", help="keep the measurements")
    made.add_argument("--keep", metavar="FOLDER", help="work here, and leave everything behind")
    return made


def main() -> int:
    """Measure and print; the exit code."""
    line = parser()
    arguments = line.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-") as temporary:
            root = Path(arguments.keep or temporary).resolve()
            root.mkdir(parents=True, exist_ok=True)
            text, missed = render(measure(arguments, root))
    except (ValueError, OSError) as error:
        line.error(str(error))
    except Broken as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 3
    print(text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
