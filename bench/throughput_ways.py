"""The ways of ``throughput.py`` to run the same variants: written by hand as scripts or tests, and by the runner."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from runner.builder.source import build
from runner.cases.model import THREADS, Variant

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
_CHECK = """
def run(PARAMETERS):
    torch.manual_seed(0)
    model = PREFIXmake_model()
    torch.manual_seed(0)
    inputs = PREFIXmake_inputs()
    call = torch.compile(model, backend=BACKEND) if compiled else model
    output = call(*inputs)
    if not PREFIXBACKWARD:
        return [output]
    torch.manual_seed(0)
    output.backward(torch.rand_like(output))
    tensors = [*inputs, *model.parameters()]
    return [output, *(tensor.grad for tensor in tensors if tensor.requires_grad)]
"""
_SCRIPT = """

if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    torch.testing.assert_close(run(compiled=True), run(compiled=False))
"""
_TESTS = '''"""Eager against torch.compile, one test a case."""

import importlib

import pytest
import torch

torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()

CHECK

@pytest.mark.parametrize("name", NAMES)
def test_compiled_as_eager(name):
    case = importlib.import_module(name)
    torch.testing.assert_close(run(case, compiled=True), run(case, compiled=False))
'''


class Broken(Exception):
    """A way did not judge all variants green, so that its time means nothing."""


@dataclass(frozen=True)
class Work:
    """What is to be run, and how. ``sample`` is the number of scripts that are really run (0: all)."""

    root: Path
    file: Path
    variants: Sequence[Variant]
    seed: int
    slots: int
    sample: int
    say: Callable[[str], None]

    @property
    def count(self) -> int:
        """How many variants there are."""
        return len(self.variants)


@dataclass(frozen=True)
class Pass:
    """One pass over the variants. ``ran`` of them ran; ``parts`` is what a runner's journal says, in seconds."""

    seconds: float
    cpu: float
    ran: int
    parts: Mapping[str, float] = field(default_factory=dict)


