"""The ways of ``throughput.py`` to run the same variants: written by hand as scripts or tests, and by the runner."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import string
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from commands import RUNNER, TAIL, Broken, Cost, measure_command, say

from runner.builder.source import build
from runner.cases.model import THREADS, Variant

End = tuple[float, dict[str, Any]]
"""When a variant ended, by ``time.monotonic``, and its event."""

RUNNERS: Mapping[str, Sequence[str]] = {
    "runner": (),
    "runner-living": ("--isolation", "living"),
    "runner-cached": ("--cached",),
    "runner-ray": ("--engine", "ray"),
}
"""Ways that are the runner's: the options of each."""
WAYS = ("scripts", "pytest", "xdist", *RUNNERS)
NEEDS = {"pytest": "pytest", "xdist": "xdist", "runner-ray": "ray"}
"""Module that a way needs beside torch and the runner."""

# What people write: a model and inputs from a seed, eager against compiled, gradients where there are any.
_CHECK = string.Template("""
def run($parameters):
    torch.manual_seed(0)
    model = ${prefix}make_model()
    torch.manual_seed(0)
    inputs = ${prefix}make_inputs()
    call = torch.compile(model, backend=$backend) if compiled else model
    output = call(*inputs)
    if not ${prefix}BACKWARD:
        return [output]
    torch.manual_seed(0)
    output.backward(torch.rand_like(output))
    tensors = [*inputs, *model.parameters()]
    return [output, *(tensor.grad for tensor in tensors if tensor.requires_grad)]
""")
_SCRIPT = string.Template("""

if __name__ == "__main__":
    torch.set_num_threads($threads)
    torch.testing.assert_close(run(compiled=True), run(compiled=False))
""")
_TESTS = string.Template('''"""Eager against torch.compile, one test a case."""

import importlib

import pytest
import torch

torch.set_num_threads($threads)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()

$check

@pytest.mark.parametrize("name", $names)
def test_compiled_as_eager(name):
    case = importlib.import_module(name)
    torch.testing.assert_close(run(case, compiled=True), run(case, compiled=False))
''')


@dataclass(frozen=True)
class Work:
    """What is to be run, and how. ``sample`` is the number of scripts that are really run (0: all)."""

    root: Path
    file: Path
    variants: Sequence[Variant]
    seed: int
    slots: int
    sample: int


