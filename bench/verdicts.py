"""How long one case takes from the command line to its verdict: a passing one, and one that fails.

    python bench/verdicts.py [--rounds 3] [--other CHECKOUT]

Each round runs, one after the other: ``import torch`` alone, scripts that compile the case under ``aot_eager`` and under
``inductor``, ``runner run`` of it under both, and ``runner run`` of it with a bug of torch's own planted. Kernels are in the cache:
the first round fills it and is left out. ``--other`` runs each command of another checkout too, in the same rounds. Prints medians,
and the targets. The start is what ``runner run`` takes beyond what the script takes after ``import torch``. Exits with 1 when a target
is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tabulate import tabulate

REPOSITORY = Path(__file__).resolve().parent.parent
PLANTED = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
CASES = f"""cases:
- name: good
  inputs: {{x: [8, 16]}}
  chain: [torch.neg, F.relu, torch.sin]
- name: bad
  inputs: {{x: [8, 16]}}
  chain: [torch.neg, F.relu, torch.sin]
  config: {{{PLANTED}: accuracy}}
"""
SCRIPT = """import sys
import torch
def model(x):
    return torch.sin(torch.relu(torch.neg(x)))
x = torch.randn(8, 16)
torch.testing.assert_close(torch.compile(model, backend=sys.argv[1])(x), model(x))
"""
PASSING, FAILING = "runner run, passes", "runner run, fails"
BACKENDS = ("aot_eager", "inductor")
COMMANDS: Mapping[str, tuple[str, str, int]] = {
    f"{PASSING}, aot_eager": ("good", "aot_eager", 0),
    f"{PASSING}, inductor": ("good", "inductor", 0),
    f"{FAILING}, inductor": ("bad", "inductor", 1),
}


def run(command: Sequence[str], folder: Path, code: int, environ: Mapping[str, str]) -> float:
    """Return the seconds of a command. Raises RuntimeError for another exit code."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **environ})
    seconds = time.perf_counter() - began
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(command)} gave exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return seconds


def busy(folder: Path) -> float:
    """Return the seconds of a slot that the last run's variant took."""
    lines = (folder / ".runner" / "latest" / "events.jsonl").read_text().splitlines()
    return sum(event["spent"]["busy"] for event in map(json.loads, lines) if event["event"] == "variant-finished")


def one_round(folder: Path, checkouts: Mapping[str, Path]) -> dict[str, float]:
    """Return the seconds of each command, and of the job in it."""
    seconds = {"import torch": run([sys.executable, "-c", "import torch"], folder, 0, {})}
    for backend in BACKENDS:
        kernels = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "scripts")}
        seconds[f"script, {backend}"] = run([sys.executable, "script.py", backend], folder, 0, kernels)
    for name, (case, backend, code) in COMMANDS.items():
        for checkout, path in checkouts.items():
            words = [sys.executable, "-m", "runner", "run", f"a.spec.yaml::{case}", "--backend", backend]
            seconds[name + checkout] = run(words, folder, code, {"PYTHONPATH": str(path)})
            seconds[f"{name}{checkout}, the job"] = busy(folder)
    return seconds


def targets(seconds: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return what each target is about, what was measured, and at most what it is to be. All are ratios."""
    rows = [
        ("a failing case, to a passing one", seconds[f"{FAILING}, inductor"] / seconds[f"{PASSING}, inductor"], 1.5)
    ]
    imports = seconds["import torch"]
    for backend in BACKENDS:
        start = seconds[f"{PASSING}, {backend}"] - (seconds[f"script, {backend}"] - imports)
        rows.append((f"{backend}: the start, to import torch", start / imports, 1.2))
    return rows


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="after the first, which fills caches (default: 3)")
    parser.add_argument("--other", type=Path, metavar="CHECKOUT", help="of this project, to compare with")
    arguments = parser.parse_args()
    rounds = measure(arguments.rounds, arguments.other)
    median = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    rows = [[key, median[key], min(each[key] for each in rounds), max(each[key] for each in rounds)] for key in median]
    print(tabulate(rows, headers=["command", "median s", "fastest", "slowest"], floatfmt=".2f"))
    print()
    judged = [[*each, "met" if each[1] <= each[2] else "MISSED"] for each in targets(median)]
    print(tabulate(judged, headers=["ratio", "measured", "at most", ""], floatfmt=".2f"))
    return int(any(ratio > limit for _, ratio, limit in targets(median)))


def measure(rounds: int, other: Path | None = None) -> list[dict[str, float]]:
    """Return the seconds of ``rounds`` rounds, after one that fills caches; of another checkout too, if there is one."""
    checkouts = {"": REPOSITORY, **({" (other)": other.resolve()} if other else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.spec.yaml").write_text(CASES)
        (folder / "script.py").write_text(SCRIPT)
        return [one_round(folder, checkouts) for _ in range(rounds + 1)][1:]


if __name__ == "__main__":
    sys.exit(main())
