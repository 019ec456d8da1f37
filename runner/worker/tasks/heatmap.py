"""The place and size of a tensor's errors, as a grid and histograms: numbers for a page, never tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from runner.contract.finding import Finding, index_of
from runner.contract.job import Job
from runner.contract.oracles import ORACLES
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge_defined
from runner.worker.program import backends
from runner.worker.program.eager import observe_eager
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import Source, open_source
from runner.worker.program.observe import Settings
from runner.worker.program.snapshot import Leaf
from runner.worker.rerun.reference import Reference, call_leaves
from runner.worker.run.job import Send, Unavailable, observe_backend, require, validate_distributions
from runner.worker.tensors import (
    Tolerance,
    classes,
    different_bits,
    error_of,
    finite_difference,
    finite_part,
    norm,
    number,
    pieces,
    planes,
    tolerance_for,
)
from runner.worker.torch_private.counters import start_counting

CELLS = 64
"""Rows and columns of the grid, at most."""

WORST = 10

SPEAKING = tuple(row.name for row in sorted(ORACLES, key=lambda row: row.drawn) if row.drawn)
"""Oracles that are about elements, in the order in which one is chosen to be drawn."""

SMALLEST, LARGEST = -20, 20
"""Decades of the histogram: relative errors below 1e-20 and above 1e20 are counted in the outermost."""

KINDS = (("nan", torch.isnan), ("inf", torch.isposinf), ("-inf", torch.isneginf))
ALIKE, MISPLACED = 1, 2
"""What a cell holds besides finite numbers: NaN or infinities in the same places, or on one side alone."""


def run_picture(job: Job, send: Send) -> dict[str, Any]:
    """Run eager, its float64 reference and the backend once, and draw the tensor that shows the disagreement.

    ``job.arguments["cells"]`` bounds the grid (default CELLS).

    Returns:
        ``picture``: see ``draw``, with ``path`` and ``oracle``, or None where ``reason`` says why. ``inputs``: see
        ``measure``. ``eager_error``, ``compiled_error``: what was raised. ``error``: as in findings, when the case is
        wrong.
    """
    record: dict[str, Any] = {
        "picture": None,
        "reason": "",
        "inputs": [],
        "eager_error": None,
        "compiled_error": None,
        "error": None,
    }
    try:
        with open_source(job) as source:
            require(job)
            _go(job, source, send, record)
    except InvalidCase as error:
        record["error"] = error.info
    except Unavailable as error:
        record["error"] = {"type": "Unavailable", "message": str(error), "line": None}
    return record


def _go(job: Job, source: Source, send: Send, record: dict[str, Any]) -> None:
    settings = Settings.of(job)
    compile_module = backends.build(job.backend)
    validate_distributions(True)
    send({"phase": "eager"})
    start_counting()
    loaded = source.load(settings.seed)
    record["inputs"] = measure(loaded.make_inputs(0, settings.seed))
    eager = observe_eager(source, loaded, settings)
    send({"phase": "backend"})
    compiled = observe_backend(job, source, compile_module, eager)
    for name, observation in (("eager_error", eager), ("compiled_error", compiled)):
        record[name] = observation.error.info if observation.error is not None else None

    def begin(phase: str) -> None:
        send({"phase": phase})

    reference = Reference(source, settings, eager, job.float64, begin)
    evidence = Evidence(job, eager, compiled, reference)
    evidence, findings = judge_defined(evidence, source, settings, begin)
    chosen = _choose(findings, evidence)
    if chosen is None:
        raised = "the compiled run raised" if compiled.error is not None else "eager raised"
        is_finished = eager.error is None and compiled.error is None
        record["reason"] = "no tensor of equal shape and dtype differs" if is_finished else raised
        return
    oracle, call, eager_leaf, compiled_leaf = chosen
    cells = int(job.arguments.get("cells", CELLS))
    tolerance = tolerance_for(eager_leaf.value.dtype, job.tolerance, eager_leaf.path)
    picture = draw(eager_leaf.value, compiled_leaf.value, reference.tensor(call, eager_leaf.path), tolerance, cells)
    record["picture"] = {"path": evidence.where(call, eager_leaf.path), "oracle": oracle, **picture}


Chosen = tuple[str, int, Leaf, Leaf]
"""Oracle, call, eager's leaf and the compiled one."""


