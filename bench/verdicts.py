"""How long one case takes from the command line to its verdict: a passing one, and one that fails.

    python bench/verdicts.py [--rounds 3] [--other CHECKOUT]

Each round runs, one after the other: ``import torch`` alone, scripts that compile the case under ``aot_eager`` and
under ``inductor``, ``runner run`` of it under both, and ``runner run`` of it with a bug of torch's own planted.
Kernels are in the cache: the first round fills it and is left out. ``--other`` runs each command of another checkout
too, in the same rounds. Prints medians, and the targets. The start is what ``runner run`` takes beyond what the
script takes after ``import torch``. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from commands import ROOT, RUNNER, Target, command_line, measure_command, option, read_results, spread, target_table
from tabulate import tabulate

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
"""What is run by the runner: case, backend, and the exit code that it must have."""


def measure(rounds: int, other_checkout: Path | None = None) -> list[dict[str, float]]:
    """Return the seconds of ``rounds`` rounds, after one that fills caches; of another checkout too, if given."""
    checkouts = {"": ROOT, **({" (other)": other_checkout.resolve()} if other_checkout else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.spec.yaml").write_text(CASES)
        (folder / "script.py").write_text(SCRIPT)
        return [run_round(folder, checkouts) for _ in range(rounds + 1)][1:]


def run_round(folder: Path, checkouts: Mapping[str, Path]) -> dict[str, float]:
    """Return the seconds of each command, and of the job in it."""

    def run(words: list[str], code: int = 0, **environ: str) -> float:
        return measure_command(words, (code,), folder, {**os.environ, **environ}).seconds

    seconds = {"import torch": run([sys.executable, "-c", "import torch"])}
    for backend in BACKENDS:
        script = [sys.executable, "script.py", backend]
        seconds[f"script, {backend}"] = run(script, TORCHINDUCTOR_CACHE_DIR=str(folder / "scripts"))
    for name, (case, backend, code) in COMMANDS.items():
        for checkout, path in checkouts.items():
            words = [*RUNNER, "run", f"a.spec.yaml::{case}", "--backend", backend]
            seconds[name + checkout] = run(words, code, PYTHONPATH=str(path))
            results = read_results(folder / ".runner" / "latest" / "events.jsonl")
            seconds[f"{name}{checkout}, the job"] = sum((result.spent or {})["busy"] for result in results)
    return seconds


def targets(seconds: Mapping[str, float]) -> list[Target]:
    """Return what is to be reached, with what was measured. All are ratios."""
    failing, imports = seconds[f"{FAILING}, inductor"] / seconds[f"{PASSING}, inductor"], seconds["import torch"]
    rows = [Target("a failing case, to a passing one", "{:.2f}, at most 1.5", failing, high=1.5)]
    for backend in BACKENDS:
        start = seconds[f"{PASSING}, {backend}"] - (seconds[f"script, {backend}"] - imports)
        rows.append(Target(f"{backend}: the start, to import torch", "{:.2f}, at most 1.2", start / imports, high=1.2))
    return rows


def main() -> int:
    """Measure, print and judge."""
    arguments = command_line(
        __doc__, option("--rounds", type=int, default=3, help="after the first, which fills caches (default: 3)"),
        option("--other", type=Path, metavar="CHECKOUT", help="of this project, to compare with"),
    ).parse_args()  # fmt: skip
    rounds = measure(arguments.rounds, arguments.other)
    rows = [[name, *spread(seconds[name] for seconds in rounds)] for name in rounds[0]]
    medians = {name: statistics.median(seconds[name] for seconds in rounds) for name in rounds[0]}
    table, missed = target_table(targets(medians))
    print(tabulate(rows, headers=["command", "median s", "fastest", "slowest"], floatfmt=".2f"), table, sep="\n\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
