"""Runs a suite again and again while processes of it are killed at random, the runner too, and resumes it each time.

    python bench/kill_resume.py -n 100 suites/smoke.suite.yaml

First the suite runs undisturbed. Then, N times: it runs, up to two of its workers or its server get SIGKILL at random
moments, then the runner itself does; ``runner resume`` goes on, and with a chance of one in three is killed as well, and so on until
it comes to an end. Each time the verdicts must be those of the undisturbed run, the JUnit file whole, and no process
left. Exits non-zero when anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

MARK = "RUNNER_KILL_LOOP"
APART = 6.0
"""Seconds between two kills of workers: a variant is run once more alone, and to hit it twice proves nothing."""

Verdicts = dict[tuple[str, str], str]


def verdicts(folder: Path) -> Verdicts:
    """(id, torch) to verdict, from the journal of the last run in ``folder``."""
    found: Verdicts = {}
    for line in (folder / ".runner/latest/events.jsonl").read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # what a killed runner was writing
        if event["event"] == "variant-finished":
            key = (event["id"], event["torch"])
            if key in found:
                raise SystemExit(f"{key} has two verdicts in {folder}")
            found[key] = event["verdict"]
    return found


def family(pid: int) -> list[int]:
    """The descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        own = parents.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def marked(mark: str) -> list[int]:
    """Processes of a run that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def disturbed(
    folder: Path, words: Sequence[str], duration: float, chance: random.Random, whole: Verdicts
) -> tuple[str, list[str]]:
    """One run with its kills and resumptions: what was done, and what was wrong."""
    mark = uuid.uuid4().hex
    done: list[str] = []
    command, first = [sys.executable, "-m", "runner", *words], True
    while True:
        log = open(folder / "output.txt", "a")  # noqa: SIM115
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, MARK: mark}, stdout=log, stderr=log)
        end = time.monotonic() + chance.uniform(0.05, 1.0) * duration if first or chance.random() < 1 / 3 else None
        kills = sorted(chance.uniform(0, duration) for _ in range(chance.randint(0, 2)))
        last = 0.0
        begun = time.monotonic()
        while process.poll() is None:
            now = time.monotonic()
            if end is not None and now >= end:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done.append(f"runner at {now - begun:.1f} s")
                break
            if kills and now - begun >= kills[0]:
                kills.pop(0)
                victims = family(process.pid)
                if victims and now - last >= APART:
                    last = now
                    try:
                        os.kill(chance.choice(victims), signal.SIGKILL)
                        done.append(f"worker at {now - begun:.1f} s")
                    except OSError:
                        pass
            time.sleep(0.02)
        log.close()
        patience = time.monotonic() + 10
        while marked(mark):
            if time.monotonic() > patience:
                return ", ".join(done), [f"left behind: {marked(mark)}"]
            time.sleep(0.05)
        if process.returncode not in (-signal.SIGKILL,):
            break
        began = (folder / ".runner/latest").exists()
        command, first = [sys.executable, "-m", "runner", *(["resume"] if began else words)], False
    problems = []
    found = verdicts(folder)
    for key in sorted({*whole, *found}):
        if found.get(key) != whole.get(key):
            problems.append(f"{key[0]}: {found.get(key)} instead of {whole.get(key)}")
    cases = [*ElementTree.parse(folder / ".runner/latest/junit.xml").getroot().iter("testcase")]
    if len(cases) < len(whole) or any(case.find("skipped[@type='not-run']") is not None for case in cases):
        problems.append("the JUnit file is not whole")
    return ", ".join(done), problems


def main() -> int:
    """Loop as often as the command line says; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["suites/smoke.suite.yaml"])
    parser.add_argument("-n", type=int, default=100, help="how often (default: 100)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="slots of each run")
    parser.add_argument("--side-by-side", type=int, default=1, help="runs at the same time (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills (default: 0)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further run after so many")
    options = parser.parse_args()
    words = ["run", *(os.path.abspath(path) for path in options.paths), "-j", str(options.jobs)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as base:

        def place(name: str) -> Path:
            folder = Path(base, name)
            folder.mkdir()
            return folder

        def undisturbed(name: str) -> float:
            begun = time.monotonic()
            subprocess.run([sys.executable, "-m", "runner", *words], cwd=place(name), stdout=subprocess.DEVNULL)
            return time.monotonic() - begun

        undisturbed("cold")  # fills the kernel cache
        duration = undisturbed("whole")
        whole = verdicts(Path(base, "whole"))
        print(f"undisturbed: {len(whole)} verdicts in {duration:.1f} s", flush=True)
        wrong, ran = [], 0

        def one(number: int) -> tuple[int, str, list[str]] | None:
            if time.monotonic() - begun > options.seconds:
                return None
            folder = place(str(number))
            chance = random.Random(f"{options.seed} {number}")
            did, problems = disturbed(folder, words, duration * options.side_by_side**0.5, chance, whole)
            if not problems:
                shutil.rmtree(folder)
            return number, did, problems

        with ThreadPoolExecutor(options.side_by_side) as pool:
            for result in pool.map(one, range(1, options.n + 1)):
                if result is not None:
                    number, did, problems = result
                    ran += 1
                    print(f"{number}: killed {did or 'nothing'}: {'; '.join(problems) or 'as undisturbed'}", flush=True)
                    wrong += [f"{number}: {problem}" for problem in problems]
    print(f"\n{ran} runs, {len(wrong)} wrong" + "".join(f"\n  {text}" for text in wrong))
    return 1 if wrong or ran < options.n else 0


if __name__ == "__main__":
    sys.exit(main())