def _choose(findings: list[Finding], evidence: Evidence) -> Chosen | None:
    """Return the tensor of the finding that is about elements; without one the tensor whose difference is largest."""
    pairs = list(_pairs(evidence))
    for oracle in SPEAKING:
        paths = [finding.path for finding in findings if finding.oracle == oracle and "elements" in finding.numbers]
        for path, (call, eager, compiled) in itertools.product(paths, pairs):
            if path == evidence.where(call, eager.path):
                return oracle, call, eager, compiled
    worst: Chosen | None = None
    largest = 0.0
    for call, eager, compiled in pairs:
        for _, misplaced, error, _ in _errors(eager.value, compiled.value):
            magnitude = math.inf if bool(misplaced.any()) else float(error.max())
            if magnitude > largest:
                worst, largest = ("", call, eager, compiled), magnitude
    return worst


def _pairs(evidence: Evidence) -> Iterator[tuple[int, Leaf, Leaf]]:
    """Yield tensors of both sides that can be subtracted."""
    for call, eager, compiled in evidence.pairs():
        compiled_leaves = call_leaves(compiled)
        for path, leaf in call_leaves(eager).items():
            one, other = leaf.value, compiled_leaves[path].value if path in compiled_leaves else None
            if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or not one.numel():
                continue
            if one.shape == other.shape and one.dtype == other.dtype:
                yield call, leaf, compiled_leaves[path]


def measure(inputs: list[Any]) -> list[dict[str, Any]]:
    """Return of each floating input the counts of non-finite numbers and of denormals, and the largest magnitude."""
    measurements = []
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested:
            continue
        if not (value.is_floating_point() or value.is_complex()) or not value.numel() or value.device.type == "meta":
            continue
        flat = planes(value.detach().cpu())
        sizes = flat.abs()[flat.isfinite()]
        measurements.append(
            {
                "index": index,
                "dtype": _name(value.dtype),
                "nonfinite": int((~flat.isfinite()).sum()),
                "denormal": int(((sizes > 0) & (sizes < torch.finfo(value.dtype).tiny)).sum()),
                "largest": float(sizes.max()) if sizes.numel() else 0.0,
            }
        )
    return measurements


