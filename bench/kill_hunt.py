"""Hunts once undisturbed and once killed at random moments, and compares the rounds and the groups of the two.

    python bench/kill_hunt.py -o FOLDER
    python bench/kill_hunt.py -o FOLDER --kills 10 --rounds 6 -- --guided --seed 3 --backend inductor

The words after ``--`` are those of ``runner hunt``. Each SIGKILL hits the hunt alone; its processes have to notice by themselves.
Equal must be what each round drew, judged and kept, and the folders of the groups. Sizes of reduced cases are printed and not compared,
since a reduction ends with its time. Exits with 1 when something differs, or a process is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from kill_resume import MARK, marked

from runner.hunt.groups import State, groups_of, read_state
from runner.text import plural

DEFAULT = ("--seed", "1", "--backend", "aot_eager_decomp_partition", "--batch", "20", "--depth", "1..3")
PATIENCE = 60.0
"""Seconds that the processes of an ended hunt have to end too."""


def hunted(folder: Path) -> State | None:
    """Return what a hunt has done. A round that stands twice is an error: its variants would count twice."""
    state = read_state(folder)
    if state is not None and len({each.round for each in state.rounds}) != len(state.rounds):
        raise SystemExit(f"{folder}: a round stands twice")
    return state


def drawn_and_judged(state: State) -> dict[int, tuple[object, ...]]:
    """Return the rounds by their numbers, without seconds and messages."""
    return {
        each.round: (
            each.cases, each.variants, dict(each.verdicts), each.reached, each.parents,
            tuple((red.id, red.verdict, red.signature_id, red.known) for red in each.red),
        )
        for each in state.rounds
    }  # fmt: skip


def sizes_of(state: State) -> dict[str, str]:
    """Return what became of each group's reduction, by the id of its signature."""
    return {group.id: str(group.reduction or "not reduced") for group in groups_of(state)}


def folders_of(folder: Path) -> set[str]:
    """Return the names of the groups' folders."""
    groups = folder / "groups"
    return {each.name for each in groups.iterdir()} if groups.exists() else set()


def run(words: Sequence[str], mark: str, seconds: float | None = None) -> int:
    """Hunt, and kill the hunt after so many seconds; return its exit code, negative where it was killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "runner", "hunt", *words], env={**os.environ, MARK: mark},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return process.wait()


def left_after(mark: str) -> list[int]:
    """Return the processes of a hunt that do not end by themselves."""
    end = time.monotonic() + PATIENCE
    while (pids := marked(mark)) and time.monotonic() < end:
        time.sleep(0.5)
    return pids


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new folder for the two hunts")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--random", type=int, default=0, help="the seed of the moments")
    parser.add_argument("words", nargs="*", default=DEFAULT, help="of runner hunt")
    options = parser.parse_args(arguments)
    moments, mark = random.Random(options.random), uuid.uuid4().hex
    options.output.mkdir()
    whole, killed = options.output / "whole", options.output / "killed"
    words = ["--rounds", str(options.rounds), "--reduce-budget", "60s", *options.words]
    began = time.monotonic()
    code = run([*words, "-o", str(whole)], mark)
    seconds = time.monotonic() - began
    first = hunted(whole)
    if code not in (0, 1) or first is None:
        print(f"undisturbed: exit {code} after {seconds:.0f} s")
        return 1
    print(f"undisturbed: exit {code} after {seconds:.0f} s, {plural(len(groups_of(first)), 'group')}", flush=True)
    kills = 0
    while kills < options.kills:
        # Later moments than a start takes, or no killed hunt would get anywhere.
        moment = moments.uniform(0.1, 2.0) * max(20.0, seconds / options.kills)
        ended = run([*words, "-o", str(killed)], mark, moment)
        if ended != -signal.SIGKILL:
            print(f"ended by itself with {ended} after {kills} kills", flush=True)
            break
        kills += 1
        state = hunted(killed)
        print(
            f"kill {kills} after {moment:.0f} s: {plural(len(state.rounds) if state else 0, 'round')} done", flush=True
        )
    ended = run([*words, "-o", str(killed)], mark)
    second = hunted(killed)
    problems = []
    if ended != code:
        problems.append(f"exit code {ended} instead of {code}")
    rounds, rounds_again = drawn_and_judged(first), drawn_and_judged(second) if second else {}
    if rounds != rounds_again:
        differing = [number for number in rounds | rounds_again if rounds.get(number) != rounds_again.get(number)]
        problems.append(f"other rounds: {differing}")
    if others := folders_of(whole) ^ folders_of(killed):
        problems.append(f"other groups: {sorted(others)}")
    if pids := left_after(mark):
        problems.append(f"processes left: {pids}")
    again = sizes_of(second) if second else {}
    for group in groups_of(first):
        print(
            f"{group.id}  {group.reduction or 'not reduced'} / {again.get(group.id, '-')}  {group.first.signature[:80]}"
        )
    print(
        "\n".join(problems)
        or f"the same after {kills} kills: {plural(len(rounds), 'round')}, {plural(len(folders_of(killed)), 'group')}"
    )
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
