"""Does the reducer end small, and soon? Ten chains of 20 operators around a bug, or every failure of the corpus.

    python bench/reduce.py [-k WORD] [--seed N] [-j N]
    runner run suites/regressions.suite.yaml --no-known --allow-python --events log.jsonl
    python bench/reduce.py --corpus log.jsonl [-k EXPR] [--budget TIME]

The chains: two compile crashes, wrong values, wrong gradients, lost mutations and strides each, of tensors of 64 x
64. For each: operators and elements before and after, the operators that the bug needs, runs and seconds from a cold
start of the workers (the kernel cache is the bench's own, and a first compile has filled it with what depends on the
machine alone). Exits with 1 when one of the targets is missed: at most 2 operators besides those needed, no tensor of
more than 8 elements, the same signature by a verdict of its own, a file that validates, a median under 60 s.

The corpus: every variant of the regression suite that fails in that run, each with a budget. Exits with 1 if any ends
larger than it began.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands import SUITES, command_line, name_of, option, read_results
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

HERE = [str(Path(__file__).resolve().parent)]
FLAG = "torch._inductor.config.cpp.inject_{}_bug_TESTING_ONLY"
LENGTH, SIDE = 20, 64
SPARE, ELEMENTS, MEDIAN = 2, 8, 60.0
"""The targets: operators besides those needed, elements of a tensor, seconds."""

POINTWISE = (
    "torch.sin", "torch.cos", "torch.tanh", "F.gelu", "F.silu", "{torch.mul: [$_, 0.75]}", "{torch.sub: [$_, 0.5]}",
)  # fmt: skip
"""Operators that keep strides."""
FILLERS = (
    "torch.sin", "torch.cos", "torch.tanh", "F.gelu", "F.silu", "F.softplus", "{torch.mul: [$_, 0.75]}",
    "{torch.add: [$_, $x]}", "{torch.clamp: {'*': [$_], min: -4.0, max: 4.0}}", "{nn.Linear: [64, 64]}",
    "{torch.softmax: {'*': [$_], dim: -1}}", "{torch.roll: {'*': [$_], shifts: 3, dims: 0}}",
    "{F.layer_norm: [$_, [64]]}",
    "{torch.sub: [$_, 0.5]}", "{torch.flip: [$_, [1]]}",
)  # fmt: skip
MODULE, GRADIENT, FORWARD = "reduce_backends", "    grad: backward\n", "    grad: off\n"


@dataclass(frozen=True)
class Planted:
    """A bug: its steps, the backend or flag that plants it, and more keys of the case.

    ``needed`` is how many operators it needs, where that is not each step: a filler keeps the chain going.
    """

    name: str
    steps: tuple[str, ...]
    backend: str = "inductor"
    keys: str = ""
    fillers: tuple[str, ...] = FILLERS
    needed: int = 0

    def text(self, seed: int) -> str:
        """Return a chain of LENGTH steps with the bug somewhere in the midst of it."""
        numbers = random.Random(f"{self.name} {seed}")
        chain = [numbers.choice(self.fillers) for _ in range(LENGTH - len(self.steps))]
        place = numbers.randint(3, len(chain) - 3)
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
    Planted("value_log1p", ("torch.abs", "torch.log1p"), keys=f"    config: {{{FLAG.format('log1p')}: accuracy}}\n",
            needed=1),
    Planted("grad_sigmoid", ("torch.sigmoid",), f"{MODULE}:wrong_gradient_of_sigmoid", GRADIENT),
    Planted("grad_cumsum", ("{torch.cumsum: [$_, 1]}",), f"{MODULE}:wrong_gradient_of_cumsum", GRADIENT),
    Planted("mutation_add", ("{Tensor.add_: [$x, 1.0]}", "torch.sin"), f"{MODULE}:lost_add", FORWARD, needed=1),
    Planted("mutation_setitem", ("{operator.setitem: [$x, '[0:3, 1]', 2.0]}",), f"{MODULE}:lost_setitem", FORWARD),
    Planted("stride_permute", ("{torch.permute: [$_, [1, 0]]}",), f"{MODULE}:dense_permute", FORWARD, POINTWISE),
    Planted("stride_contiguous", ("{Tensor.transpose: [$_, 0, 1]}", "Tensor.contiguous"), f"{MODULE}:lazy_contiguous",
            FORWARD, POINTWISE),
)  # fmt: skip
HEADERS = ("case", "signature", "operators", "needed", "elements", "runs", "seconds", "complete")


def main() -> int:
    """Run one of the two; 1 if a target is missed."""
    arguments = command_line(
        __doc__,
        option("--corpus", type=Path, metavar="LOG", help="the journal of a run of the regression suite"),
        option("-k", dest="select", default="", help="chains whose name holds this; with --corpus a selection"),
        option("--seed", type=int, default=0, help="of the chains (default: 0)"),
        option("-j", "--jobs", type=int, default=2),
        option("--budget", type=seconds, default=120.0),
    ).parse_args()
    (here,) = find_environments([])
    with tempfile.TemporaryDirectory(prefix="runner-bench-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "kernels"))
        return (reduce_corpus if arguments.corpus else reduce_chains)(arguments, here, Path(folder))


def reduce_chains(arguments: argparse.Namespace, here: Environment, folder: Path) -> int:
    """Reduce the ten chains."""
    rows, times, missed = [], [], []
    for bug in (bug for bug in PLANTED if arguments.select in bug.name):
        variant = write_variant(bug.text(arguments.seed), folder / f"{bug.name}.spec.yaml", bug.backend)
        if not rows:  # compile once, so that what depends on the machine alone is in the cache
            with VariantEngine(variant, here, slots=arguments.jobs, paths=HERE) as engine:
                engine.verdict()
        began = time.monotonic()
        reduced = reduce(variant, here, arguments)
        times.append(time.monotonic() - began)
        needed = bug.needed or len(bug.steps)
        faults = [
            *["operators"] * (reduced.size_after.operators > needed + SPARE),
            *["elements"] * (largest(reduced) > ELEMENTS),
        ]
        faults += difference(reduced, here, folder / "again.spec.yaml", bug.backend)
        missed += [f"{bug.name}: {fault}" for fault in faults]
        rows.append(row_of(bug.name, reduced, needed, times[-1], ", ".join(faults) or "-"))
        print(f"{rows[-1]}\n{reduced.text}", flush=True)
    print(tabulate(rows, headers=[*HEADERS, "missed"]))
    median = statistics.median(times)
    print(f"median {median:.1f} s, longest {max(times):.1f} s; load {os.getloadavg()[0]:.1f}")
    missed += [f"median of {median:.1f} s"] * (median >= MEDIAN)
    print("missed: " + "; ".join(missed) if missed else "every target is met")
    return int(bool(missed))


def reduce_corpus(arguments: argparse.Namespace, here: Environment, folder: Path) -> int:
    """Reduce every failing variant of the regression suite."""
    failing = {name_of(result.id) for result in read_results(arguments.corpus) if result.verdict in ("FAIL", "ERROR")}
    suite = load([str(SUITES / "regressions.suite.yaml")], allow_python=True).variants
    variants = [variant for variant in suite if name_of(variant.id) in failing]
    assert len(variants) == len(failing), f"{arguments.corpus} is not of this suite"
    is_selected = parse_selection(arguments.select) if arguments.select else lambda variant: True
    rows, larger = [], []
    for variant in filter(is_selected, variants):
        try:
            reduced = reduce(variant, here, arguments)
        except UsageError as error:
            print(f"{variant.case.name}: left out: {error}", flush=True)
            continue
        sizes = [
            (name, getattr(reduced.size_before, name), getattr(reduced.size_after, name))
            for name in ("operators", "elements")
        ]
        grown = [name for name, size_before, size_after in sizes if size_after > size_before]
        larger += [f"{variant.case.name}: {name}" for name in grown]
        remarks = [*grown, *["NOT confirmed"] * (not reduced.confirmed)]
        rows.append(row_of(variant.case.name, reduced, "", reduced.seconds, ", ".join(remarks) or "never larger"))
        print(rows[-1], flush=True)
    print(tabulate(rows, headers=[*HEADERS, "larger"]))
    print("larger: " + "; ".join(larger) if larger else f"{len(rows)} failures, none ended larger than it began")
    return int(bool(larger))


def row_of(name: str, reduced: Reduced, needed: object, seconds: float, remark: str) -> list[object]:
    """Return a row of either table."""
    pairs = [
        (getattr(reduced.size_before, size), getattr(reduced.size_after, size)) for size in ("operators", "elements")
    ]
    operators, elements = (f"{size_before} -> {size_after}" for size_before, size_after in pairs)
    return [
        name,
        str(reduced.signature)[:40],
        operators,
        needed,
        elements,
        reduced.runs,
        round(seconds, 1),
        "yes" if reduced.complete else "no",
        remark,
    ]


def write_variant(text: str, path: Path, backend: str) -> Variant:
    """Write a file, and return its only variant under a backend. It must be valid."""
    path.write_text(text, encoding="utf-8")
    loaded = load([str(path)], backends=[backend])
    assert not loaded.errors, [error.render() for error in loaded.errors]
    (variant,) = loaded.variants
    return variant


def reduce(variant: Variant, here: Environment, arguments: argparse.Namespace) -> Reduced:
    """Reduce a variant, from a cold start of the workers."""
    progress = Progress()
    tick = progress.say if sys.stderr.isatty() else lambda _: None
    try:
        with VariantEngine(variant, here, slots=arguments.jobs, paths=HERE) as engine:
            return reduce_variant(engine, budget=arguments.budget, tick=tick)
    finally:
        progress.end()


def difference(reduced: Reduced, here: Environment, path: Path, backend: str) -> Iterator[str]:
    """Yield what is wrong with the result: no valid file, or another failure."""
    path.write_text(reduced.text, encoding="utf-8")
    loaded = load([str(path)], backends=[backend], everything=True)
    if loaded.errors or text_of_plain(plain(loaded.variants[0].case)) != reduced.text:
        yield "valid YAML"
        return
    with VariantEngine(loaded.variants[0], here, slots=2, paths=HERE) as engine:
        if main_signature(engine.verdict().findings) != reduced.signature:
            yield "signature"


def largest(reduced: Reduced) -> int:
    """Return the elements of the largest input."""
    case = reduced.variant.case
    shapes = [[getattr(size, "value", 1) for size in item.shape or ()] for item in (*case.inputs, *case.state)]
    return max(map(math.prod, shapes), default=0)


if __name__ == "__main__":
    sys.exit(main())