def write_by_hand(folder: Path, variants: Sequence[Variant], backend: str) -> None:
    """Write ``scripts/NAME.py`` for each variant, and ``tests/`` with one test file and a module for each."""
    for name in ("scripts", "tests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    check = _CHECK.replace("BACKEND", repr(backend))
    for variant in variants:
        backward = variant.grad.mode == "backward"
        text = f"{build(variant).text}\n\nBACKWARD = {backward}\n\n"
        (folder / "tests" / f"{variant.case.name}.py").write_text(text, encoding="utf-8")
        main = _filled(check, PARAMETERS="compiled", PREFIX="") + _SCRIPT.replace("THREADS", str(THREADS))
        (folder / "scripts" / f"{variant.case.name}.py").write_text(text + main, encoding="utf-8")
    tests = _filled(
        _TESTS,
        CHECK=_filled(check, PARAMETERS="case, compiled", PREFIX="case."),
        THREADS=str(THREADS),
        NAMES=repr([variant.case.name for variant in variants]),
    )
    (folder / "tests" / "test_throughput.py").write_text(tests, encoding="utf-8")
    (folder / "tests" / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def _filled(text: str, **words: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def measure(work: Work, way: str, backend: str, warm: bool) -> Pass:
    """One pass of a way, with caches that are new (cold), or as its own last pass left them (warm).

    Caches that hold nothing yet are filled by a pass that is not measured.

    Raises:
        Broken: some variant was not judged, or not green.
    """
    write_by_hand(work.root / backend / "by-hand", work.variants, backend)
    place = work.root / backend / way
    filled = place / "filled"
    key = json.dumps([work.count, work.seed, work.sample if way == "scripts" else 0])
    if not warm:
        shutil.rmtree(place, ignore_errors=True)
    elif not filled.is_file() or filled.read_text(encoding="utf-8") != key:
        work.say(f"{backend} {way}: no caches yet, filling them (not measured)")
        measure(work, way, backend, warm=False)
    make_folders(place)
    filled.unlink(missing_ok=True)
    before = sum(cpu_seconds())
    began = time.monotonic()
    if way == "scripts":
        seconds, ran = _scripts(work, backend, place)
        done = Pass(seconds, sum(cpu_seconds()) - before, ran)
    elif way in ("pytest", "xdist"):
        _pytest(work, backend, place, slots=work.slots if way == "xdist" else 0)
        done = Pass(time.monotonic() - began, sum(cpu_seconds()) - before, work.count)
    else:
        seconds, parts = _runner(work, backend, place, way, warm)
        done = Pass(seconds, sum(cpu_seconds()) - before, work.count, parts)
    filled.write_text(key, encoding="utf-8")
    return done


def cpu_seconds() -> tuple[float, float]:
    """Of all processes that were started from here and have ended: their own, and the kernel's for them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime, used.ru_stime


def make_folders(place: Path) -> Path:
    """Make ``place`` one to run in, with caches of its own; ``place`` itself."""
    for name in ("inductor", "xdg", "tmp", "run"):
        (place / name).mkdir(parents=True, exist_ok=True)
    return place


def environment(place: Path) -> dict[str, str]:
    """Ours, without settings of torch, with caches in ``place``. The precompiled header goes to the temporary folder."""
    ours = ("TORCH", "PYTORCH", "PYTEST", "TRITON", "RUNNER_", "OMP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept,
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
        "XDG_CACHE_HOME": str(place / "xdg"),
        "XDG_STATE_HOME": str(place / "xdg"),
        "TMPDIR": str(place / "tmp"),
        "RAY_TMPDIR": tempfile.gettempdir(),  # its sockets' names would be too long further down
    }


def run_script(written: Path, name: str, place: Path) -> None:
    """Run one of the scripts that ``write_by_hand`` left in ``written/by-hand``.

    Raises:
        Broken: its exit code is not 0.
    """
    script = written / "by-hand" / "scripts" / f"{name}.py"
    output = place / f"{name}.output"
    with output.open("wb") as file:
        code = subprocess.run(
            [sys.executable, str(script)], cwd=place / "run", env=environment(place), stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip
    if code != 0:
        raise Broken(f"{script} gave exit code {code}\n{tail(output)}")


def _scripts(work: Work, backend: str, place: Path) -> tuple[float, int]:
    """One process after the other. With a sample the rest is taken to last as long as the sample's, its first left out:

    that one alone probes the compiler and builds its precompiled header.
    """
    names = [variant.case.name for variant in work.variants][: work.sample or None]
    taken: list[float] = []
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        run_script(work.root / backend, name, place)
        taken.append(time.monotonic() - began)
        if number % 10 == 0:
            work.say(f"{backend} scripts: {number}/{len(names)}, {sum(taken):.0f} s")
    rest = taken[1:] or taken
    return sum(taken) + (work.count - len(names)) * sum(rest) / len(rest), len(names)


def _pytest(work: Work, backend: str, place: Path, slots: int) -> None:
    tests = work.root / backend / "by-hand" / "tests"
    report = place / "run" / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *(["-n", str(slots)] if slots else [])]
    code = run_command([*command, "test_throughput.py"], tests, place)
    if code != 0:
        raise Broken(f"pytest gave exit code {code}\n{tail(place / 'output')}")
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    if counts != {"tests": work.count, "failures": 0, "errors": 0, "skipped": 0}:
        raise Broken(f"pytest did not pass {work.count} tests: {counts}")


def _runner(work: Work, backend: str, place: Path, way: str, warm: bool) -> tuple[float, dict[str, float]]:
    command = [sys.executable, "-m", "runner", "run", str(work.file), "--backend", backend, "-j", str(work.slots)]
    journal = place / "run" / ".runner" / "latest" / "events.jsonl"
    (place / "run" / ".runner" / "latest").unlink(missing_ok=True)  # the last pass's
    watch = Watch(journal)
    began = time.monotonic()
    code = run_command([*command, *RUNNERS[way]], place / "run", place, watch.look)
    seconds = time.monotonic() - began
    watch.look()
    finished = watch.finished
    verdicts = [event["verdict"] for event in finished]
    if code != 0 or verdicts != ["PASS"] * work.count:
        bad = [f"{event['verdict']} {event['id']}" for event in finished if event["verdict"] != "PASS"]
        told = "\n".join(bad[:5]) or tail(place / "output")
        raise Broken(f"runner gave exit code {code} and {len(verdicts)} verdicts of {work.count}\n{told}")
    cached = sum(event.get("cached") is not None for event in finished)
    if cached != (work.count if way == "runner-cached" and warm else 0):
        raise Broken(f"{way} took {cached} of {work.count} results from an earlier run; --keep a fresh folder")
    return seconds, _parts(finished, watch, began, seconds) if not cached else {}


def _parts(finished: list[dict[str, Any]], watch: Watch, began: float, seconds: float) -> dict[str, float]:
    """Where a runner's time went. ``jobs`` is from the begin of the first job to the end of the last."""
    parts = {"start": watch.first - began, "jobs": watch.last - watch.first, "end": began + seconds - watch.last}
    parts["busy"] = sum(busy(event) for event in finished)
    for name in ("torch", "load", "judge"):
        if all(name in (event.get("spent") or {}) for event in finished):
            parts[name] = sum(event["spent"][name] for event in finished)
    return parts


def busy(event: Mapping[str, Any]) -> float:
    """Slot seconds of a variant; those of its first job alone where the journal knows no more."""
    return float((event.get("spent") or {}).get("busy", event["seconds"]))


class Watch:
    """Follows a journal while it is written, since its events bear no times of their own."""

    def __init__(self, journal: Path) -> None:
        """``journal`` need not be there yet."""
        self.finished: list[dict[str, Any]] = []
        self.times: list[float] = []  # when each of them was seen first
        self.first, self.last = (
            math.inf,
            0.0,
        )  # when the first job began, as far as what it took tells, and the last ended
        self._journal = journal
        self._read = 0

    def look(self) -> None:
        """Take in what has been added."""
        with contextlib.suppress(FileNotFoundError), self._journal.open("rb") as file:
            file.seek(self._read)
            data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._read += len(data)
            new = [json.loads(line) for line in data.splitlines() if b'"variant-finished"' in line]
            if new:
                self.last = time.monotonic()
                self.first = min([self.first, *(self.last - busy(event) for event in new)])
                self.finished += new
                self.times += [self.last] * len(new)


def run_command(
    command: Sequence[str],
    cwd: Path,
    place: Path,
    look: Callable[[], None] | None = None,
    changes: Mapping[str, str] | None = None,
) -> int:
    """Run a command to its end, with ``changes`` to its environment, looking ten times a second; its exit code."""
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment(place), **(changes or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while look is not None and process.poll() is None:
                look()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return code


def tail(path: Path) -> str:
    """The end of what a command printed."""
    return path.read_bytes()[-1500:].decode(errors="replace")
