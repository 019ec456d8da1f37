"""Whether a case is worth writing: eager PyTorch takes it, its results say something, and all of them are defined.

Eager runs it twice under one seed and once under another one, and then beside its float64 reference and under other
legal choices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch

from runner.contract.job import Job
from runner.worker.judge.validity import is_saturated
from runner.worker.operators.freedoms import OVERLAP
from runner.worker.program import backends
from runner.worker.program.errors import InvalidCase, refutation
from runner.worker.program.load import Source, open_source
from runner.worker.program.observe import Observation, Settings, observe
from runner.worker.program.snapshot import Leaf, elements
from runner.worker.program.walk import flatten
from runner.worker.rerun.agreement import find_disagreement
from runner.worker.rerun.legal_runs import find_undefined
from runner.worker.rerun.reference import Reference, call_leaves
from runner.worker.run.job import observe_backend

SEEDS = (0, 1)

LOST = 2.0**-3
"""The part of the largest element by which eager may be off from float64. A sum in bfloat16 is off by less."""

UNTRACED = (
    "allclose", "argwhere", "bincount", "combinations", "corrcoef", "cov", "ctc_loss", "equal", "gaussian_nll_loss",
    "histogram", "histogramdd", "index_fill", "index_fill_", "index_put", "index_put_", "item", "linalg_lstsq",
    "lstsq", "masked_select", "narrow", "nonzero", "nonzero_static", "one_hot", "put", "put_", "repeat_interleave",
    "take", "tensor_split", "tolist", "unique", "unique_consecutive",
)  # fmt: skip
"""Operators that read values: those of a mask, and of an index of ``put`` without dimensions, in the backward alone.

Dynamo may leave a function to eager for one of them, with all that is in it."""


def _in_place_views() -> Iterator[str]:
    """Yield the operators that change a tensor's own sizes or strides, such as ``unsqueeze_``.

    Dynamo refuses them for an input.
    """
    for name in dir(torch.Tensor):
        operator = getattr(torch.ops.aten, name, None) if name.endswith("_") and not name.endswith("__") else None
        if operator is not None and torch.Tag.inplace_view in getattr(operator, operator.overloads()[0]).tags:
            yield name


_UNTRACED = re.compile(rf"\b(?:{'|'.join((*UNTRACED, *_in_place_views()))})\b")


def fault_of(job: Job) -> str:
    """Return why a case is not written, or nothing. ``job`` is a judging job; its backend does not run."""
    settings = [Settings.of(replace(job, seed=seed)) for seed in SEEDS]
    try:
        with open_source(job) as source:
            first, again, other = (_run(source, each) for each in (settings[0], *settings))
            expected = job.expect.get("raises")
            if expected is not None:
                return next(filter(None, (refutation(run.error, expected) for run in (first, again, other))), "")
            is_same = all(map(_is_same, first.calls[0].outputs.leaves, other.calls[0].outputs.leaves))
            return (
                _fault_of_runs(first, again, other, settings[0])
                or ("constant" if is_same and not _is_given(source) else "")
                or ("constant" if is_saturated(first, source, settings[0]) else "")
                or _fault_of_values(source, first, settings[0])
                or _fault_of_graphs(job, source, first)
            )
    except InvalidCase as error:
        return f"invalid: {error.reason}"


def _run(source: Source, settings: Settings) -> Observation:
    loaded = source.load(settings.seed)
    return observe(loaded, loaded.model, settings)


def _fault_of_runs(first: Observation, again: Observation, other: Observation, settings: Settings) -> str:
    """Return what is wrong with two runs of one seed and one of another."""
    for run in (first, again, other):
        if run.error is not None:
            return f"raises {run.error.summary}"
    if find_disagreement(first, again):
        return "varies"
    if any(_is_nan(leaf) for call in first.calls for leaf in call.outputs.leaves):
        return "not a number"
    if not first.calls[0].outputs.leaves:
        return "constant"
    has_gradient = settings.grad != "backward" or any(first.calls[0].gradients.values())
    return "" if has_gradient else "no gradient"


def _is_given(source: Source) -> bool:
    """Return whether the case itself gives all values of its inputs, so that no seed changes them."""
    one, two = ([leaf for _, leaf in flatten(source.load(seed).make_inputs(0, seed), "")[1]] for seed in SEEDS)
    pairs = [pair for pair in zip(one, two, strict=False) if isinstance(pair[0], torch.Tensor)]
    return any(first.numel() for first, _ in pairs) and all(
        first.layout == torch.strided and torch.equal(first, second) for first, second in pairs
    )


def _is_same(one: Leaf, two: Leaf) -> bool:
    if not isinstance(one.value, torch.Tensor) or not isinstance(two.value, torch.Tensor):
        return repr(one.value) == repr(two.value)
    return one.value.shape == two.value.shape and bool(torch.equal(one.value, two.value))


def _is_nan(leaf: Leaf) -> bool:
    value = leaf.value
    is_inexact = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return bool(is_inexact and value.numel() and value.isnan().all())


def _is_ill_conditioned(leaf: Leaf, exact: torch.Tensor) -> bool:
    """Return whether roundings decide about a result: another legal order of operations would give another one."""
    value = elements(leaf)
    if value is None or value.shape != exact.shape or not value.numel():
        return False
    finite = value.isfinite() & exact.isfinite()
    error, size = (value.to(exact.dtype) - exact).abs()[finite], exact.abs()[finite]
    return bool(error.numel()) and float(error.max()) > LOST * float(size.max())


def _fault_of_values(source: Source, eager: Observation, settings: Settings) -> str:
    """Return what is wrong with the values: none in float64, an overflow, or some that torch leaves undefined."""
    reference = Reference(source, settings, eager, True, lambda phase: None)
    conditions = []
    for number, call in enumerate(eager.calls):
        for path, leaf in call_leaves(call).items():
            exact = reference.tensor(number, path)
            computed = reference.rounded_in(number, path) is not None
            # Arithmetic that gave zeros alone: a rounding that another order leaves there is large beside nothing.
            cancels = exact is not None and computed and exact.numel() > 1 and not bool(exact.any())
            if cancels or (exact is not None and _is_ill_conditioned(leaf, exact)):
                conditions.append(path)
    if notes := [note for note in reference.notes if "nothing that is compared is floating" not in note]:
        return notes[0]
    if reference.overflow:
        return f"overflow: {reference.overflow}"
    if conditions:
        return f"ill-conditioned: {conditions[0]}"
    undefined = find_undefined(source, settings, eager, gradients=False)
    if undefined.masks or OVERLAP in undefined.operators:
        return f"undefined: {', '.join(undefined.operators)}"
    return ""


def _fault_of_graphs(job: Job, source: Source, eager: Observation) -> str:
    """Return what is wrong with a case of which nothing is compiled. Compiling takes time, so that most cases are not
    asked.

    Fake tensors have no values. Dynamo leaves to eager what they cannot do, also what only decompositions ask of them.
    """
    code = job.source.split('"""', 2)[-1]  # without the docstring, whose words may be a command's
    if job.expect.get("graphs") == 0 or not _UNTRACED.search(code):
        return ""
    backend = {"backend": "aot_eager_decomp_partition", "dynamic": job.backend.get("dynamic")}
    compiled = observe_backend(job, source, backends.build(backend), eager, None)
    return "" if compiled.graphs != 0 or compiled.error is not None else "compiles no graph"
