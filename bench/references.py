"""What stands behind each variant's floating results: a float64 reference, the movement of eager's own, or neither?

    python bench/references.py suites/smoke.suite.yaml specs/ [-j N] [--backend NAME] [--far UNITS]

Runs eager and the reference of every variant, without any backend, each in a process of its own. Prints how many
float variants have which, and why some have no reference. ``--far`` names variants in which eager is off from the
reference by more units roundoff of the largest element: there one of the two deserves a look. Exits 1 when more than
1 % have neither.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import torch
from commands import command_line, option

from runner.builder.source import build
from runner.contract.job import Job
from runner.session.collect import load
from runner.session.plan import Environment, Planned, job, skip_reason
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import open_source
from runner.worker.program.observe import Observation, Settings, observe
from runner.worker.program.snapshot import elements
from runner.worker.rerun.reference import Reference, call_leaves
from runner.worker.rounding import sensitivity
from runner.worker.run.job import Unavailable, require

KINDS = ("reference", "stand-in", "neither")
"""What a variant has for the worst of its floating results, the best first. A float64 result has a stand-in at best."""

SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a variant has: one of KINDS, or why no float; the notes; eager's largest error in units roundoff."""

    kind: str
    reason: str = ""
    units: float = 0.0


def examine(job: Job) -> Answer:
    """Run eager and the reference of a job."""
    try:
        with open_source(job) as source:
            require(job)
            settings = Settings.of(job)
            loaded = source.load(settings.seed)
            eager = observe(loaded, loaded.model, settings)
            if eager.error is not None:
                return Answer("raises", eager.error.summary)
            return _answer(eager, Reference(source, settings, eager, True, lambda _: None))
    except (InvalidCase, Unavailable) as error:
        return Answer("cannot run", str(error))


def _answer(eager: Observation, reference: Reference) -> Answer:
    worst, units = "", 0.0
    for call, path, own in _floating(eager):
        exact = None if own.dtype in sensitivity.WIDEST else reference.tensor(call, path)
        kind = KINDS[0] if exact is not None else KINDS[2]
        if exact is None and reference.measure_movement(call, path, own.dtype) is not None:
            kind = KINDS[1]
        worst = max(worst, kind, key=("", *KINDS).index)
        if exact is not None:
            units = max(units, _units(own, exact))
    return Answer(worst or "no float", "; ".join(reference.notes), units)


def _floating(eager: Observation) -> Iterator[tuple[int, str, torch.Tensor]]:
    for call, record in enumerate(eager.calls):
        for path, leaf in call_leaves(record).items():
            own = elements(leaf) if leaf.metadata is not None else None
            if own is not None and own.numel() and (own.is_floating_point() or own.is_complex()):
                yield call, path, own


def _units(own: torch.Tensor, exact: torch.Tensor) -> float:
    gap, unit = (own.to(exact.dtype) - exact).abs(), sensitivity.unit(own.dtype)
    finite = gap.isfinite()
    if unit is None or not bool(finite.any()):
        return 0.0
    scale = float(exact[finite].abs().max())
    return float(gap[finite].max()) / (unit * scale) if scale else 0.0


def _child(job: Job, pipe: Connection) -> None:
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):  # what cases print
        pipe.send(examine(job))


def examine_alone(job: Job) -> Answer:
    """Examine a job in a process of its own, which may die."""
    pipe, end = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(job, end))
    process.start()
    end.close()
    try:
        return pipe.recv() if pipe.poll(SECONDS) else Answer("cannot run", f"not done after {SECONDS:g} s")
    except EOFError:
        return Answer("cannot run", "the process died")
    finally:
        process.kill()
        process.join()


def jobs(paths: list[str], backends: list[str]) -> Iterator[tuple[str, Job]]:
    """Yield (id, job) of every variant that can run here."""
    environment = Environment("here", sys.executable, torch.__version__.partition("+")[0], torch.__version__, "")
    for variant in load(paths, allow_python=True).variants:
        planned = Planned(variant, environment)
        if skip_reason(planned) or (backends and variant.backend.name not in backends):
            continue
        task = job(planned, build(variant))
        if task.float64:
            yield variant.id, task


def main() -> int:
    """Examine all variants; 1 if too many have neither."""
    arguments = command_line(
        __doc__, option("paths", nargs="+"), option("--backend", action="append", default=[]),
        option("--far", type=float, default=float("inf")), option("-j", type=int, default=1),
    ).parse_args()  # fmt: skip
    ids, fields = zip(*jobs(arguments.paths, arguments.backend), strict=True)
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    with ThreadPoolExecutor(arguments.j) as pool:
        answers = [*zip(ids, pool.map(examine_alone, fields), strict=True)]
    for name, answer in answers:
        if answer.reason and answer.kind != "no float":
            reasons[f"{answer.kind}: {answer.reason}"].append(name)
        if answer.units > arguments.far:
            print(f"{name}: eager is off by {answer.units:.3g} units")
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):5} {reason[:160]} ({names[0]})")
    counts = collections.Counter(answer.kind for _, answer in answers)
    floats = sum(counts[kind] for kind in KINDS)
    print(f"{floats} float variants: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    print(", ".join(f"{count} {kind}" for kind, count in counts.items() if kind not in KINDS) or "all have floats")
    return int(counts["neither"] > 0.01 * floats)


if __name__ == "__main__":
    sys.exit(main())
