"""Does the reducer end small, and soon? Ten chains of 20 operators around a planted bug, or every failure of the corpus.

    python bench/reduce.py [-k WORD] [--seed N] [-j N]
    runner run suites/regressions.suite.yaml --no-known --allow-python --events log.jsonl
    python bench/reduce.py --corpus log.jsonl [-k EXPR] [--budget TIME]

The chains: two compile crashes, wrong values, wrong gradients, lost mutations and strides each, of tensors of 64 x 64. For
each: operators and elements before and after, the operators that the bug needs, runs and seconds from a cold start of the
workers (the kernel cache is the bench's own, and a first compile has filled it with what depends on the machine alone).
Exits with 1 when one of the targets is missed: at most 2 operators besides those needed, no tensor of more than 8 elements,
the same signature by a verdict of its own, a file that validates, a median under 60 s.

The corpus: every variant of the regression suite that fails in that run, each with a budget. Exits with 1 if any ends larger
than it began.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from runner.cases.expand import parse_selection
from runner.cases.model import Variant
from runner.cases.serialize import plain, text_of_plain
from runner.cli.arguments import seconds
from runner.diagnose.harness import Progress, VariantEngine
from runner.exit_codes import UsageError
from runner.reduce.reducer import Reduced, reduce_variant
from runner.session.collect import load
from runner.session.plan import Environment, find_environments
from runner.verdict.signature import main_signature

HERE = Path(__file__).resolve().parent
SUITE = HERE.parent / "suites" / "regressions.suite.yaml"
FLAG = "torch._inductor.config.cpp.inject_{}_bug_TESTING_ONLY"
LENGTH, SIDE = 20, 64
SPARE, ELEMENTS, MEDIAN = 2, 8, 60.0
"""The targets: operators besides those needed, elements of a tensor, seconds."""

FILLERS = (
    "torch.sin", "torch.cos", "torch.tanh", "F.gelu", "F.silu", "F.softplus", "{torch.mul: [$_, 0.75]}", "{torch.add: [$_, $x]}",
    "{torch.clamp: {'*': [$_], min: -4.0, max: 4.0}}", "{nn.Linear: [64, 64]}", "{torch.softmax: {'*': [$_], dim: -1}}",
    "{torch.roll: {'*': [$_], shifts: 3, dims: 0}}", "{F.layer_norm: [$_, [64]]}", "{torch.sub: [$_, 0.5]}", "{torch.flip: [$_, [1]]}",
)  # fmt: skip
POINTWISE = (
    "torch.sin",
    "torch.cos",
    "torch.tanh",
    "F.gelu",
    "F.silu",
    "{torch.mul: [$_, 0.75]}",
    "{torch.sub: [$_, 0.5]}",
)
"""Operators that keep strides."""


@dataclass(frozen=True)
class Planted:
    """A bug: the steps that it needs, the backend or flag that plants it, and more keys of the case."""

    name: str
    steps: tuple[str, ...]
    backend: str = "inductor"
    keys: str = ""
    fillers: tuple[str, ...] = FILLERS

    def text(self, seed: int) -> str:
        """A chain of LENGTH steps with the bug somewhere in the midst of it."""
        drawn = random.Random(f"{self.name} {seed}")
        chain = [drawn.choice(self.fillers) for _ in range(LENGTH - len(self.steps))]
        place = drawn.randint(3, len(chain) - 3)
        chain[place:place] = self.steps
        body = "".join(f"      - {step}\n" for step in chain)
        return (
            f"cases:\n  - name: {self.name}\n    inputs: {{x: {{shape: [{SIDE}, {SIDE}], requires_grad: true}}}}\n"
            f"    chain:\n{body}{self.keys}"
        )


PLANTED = (
    Planted("crash_relu", ("torch.relu",), keys=f"    config: {{{FLAG.format('relu')}: compile_error}}\n"),
    Planted("crash_foobar", ("aten._foobar",)),
    Planted("value_relu", ("torch.relu",), keys=f"    config: {{{FLAG.format('relu')}: accuracy}}\n"),
    Planted("value_log1p", ("torch.abs", "torch.log1p"), keys=f"    config: {{{FLAG.format('log1p')}: accuracy}}\n"),
    Planted("grad_sigmoid", ("torch.sigmoid",), "reduce_backends:wrong_gradient_of_sigmoid", "    grad: backward\n"),
    Planted("grad_cumsum", ("{torch.cumsum: [$_, 1]}",), "reduce_backends:wrong_gradient_of_cumsum", "    grad: backward\n"),
    Planted("mutation_add", ("{Tensor.add_: [$x, 1.0]}", "torch.sin"), "reduce_backends:lost_add", "    grad: off\n"),
    Planted(
        "mutation_setitem", ("{operator.setitem: [$x, '[0:3, 1]', 2.0]}",), "reduce_backends:lost_setitem", "    grad: off\n"
    ),
    Planted("stride_permute", ("{torch.permute: [$_, [1, 0]]}",), "reduce_backends:dense_permute", "    grad: off\n", POINTWISE),
    Planted(
        "stride_contiguous", ("{Tensor.transpose: [$_, 0, 1]}", "Tensor.contiguous"), "reduce_backends:lazy_contiguous",
        "    grad: off\n", POINTWISE,
    ),
)  # fmt: skip
NEEDED = {"value_log1p": 1, "mutation_add": 1}
"""Operators that a bug needs, where they are not all the planted steps: a filler keeps the chain going."""


def main() -> int:
    """Run one of the two; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, metavar="LOG", help="the journal of a run of the regression suite")
    parser.add_argument("-k", dest="select", default="", help="chains whose name holds this; with --corpus a selection")
    parser.add_argument("--seed", type=int, default=0, help="of the chains (default: 0)")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--budget", type=seconds, default=120.0)
    arguments = parser.parse_args()
    (here,) = find_environments([])
    with tempfile.TemporaryDirectory(prefix="runner-bench-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "kernels"))
        return (corpus if arguments.corpus else chains)(arguments, here, Path(folder))


def chains(arguments: argparse.Namespace, here: Environment, folder: Path) -> int:
    """The ten chains."""
    chosen = [bug for bug in PLANTED if arguments.select in bug.name]
    rows, taken, missed = [], [], []
    for number, bug in enumerate(chosen):
        variant = written(bug.text(arguments.seed), folder / f"{bug.name}.spec.yaml", bug.backend)
        if number == 0:
            fill_cache(variant, here, arguments.jobs)
        began = time.monotonic()
        reduced = reduced_by(variant, here, arguments)
        took = time.monotonic() - began
        taken.append(took)
        needed = NEEDED.get(bug.name, len(bug.steps))
        largest = largest_tensor(reduced)
        faults = []
        if reduced.size_after.operators > needed + SPARE:
            faults.append("operators")
        if largest > ELEMENTS:
            faults.append("elements")
        faults += unlike(reduced, here, folder / "again.spec.yaml", bug.backend)
        missed += [f"{bug.name}: {fault}" for fault in faults]
        rows.append([
            bug.name, str(reduced.signature)[:40], f"{reduced.size_before.operators} -> {reduced.size_after.operators}", needed,
            f"{reduced.size_before.elements} -> {reduced.size_after.elements}", reduced.runs, round(took, 1),
            "yes" if reduced.complete else "no", ", ".join(faults) or "-",
        ])  # fmt: skip
        print(f"{rows[-1]}\n{reduced.text}", flush=True)
    headers = ["chain", "signature", "operators", "needed", "elements", "runs", "seconds", "complete", "missed"]
    print(tabulate(rows, headers=headers))
    median = statistics.median(taken)
    print(f"median {median:.1f} s, longest {max(taken):.1f} s; load {os.getloadavg()[0]:.1f}")
    if median >= MEDIAN:
        missed.append(f"median of {median:.1f} s")
    print("missed: " + "; ".join(missed) if missed else "every target is met")
    return 1 if missed else 0


def corpus(arguments: argparse.Namespace, here: Environment, folder: Path) -> int:
    """Every failing variant of the regression suite."""
    wanted = parse_selection(arguments.select) if arguments.select else None
    failing = failures(arguments.corpus)
    variants = [v for v in load([str(SUITE)], allow_python=True).variants if name_of(v.id) in failing]
    assert len(variants) == len(failing), f"{arguments.corpus} is not of this suite"
    variants = [variant for variant in variants if wanted is None or wanted(variant)]
    rows, larger = [], []
    for variant in variants:
        try:
            reduced = reduced_by(variant, here, arguments)
        except UsageError as error:
            print(f"{variant.case.name}: left out: {error}", flush=True)
            continue
        grew = [
            what
            for what in ("operators", "elements")
            if getattr(reduced.size_after, what) > getattr(reduced.size_before, what)
        ]
        larger += [f"{variant.case.name}: {what}" for what in grew]
        rows.append([
            variant.case.name, str(reduced.signature)[:40], f"{reduced.size_before.operators} -> {reduced.size_after.operators}",
            f"{reduced.size_before.elements} -> {reduced.size_after.elements}", reduced.runs, round(reduced.seconds, 1),
            "yes" if reduced.complete else "no", "yes" if reduced.confirmed else "NO", ", ".join(grew) or "never larger",
        ])  # fmt: skip
        print(rows[-1], flush=True)
    headers = ["case", "signature", "operators", "elements", "runs", "seconds", "complete", "confirmed", "larger"]
    print(tabulate(rows, headers=headers))
    print("larger: " + "; ".join(larger) if larger else f"{len(rows)} failures, none ended larger than it began")
    return 1 if larger else 0


def failures(log: Path) -> set[str]:
    """The variants with a red verdict of the compiler's own."""
    events = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return {
        name_of(one["id"])
        for one in events
        if one["event"] == "variant-finished" and one["verdict"] in ("FAIL", "ERROR")
    }


def name_of(variant: str) -> str:
    """An id without the folder that the run was started from."""
    return variant.rpartition("/")[2]


def written(text: str, path: Path, backend: str) -> Variant:
    """The only variant of a file with this text, under a backend. It must be valid."""
    path.write_text(text, encoding="utf-8")
    loaded = load([str(path)], backends=[backend])
    assert not loaded.errors, [error.render() for error in loaded.errors]
    (variant,) = loaded.variants
    return variant


def reduced_by(variant: Variant, here: Environment, arguments: argparse.Namespace) -> Reduced:
    """The variant reduced, from a cold start of the workers."""
    progress = Progress()
    try:
        with VariantEngine(variant, here, slots=arguments.jobs, paths=[str(HERE)]) as engine:
            return reduce_variant(
                engine, budget=arguments.budget, tick=progress.say if sys.stderr.isatty() else lambda _: None
            )
    finally:
        progress.end()


def fill_cache(variant: Variant, here: Environment, jobs: int) -> None:
    """Compile once, so that what depends on the machine alone is in the cache."""
    with VariantEngine(variant, here, slots=jobs, paths=[str(HERE)]) as engine:
        engine.verdict()


def unlike(reduced: Reduced, here: Environment, path: Path, backend: str) -> Iterator[str]:
    """What is wrong with the result: no valid file, or another failure."""
    path.write_text(reduced.text, encoding="utf-8")
    loaded = load([str(path)], backends=[backend], everything=True)
    if loaded.errors or text_of_plain(plain(loaded.variants[0].case)) != reduced.text:
        yield "valid YAML"
        return
    with VariantEngine(loaded.variants[0], here, slots=2, paths=[str(HERE)]) as engine:
        if main_signature(engine.verdict().findings) != reduced.signature:
            yield "signature"


def largest_tensor(reduced: Reduced) -> int:
    """Elements of the largest input."""
    import math

    case = reduced.variant.case
    shapes = [[getattr(size, "value", 1) for size in item.shape or ()] for item in (*case.inputs, *case.state)]
    return max(map(math.prod, shapes), default=0)


if __name__ == "__main__":
    sys.exit(main())
