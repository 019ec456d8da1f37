"""Kills runs and hunts with SIGKILL at random moments, and looks at what they leave.

    python bench/kill.py resume -n 100 suites/smoke.suite.yaml
    python bench/kill.py hunt -o FOLDER
    python bench/kill.py hunt -o FOLDER --kills 10 --rounds 6 -- --guided --seed 3 --backend inductor

``resume`` runs a suite undisturbed. Then, N times: it runs, up to two of its workers or its server are killed, then
the runner itself is; ``runner resume`` goes on, and with a chance of one in three is killed as well, until it comes
to an end. The verdicts must be those of the undisturbed run, the JUnit file whole, and no process left.

``hunt`` hunts undisturbed, and again with kills of the hunt alone; its processes have to notice by themselves. The
words after ``--`` are those of ``runner hunt``. Equal must be what each round drew, judged and kept, and the folders
of the groups. Sizes of reduced cases are printed and not compared, since a reduction ends with its time.

Each exits with 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import math
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

from commands import RUNNER, SUITES, measure_command, option, read_results, run_mode

from runner.hunt.groups import State, groups_of, read_state
from runner.text import plural

MARK = "RUNNER_KILL_LOOP"
"""The environment variable that all processes of a run share."""
LATEST = Path(".runner", "latest")
APART = 6.0
"""Seconds between two kills of workers: a variant is run once more alone, and to hit it twice proves nothing."""
HUNT = ("--seed", "1", "--backend", "aot_eager_decomp_partition", "--batch", "20", "--depth", "1..3")


# --- processes -----------------------------------------------------------------------------


def start(words: Sequence[str], folder: Path, mark: str) -> subprocess.Popen[bytes]:
    """Start the runner in a folder, which gets what it prints."""
    with (folder / "output.txt").open("ab") as log:
        return subprocess.Popen([*RUNNER, *words], cwd=folder, env={**os.environ, MARK: mark}, stdout=log, stderr=log)


def kill_after(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Wait for a process, and kill it after so many seconds; return whether that was needed."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def processes() -> list[Path]:
    """Return the folders of ``/proc`` that belong to processes."""
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def marked(mark: str) -> list[str]:
    """Return number and command of each process of a run."""
    lines = []
    for entry in processes():
        with contextlib.suppress(OSError):  # it has ended, or is a zombie
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(bytes(1), b" ").decode(errors="replace")
                lines.append(f"{entry.name} {command[:80]}")
    return lines


def leftovers(mark: str, patience: float = 10.0) -> list[str]:
    """Return what is wrong: the processes of a run that are still there after ``patience`` seconds."""
    until = time.monotonic() + patience
    while lines := marked(mark):
        if time.monotonic() > until:
            return [f"left behind: {', '.join(lines)}"]
        time.sleep(0.1)
    return []


def descendants(pid: int) -> list[int]:
    """Return the processes below one."""
    parents: dict[int, list[int]] = {}
    for entry in processes():
        with contextlib.suppress(OSError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += parents.get(member, [])
    return family[1:]


# --- a suite -------------------------------------------------------------------------------


def resume(options: argparse.Namespace) -> int:
    """Kill a suite's processes and the runner, and resume it, again and again."""
    words = ["run", *(os.path.abspath(path) for path in options.paths), "-j", str(options.jobs)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as base:
        for name in ("cold", "whole"):  # the first fills the cache of kernels
            place = Path(base, name)
            place.mkdir()
            duration = measure_command([*RUNNER, *words], (0, 1), place).seconds
        whole = verdicts(place)
        print(f"undisturbed: {len(whole)} verdicts in {duration:.1f} s", flush=True)

        def disturb_one(number: int) -> list[str] | None:
            if time.monotonic() - begun > options.seconds:
                return None
            folder = Path(base, str(number))
            folder.mkdir()
            numbers = random.Random(f"{options.seed} {number}")
            acts, problems = disturb(folder, words, duration * options.side_by_side**0.5, numbers, whole)
            if not problems:
                shutil.rmtree(folder)
            print(f"{number}: killed {acts or 'nothing'}: {'; '.join(problems) or 'as undisturbed'}", flush=True)
            return [f"{number}: {problem}" for problem in problems]

        with ThreadPoolExecutor(options.side_by_side) as pool:
            runs = [problems for problems in pool.map(disturb_one, range(1, options.n + 1)) if problems is not None]
    wrong = [f"\n  {problem}" for problems in runs for problem in problems]
    print(f"\n{len(runs)} runs, {len(wrong)} wrong", *wrong, sep="")
    return int(bool(wrong) or len(runs) < options.n)


def verdicts(folder: Path) -> dict[tuple[str, str], str]:
    """Return (id, torch) to verdict, from the journal of the last run in ``folder``."""
    results = read_results(folder / LATEST / "events.jsonl")
    keys: dict[tuple[str, str], str] = {(result.id, result.torch): result.verdict for result in results}
    if len(keys) < len(results):
        raise SystemExit(f"a variant has two verdicts in {folder}")
    return keys


def disturb(
    folder: Path, words: Sequence[str], duration: float, numbers: random.Random, whole: dict[tuple[str, str], str]
) -> tuple[str, list[str]]:
    """Run a suite with kills and resumptions; return what was killed, and what was wrong."""
    mark, acts, command = uuid.uuid4().hex, [], words
    end = numbers.uniform(0.05, 1.0) * duration
    while True:
        process = start(command, folder, mark)
        acts += kill_at_random(process, end, duration, numbers)
        if faults := leftovers(mark):
            return ", ".join(acts), faults
        if process.returncode != -signal.SIGKILL:
            break
        command = ["resume"] if (folder / LATEST).exists() else words
        end = numbers.uniform(0.05, 1.0) * duration if numbers.random() < 1 / 3 else math.inf
    results = verdicts(folder)
    problems = [
        f"{key[0]}: {results.get(key)} instead of {whole.get(key)}"
        for key in sorted({*whole, *results}) if results.get(key) != whole.get(key)
    ]  # fmt: skip
    cases = [*ElementTree.parse(folder / LATEST / "junit.xml").getroot().iter("testcase")]
    if len(cases) < len(whole) or any(case.find("skipped[@type='not-run']") is not None for case in cases):
        problems.append("the JUnit file is not whole")
    return ", ".join(acts), problems


def kill_at_random(process: subprocess.Popen[bytes], end: float, duration: float, numbers: random.Random) -> list[str]:
    """Kill up to two of a runner's processes, and after ``end`` seconds the runner; return the kills."""
    moments = sorted(numbers.uniform(0, duration) for _ in range(numbers.randint(0, 2)))
    acts: list[str] = []
    last, begun = -math.inf, time.monotonic()
    while process.poll() is None:
        now = time.monotonic() - begun
        if now >= end:
            process.kill()
            process.wait()
            return [*acts, f"runner at {now:.1f} s"]
        if moments and now >= moments[0]:
            moments.pop(0)
            victims = descendants(process.pid)
            if victims and now - last >= APART:
                last = now
                with contextlib.suppress(OSError):
                    os.kill(numbers.choice(victims), signal.SIGKILL)
                    acts.append(f"worker at {now:.1f} s")
        time.sleep(0.02)
    return acts


# --- a hunt --------------------------------------------------------------------------------


def hunt(options: argparse.Namespace) -> int:
    """Hunt undisturbed and with kills, and compare the two."""
    moments, mark = random.Random(options.random), uuid.uuid4().hex
    options.output.mkdir()
    words = ["hunt", "--rounds", str(options.rounds), "--reduce-budget", "60s", *options.words]

    def run(name: str, seconds: float | None = None) -> int:
        process = start([*words, "-o", name], options.output, mark)
        kill_after(process, seconds)
        return process.returncode

    began = time.monotonic()
    code = run("whole")
    seconds = time.monotonic() - began
    first, kills = state_of(options.output / "whole"), 0
    print(f"undisturbed: exit {code} after {seconds:.0f} s", flush=True)
    if code not in (0, 1) or first is None:
        return 1
    while kills < options.kills:
        # Later moments than a start takes, or no killed hunt would get anywhere.
        moment = moments.uniform(0.1, 2.0) * max(20.0, seconds / options.kills)
        end = run("killed", moment)
        if end != -signal.SIGKILL:
            print(f"ended by itself with {end} after {kills} kills", flush=True)
            break
        kills += 1
        state = state_of(options.output / "killed")
        print(
            f"kill {kills} after {moment:.0f} s: {plural(len(state.rounds) if state else 0, 'round')} done", flush=True
        )
    end = run("killed")
    problems = [f"exit code {end} instead of {code}"] if end != code else []
    problems += [*hunt_problems(options.output, first), *leftovers(mark, patience=60.0)]
    sizes = f"{plural(len(first.rounds), 'round')}, {plural(len(groups_of(first)), 'group')}"
    print("\n".join(problems) or f"the same after {kills} kills: {sizes}")
    return int(bool(problems))


def hunt_problems(folder: Path, first: State) -> list[str]:
    """Return what differs between the hunts of a folder, and print the sizes of both."""
    second, problems = state_of(folder / "killed"), []
    rounds, rounds_again = rounds_of(first), rounds_of(second) if second else {}
    if rounds != rounds_again:
        differing = [number for number in rounds | rounds_again if rounds.get(number) != rounds_again.get(number)]
        problems.append(f"other rounds: {differing}")
    whole, killed = ({path.name for path in (folder / name).glob("groups/*")} for name in ("whole", "killed"))
    if whole != killed:
        problems.append(f"other groups: {sorted(whole ^ killed)}")
    again = {group.id: group.reduction or "not reduced" for group in (groups_of(second) if second else ())}
    for group in groups_of(first):
        size = f"{group.reduction or 'not reduced'} / {again.get(group.id, '-')}"
        print(f"{group.id}  {size}  {group.first.signature[:80]}")
    return problems


def state_of(folder: Path) -> State | None:
    """Return what a hunt has done. A round that stands twice is an error: its variants would count twice."""
    state = read_state(folder)
    if state is not None and len({entry.round for entry in state.rounds}) != len(state.rounds):
        raise SystemExit(f"{folder}: a round stands twice")
    return state


def rounds_of(state: State) -> dict[int, tuple[object, ...]]:
    """Return the rounds by their numbers, without seconds and messages."""
    return {
        entry.round: (
            entry.cases, entry.variants, dict(entry.verdicts), entry.reached, entry.parents,
            tuple((red.id, red.verdict, red.signature_id, red.known) for red in entry.red),
        )
        for entry in state.rounds
    }  # fmt: skip


MODES = {
    resume: (
        option("paths", nargs="*", default=[str(SUITES / "smoke.suite.yaml")]),
        option("-n", type=int, default=100, help="how often (default: 100)"),
        option("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="slots of each run"),
        option("--side-by-side", type=int, default=1, help="runs at the same time (default: 1)"),
        option("--seed", type=int, default=0, help="of the kills (default: 0)"),
        option("--seconds", type=float, default=math.inf, help="begin no further run after so many"),
    ),
    hunt: (
        option("-o", "--output", type=Path, required=True, help="a new folder for the two hunts"),
        option("--kills", type=int, default=10),
        option("--rounds", type=int, default=5),
        option("--random", type=int, default=0, help="the seed of the moments"),
        option("words", nargs="*", default=HUNT, help="of runner hunt"),
    ),
}

if __name__ == "__main__":
    sys.exit(run_mode(__doc__, MODES, None))