def draw(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    reference: torch.Tensor | None,
    tolerance: Tolerance,
    cells: int = CELLS,
) -> dict[str, Any]:
    """Return the difference of two dense CPU tensors of one shape and dtype.

    ``grid``: the tensor as a matrix of ``width`` columns. Leading dimensions are flattened; a vector is broken into
    rows of ``width``. Each cell covers ``row_span`` rows and ``column_span`` columns. A cell holds the largest
    ``absolute`` and ``relative`` error |compiled - eager| (/ |eager|), and ``kind`` (0, ALIKE, MISPLACED).
    ``worst``: the elements furthest beyond the tolerance, NaN and infinities of one side alone first.
    ``histogram``: see ``_histogram``. ``counts``: NaN and infinities per side. Infinite numbers are text, as ``number``
    has it.
    """
    shape = list(eager.shape)
    width = _width(shape, eager.numel())
    rows = -(-eager.numel() // width)
    row_span, column_span = -(-rows // cells), -(-width // cells)
    height, across = -(-rows // row_span), -(-width // column_span)
    absolute, relative = (torch.zeros(height * across, dtype=torch.float64) for _ in range(2))
    kind = torch.zeros(height * across, dtype=torch.int64)
    worst: list[tuple[float, int]] = []
    wrong = 0
    for start, misplaced, error, size in _errors(eager, compiled):
        flat = torch.arange(start, start + error.numel())
        cell = (flat // width // row_span) * across + flat % width // column_span
        ratio = torch.where(error == 0, 0.0, error / size)  # inf where eager is 0
        eager_planes = planes(eager.reshape(-1)[start : start + error.numel()])
        marks = torch.where(misplaced, MISPLACED, torch.where((classes(eager_planes) != 0).any(dim=1), ALIKE, 0))
        absolute.scatter_reduce_(0, cell, error, "amax")
        relative.scatter_reduce_(0, cell, ratio, "amax")
        kind.scatter_reduce_(0, cell, marks, "amax")
        limit = tolerance.atol + tolerance.rtol * size
        badness = torch.where(misplaced, torch.inf, error / torch.where(limit == 0, 1.0, limit))
        wrong += int((misplaced | (error > limit)).sum())
        top = torch.topk(badness, min(WORST, badness.numel()))
        candidates = zip(top.values.tolist(), (top.indices + start).tolist())  # noqa: B905  one topk's own
        worst = sorted([*worst, *candidates], key=lambda item: (-item[0], item[1]))[:WORST]
    sides = {"eager": eager, "compiled": compiled, **({"float64": reference} if reference is not None else {})}
    return {
        "shape": shape,
        "dtype": _name(eager.dtype),
        "elements": eager.numel(),
        "wrong": wrong,
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "grid": {
            "width": width,
            "row_span": row_span,
            "column_span": column_span,
            "absolute": _matrix(absolute, across),
            "relative": _matrix(relative, across),
            "kind": _matrix(kind, across),
        },
        "worst": [_element(sides, flat, shape) for badness, flat in worst if badness > 0],
        "histogram": None if reference is None else _histogram(eager, compiled, reference),
        "counts": {
            name: {key: sum(int(is_one(plane).any(dim=1).sum()) for _, plane in pieces(side)) for key, is_one in KINDS}
            for name, side in sides.items()
        },
    }


def _width(shape: list[int], elements: int) -> int:
    """Return the columns of the matrix. A vector longer than a row of cells is broken into a square."""
    if len(shape) > 1:
        return shape[-1]
    return elements if elements <= CELLS else max(CELLS, math.isqrt(elements - 1) + 1)


def _errors(
    eager: torch.Tensor, compiled: torch.Tensor
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield by pieces: start, misplaced NaN or infinities, |compiled - eager| and |eager| (0 where not finite)."""
    exact = not (eager.is_floating_point() or eager.is_complex())
    for start, eager_planes, compiled_planes in pieces(eager, compiled):
        misplaced = (classes(eager_planes) != classes(compiled_planes)).any(dim=1)
        error = norm(finite_difference(compiled_planes, eager_planes))
        if exact:  # neighbours of large integers are one float64
            both_sides = (side.reshape(-1)[start : start + error.numel()] for side in (eager, compiled))
            error = torch.where(different_bits(*both_sides), error.clamp_min(1.0), 0.0)
        yield start, misplaced, error, norm(finite_part(eager_planes, compiled_planes))


def _matrix(flat: torch.Tensor, across: int) -> list[list[Any]]:
    return [[number(value) for value in row] for row in flat.reshape(-1, across).tolist()]


def _element(sides: Mapping[str, torch.Tensor], flat: int, shape: list[int]) -> dict[str, Any]:
    """Return one element of every side, with the difference of eager and compiled."""
    values = {name: side.reshape(-1)[flat].item() for name, side in sides.items()}
    absolute, relative = error_of(values["eager"], values["compiled"])
    numbers = {**values, "absolute": absolute, "relative": relative}
    return {"index": index_of(flat, shape), **{name: number(value) for name, value in numbers.items()}}


def _histogram(eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor) -> dict[str, Any]:
    """Count relative errors |x - float64| / |float64| of both sides by decade.

    ``decades``: exponents, all that either side needs. ``eager``, ``compiled``: counts of errors in [10**d, 10**(d+1)).
    ``exact``: errors of 0. ``unscaled``: float64 is 0 and the side is not. ``left_out``: one of the three is not
    finite.
    """
    sides = ("eager", "compiled")
    counts = {side: torch.zeros(LARGEST - SMALLEST + 1, dtype=torch.int64) for side in sides}
    exact, unscaled, left_out = dict.fromkeys(sides, 0), dict.fromkeys(sides, 0), 0
    for _, eager_planes, compiled_planes, wide in pieces(eager, compiled, reference):
        finite = torch.stack([plane.isfinite().all(dim=1) for plane in (eager_planes, compiled_planes, wide)])
        finite = finite.all(dim=0)
        left_out += int((~finite).sum())
        scale = norm(wide[finite])
        for side, plane in zip(sides, (eager_planes, compiled_planes)):  # noqa: B905  two of each
            error = norm((plane - wide)[finite])
            exact[side] += int((error == 0).sum())
            unscaled[side] += int(((error > 0) & (scale == 0)).sum())
            ratio = (error / scale)[(error > 0) & (scale > 0)]
            decade = ratio.log10().floor().clamp(SMALLEST, LARGEST).to(torch.int64) - SMALLEST
            counts[side] += torch.bincount(decade, minlength=counts[side].numel())
    used = ((counts["eager"] + counts["compiled"]) > 0).nonzero().reshape(-1).tolist()
    low, high = (used[0], used[-1] + 1) if used else (0, 0)
    return {
        "decades": list(range(low + SMALLEST, high + SMALLEST)),
        **{side: counts[side][low:high].tolist() for side in sides},
        "exact": exact,
        "unscaled": unscaled,
        "left_out": left_out,
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