@dataclass(frozen=True)
class Measurement:
    """One pass, or the medians of several.

    ``ran`` of ``count`` variants ran, the others are extrapolated; ``load`` is the machine's load before it. ``parts``
    is what a runner's journal says, in seconds.
    """

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
    passes: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what its table row is for."""
        return self.backend, self.temperature, self.way

    @property
    def setting(self) -> tuple[object, ...]:
        """Return what must be alike to be compared."""
        return self.count, self.slots, self.seed, self.torch, self.cpus

    @property
    def outside(self) -> float | None:
        """Return slot seconds outside torch's own phases (both eager runs, float64, the backend's)."""
        return self.parts["busy"] - self.parts["torch"] if {"busy", "torch"} <= self.parts.keys() else None


Pass = tuple[float, float, int, Mapping[str, float]]
"""Seconds of wall and processor time, how many variants ran, and parts."""


def write_by_hand(folder: Path, variants: Sequence[Variant], backend: str) -> None:
    """Write ``scripts/NAME.py`` for each variant, and ``tests/`` with one test file and a module for each."""
    for name in ("scripts", "tests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    main = _CHECK.substitute(backend=repr(backend), parameters="compiled", prefix="") + _SCRIPT.substitute(
        threads=THREADS
    )
    for variant in variants:
        text = f"{build(variant).text}\n\nBACKWARD = {variant.grad.mode == 'backward'}\n\n"
        (folder / "tests" / f"{variant.case.name}.py").write_text(text, encoding="utf-8")
        (folder / "scripts" / f"{variant.case.name}.py").write_text(text + main, encoding="utf-8")
    check = _CHECK.substitute(backend=repr(backend), parameters="case, compiled", prefix="case.")
    names = [variant.case.name for variant in variants]
    tests = _TESTS.substitute(check=check, threads=THREADS, names=names)
    (folder / "tests" / "test_throughput.py").write_text(tests, encoding="utf-8")
    (folder / "tests" / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def measure(work: Work, way: str, backend: str, temperature: str) -> Measurement:
    """Measure one pass of a way, with caches that are new (cold), or as its own last pass left them (warm).

    Caches that hold nothing yet are filled by a pass that is not measured.

    Raises:
        Broken: some variant was not judged, or not green.
    """
    count, is_warm = len(work.variants), temperature == "warm"
    write_by_hand(work.root / backend / "by-hand", work.variants, backend)
    place = work.root / backend / way
    filled = place / "filled"
    key = json.dumps([count, work.seed, work.sample if way == "scripts" else 0])
    if not is_warm:
        shutil.rmtree(place, ignore_errors=True)
    elif not filled.is_file() or filled.read_text(encoding="utf-8") != key:
        say(f"{backend} {way}: no caches yet, filling them (not measured)")
        measure(work, way, backend, "cold")
    make_folders(place)
    filled.unlink(missing_ok=True)
    load = os.getloadavg()[0]
    say(f"{backend} {way} {temperature} begins")
    if way == "scripts":
        result = _run_scripts(work, backend, place)
    elif way in ("pytest", "xdist"):
        result = _run_pytest(work, backend, place, slots=work.slots if way == "xdist" else 0)
    else:
        result = _run_runner(work, backend, place, way, is_warm)
    seconds, cpu, ran, parts = result
    say(f"{backend} {way} {temperature}: {seconds:.1f} s")
    filled.write_text(key, encoding="utf-8")
    setting = (count, ran, work.slots, work.seed, version("torch"), os.cpu_count() or 0)
    return Measurement(backend, way, temperature, seconds, cpu, *setting, load, parts)


def make_folders(place: Path) -> Path:
    """Make ``place`` one to run in, with caches of its own; return ``place`` itself."""
    for name in ("inductor", "xdg", "tmp", "run"):
        (place / name).mkdir(parents=True, exist_ok=True)
    return place


def environment(place: Path) -> dict[str, str]:
    """Return ours, without settings of torch, with caches in ``place``, and the precompiled header there too."""
    settings = ("TORCH", "PYTORCH", "PYTEST", "TRITON", "RUNNER_", "OMP_")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(settings)},
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
        "XDG_CACHE_HOME": str(place / "xdg"),
        "XDG_STATE_HOME": str(place / "xdg"),
        "TMPDIR": str(place / "tmp"),
        "RAY_TMPDIR": tempfile.gettempdir(),  # its sockets' names would be too long further down
    }


def run_script(folder: Path, name: str, place: Path) -> Cost:
    """Run one of the scripts that ``write_by_hand`` left in ``folder/by-hand``.

    Raises:
        Broken: its exit code is not 0.
    """
    script = str(folder / "by-hand" / "scripts" / f"{name}.py")
    log = place / f"{name}.output"
    return measure_command([sys.executable, script], cwd=place / "run", environ=environment(place), log=log)


def _run_scripts(work: Work, backend: str, place: Path) -> Pass:
    """Run one process after the other.

    With a sample the others are taken to last as long as the sample's, but for its first: that one alone probes the
    compiler and builds its precompiled header.
    """
    names = [variant.case.name for variant in work.variants][: work.sample or None]
    costs: list[Cost] = []
    for number, name in enumerate(names, 1):
        costs.append(run_script(work.root / backend, name, place))
        if number % 10 == 0:
            say(f"{backend} scripts: {number}/{len(names)}")
    seconds = [cost.seconds for cost in costs]
    missing = (len(work.variants) - len(names)) * statistics.mean(seconds[1:] or seconds)
    return sum(seconds) + missing, sum(cost.cpu for cost in costs), len(names), {}


def _run_pytest(work: Work, backend: str, place: Path, slots: int) -> Pass:
    tests, report = work.root / backend / "by-hand" / "tests", place / "run" / "junit.xml"
    words = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *(["-n", str(slots)] if slots else [])]
    cost = measure_command([*words, "test_throughput.py"], (0,), tests, environment(place), place / "output")
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    if counts != {"tests": len(work.variants), "failures": 0, "errors": 0, "skipped": 0}:
        raise Broken(f"pytest did not pass {len(work.variants)} tests: {counts}")
    return cost.seconds, cost.cpu, len(work.variants), {}


def _run_runner(work: Work, backend: str, place: Path, way: str, warm: bool) -> Pass:
    words = [*RUNNER, "run", str(work.file), "--backend", backend, "-j", str(work.slots), *RUNNERS[way]]
    began = time.monotonic()
    cost, ends = run_watched(words, place)
    results = [result for _, result in ends]
    reds = [f"{result['verdict']} {result['id']}" for result in results if result["verdict"] != "PASS"]
    if reds or len(results) != len(work.variants):
        raise Broken(
            "\n".join([f"runner gave {len(results)} verdicts of {len(work.variants)}", *reds[:5], cost.output[-TAIL:]])
        )
    cached = sum(result.get("cached") is not None for result in results)
    if cached != (len(work.variants) if way == "runner-cached" and warm else 0):
        raise Broken(f"{way} took {cached} of {len(work.variants)} results from an earlier run; --keep a fresh folder")
    return cost.seconds, cost.cpu, len(results), {} if cached else _parts(ends, began, cost.seconds)


def _parts(ends: Sequence[End], began: float, seconds: float) -> dict[str, float]:
    """Return where a runner's time went. ``jobs`` is from the begin of the first job to the end of the last."""
    first, last = min(moment - busy(result) for moment, result in ends), ends[-1][0]
    parts = {"start": first - began, "jobs": last - first, "end": began + seconds - last}
    spent = [{**(result.get("spent") or {}), "busy": busy(result)} for _, result in ends]
    names = [name for name in ("busy", "torch", "load", "judge") if all(name in part for part in spent)]
    return {**parts, **{name: sum(part[name] for part in spent) for name in names}}


