"""What do all oracles cost on top of values alone? The smoke suite, each variant both ways in turn, in one run.

    python bench/oracles.py [-k EXPR]

"Values alone" is what people write by hand: eager, float64 eager, compiled, ``torch._dynamo.utils.same``. "All
oracles" is the runner's own job. Each way runs in a forked child of one warm process with a kernel cache of its own,
the order alternating by pairs of variants; prints the sums and the ratio.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

os.environ.update({
    "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    **os.environ,
})  # fmt: skip

import torch
from commands import SUITES, command_line, option
from torch._dynamo.utils import same
from torch.utils._pytree import tree_map

from runner.builder.source import build
from runner.cases.expand import parse_selection
from runner.contract.job import Job
from runner.session.collect import load
from runner.session.plan import Environment, Planned, job
from runner.worker.program import backends
from runner.worker.program.load import Source, environment
from runner.worker.run.job import judge_job


def widen(value: Any) -> Any:
    """Return a floating tensor in float64."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def values_alone(task: Job) -> None:
    """Compare as people do by hand."""
    with (
        tempfile.TemporaryDirectory() as folder,
        environment(task),
        contextlib.closing(Source(task.source, task.name, folder)) as source,
    ):
        compile_module = backends.build(task.backend)
        torch._dynamo.reset()
        results = []
        for way in ("eager", "float64", "compiled"):
            loaded = source.load(task.seed)
            model = compile_module(loaded.model) if way == "compiled" else loaded.model
            for number, make in enumerate(loaded.makers):
                torch.manual_seed(task.seed + number)
                args = make()
                if way == "float64":
                    model, args = model.double(), tree_map(widen, args)
                torch.manual_seed(task.seed + number)
                try:
                    with torch.set_grad_enabled(task.grad["mode"] != "off"):
                        results.append(model(*args))
                except RuntimeError:  # autocast and modules of a dtype of their own do not run in float64
                    assert way == "float64"
                    results.append(results[number])
        third = len(results) // 3
        for number in range(third):
            same(results[number], results[2 * third + number], results[third + number])


def seconds(run: Callable[[Job], Any], task: Job, cache: str) -> float:
    """Return wall seconds of a forked child whose kernels are kept in ``cache``. Raises RuntimeError if it failed."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            run(task)
            os._exit(0)
        except Exception:  # noqa: BLE001  it is printed, and the exit status tells
            traceback.print_exc()
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError(f"{task.id} failed in {run}")
    return time.monotonic() - began


def main() -> None:
    """Measure and print."""
    usual = "not tag:planted and not tag:capture and not case:refused_index"
    arguments = command_line(__doc__, option("-k", dest="select", default=usual)).parse_args()
    torch.set_num_threads(1)
    torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
    variants = [*filter(parse_selection(arguments.select), load([str(SUITES / "smoke.suite.yaml")]).variants)]
    if not variants:
        sys.exit(f"nothing selected by {arguments.select!r}")
    here = Environment("0", "", torch.__version__, torch.__version__, "")
    ways = [("values alone", values_alone), ("all oracles", lambda task: judge_job(task, lambda message: None))]
    sums = {name: 0.0 for name, _ in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number, variant in enumerate(variants):
            task = job(Planned(variant, here), build(variant))
            for name, run in ways if number // 2 % 2 else ways[::-1]:  # backends alternate too, so by pairs
                sums[name] += seconds(run, task, os.path.join(folder, name.replace(" ", "-")))
    for name, total in sums.items():
        print(f"{name:<14} {total:7.1f} s for {len(variants)} variants, {total / len(variants):.2f} s each")
    print(f"ratio {sums['all oracles'] / sums['values alone']:.2f}")


if __name__ == "__main__":
    main()
