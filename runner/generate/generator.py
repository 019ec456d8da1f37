"""Write random chains of operators as spec files, and a suite over them.

    python bench/chains.py --seed 7 --count 250 -o /tmp/chains
    runner run /tmp/chains/chains_7.suite.yaml --no-known

The same seed writes the same files on the same torch. A case is drawn and tried in a child process, so that a crash of
eager PyTorch loses one case; what is lost or refused is counted at the end.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import multiprocessing.connection
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from chain_cases import Case, draw_case, fault_of, text_of

LIMIT = 30.0  # seconds that one case may take
MEMORY = 12 * 2**30  # bytes of address space of the child
PER_FILE = 100


def _serve(seed: int, number: int, answers: multiprocessing.connection.Connection) -> None:
    """Draw and try the cases from ``number`` on, for as long as somebody reads the answers."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            case = draw_case(seed, number)
            fault = fault_of(case, Path(folder)) if case is not None else "too few steps"
            try:
                answers.send((case, fault))
            except BrokenPipeError:
                return
            number += 1


def make_cases(seed: int, count: int, limit: float = LIMIT) -> tuple[list[Case], collections.Counter[str]]:
    """Give the first ``count`` cases of a seed that eager takes, and how often others were lost to what."""
    context = multiprocessing.get_context("fork")
    kept: list[Case] = []
    faults: collections.Counter[str] = collections.Counter()
    number = 0
    while len(kept) < count:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_serve, args=(seed, number, theirs), daemon=True)
        child.start()
        theirs.close()
        while len(kept) < count:
            number += 1
            try:
                case, fault = ours.recv() if ours.poll(limit) else (None, "too long")
            except EOFError:
                case, fault = None, "crash"
            if fault:
                faults[fault.split(":")[0]] += 1
                if "--verbose" in sys.argv:
                    print(number - 1, fault[:200], file=sys.stderr)
            else:
                kept.append(case)
            if fault in ("too long", "crash"):
                break
        ours.close()
        child.kill()
        child.join()
    return kept, faults


def write_files(folder: Path, cases: list[Case], seed: int, device: str = "cpu") -> Path:
    """Write the cases into spec files of a hundred, and give the suite file."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for start in range(0, len(cases), PER_FILE):
        names.append(f"chains_{seed}_{start // PER_FILE}.spec.yaml")
        (folder / names[-1]).write_text(text_of(cases[start : start + PER_FILE], device), encoding="utf-8")
    suite = folder / f"chains_{seed}.suite.yaml"
    specs = ", ".join(f'"{name}"' for name in names)
    suite.write_text(f"suite: chains_{seed}\nspecs: [{specs}]\nbackends: [inductor]\n", encoding="utf-8")
    return suite


def main(arguments: list[str] | None = None) -> int:
    """Write the files that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="how many cases")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="the device that the cases name")
    parser.add_argument("--verbose", action="store_true", help="say of each lost case why")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder of the files")
    options: Any = parser.parse_args(arguments)
    cases, faults = make_cases(options.seed, options.count)
    suite = write_files(options.output, cases, options.seed, options.device)
    families = {tag for case in cases for tag in case["tags"]}
    lost = ", ".join(f"{count} {fault}" for fault, count in faults.most_common(8))
    print(f"{suite}: {len(cases)} cases of {len(families)} families; lost: {lost or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