def busy(result: Mapping[str, Any]) -> float:
    """Return the slot seconds of a variant; those of its first job alone where the journal knows no more."""
    return float((result.get("spent") or {}).get("busy", result["seconds"]))


def run_watched(words: Sequence[str], place: Path, **environ: str) -> tuple[Cost, list[End]]:
    """Run the runner in ``place/run``; return what it cost, and each variant's event with the moment at which it ended.

    Raises:
        Broken: the run did not come to its end.
    """
    latest = place / "run" / ".runner" / "latest"
    latest.unlink(missing_ok=True)  # the last pass's
    with watch(latest / "events.jsonl") as ends:
        cost = measure_command(words, (0, 1), place / "run", {**environment(place), **environ}, place / "output")
    if not ends:
        raise Broken(f"{' '.join(words)} gave no verdict\n{cost.output[-TAIL:]}")
    return cost, ends


@contextlib.contextmanager
def watch(journal: Path) -> Iterator[list[End]]:
    """Follow a journal while the block lasts, since its events bear no times of their own. It need not be there yet."""
    ends: list[End] = []
    over = threading.Event()

    def follow() -> None:
        position, is_last = 0, False
        while not is_last:
            is_last = over.wait(0.1)
            with contextlib.suppress(FileNotFoundError), journal.open("rb") as file:
                file.seek(position)
                data = file.read()
                lines = data[: data.rfind(b"\n") + 1]  # what is being written comes later
                position += len(lines)
                new = [json.loads(line) for line in lines.splitlines() if b'"variant-finished"' in line]
                ends.extend((time.monotonic(), result) for result in new)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield ends
    finally:
        over.set()
        thread.join()
