"""The judge's comparison of two results, for values that somebody else has computed: no case, no run, no backend."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import ROWS, is_plugin
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge
from runner.worker.program.observe import CallRecord, Observation
from runner.worker.program.snapshot import elements, snapshot
from runner.worker.rerun.reference import Reference


@dataclass(frozen=True)
class Comparison:
    """What a comparison says: true where everything agrees and at least one value was compared.

    ``findings`` are the disagreements, each with its oracle, place and numbers. ``labels`` say which rule of the judge
    accepts numbers outside the tolerance. ``notes`` name what cannot be compared. ``values`` counts the tensors and
    Python values that can, and ``elements`` their elements.
    """

    findings: tuple[Finding, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    values: int
    elements: int

    def __bool__(self) -> bool:
        """Return whether everything agrees and something was compared."""
        return not self.findings and self.values > 0

    @property
    def message(self) -> str:
        """Return a line for each finding; without findings, what was compared."""
        if self.findings:
            return "\n".join(f"{finding.path}: {finding.oracle}: {finding.message}" for finding in self.findings)
        agreement = (
            f"all agree: values {self.values}, elements {self.elements}" if self.values else "nothing was compared"
        )
        return "; ".join((agreement, *self.labels, *self.notes))

    @property
    def numbers(self) -> Mapping[str, Any]:
        """Return the numbers of the first finding that has any; empty without one."""
        return next((finding.numbers for finding in self.findings if finding.numbers), {})


def compare(
    eager: Any,
    compiled: Any,
    reference: Any = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    exact: bool = False,
    ignore: Collection[str] = (),
) -> Comparison:
    """Compare two results as the judge compares outputs: structure, metadata, elements, Python values.

    Args:
        eager: a tensor, a Python value or a nest of containers. Its values are the expected ones.
        compiled: the result to judge.
        reference: the same result computed in float64, in the same containers. It decides where the tolerance does not.
        rtol: relative tolerance of all dtypes; None for the default of ``torch.testing.assert_close``.
        atol: absolute tolerance of all dtypes, likewise.
        exact: equal bits are required; any NaN equals any other.
        ignore: oracles that give no finding, such as ``stride``.

    Raises:
        ValueError: ``reference`` has other containers or shapes than ``eager``, or integers for its numbers; ``ignore``
            names no oracle; a tolerance is no finite number of at least 0.
        TypeError: ``ignore`` is a text.
    """
    if isinstance(ignore, str):
        raise TypeError(f"ignore: {ignore!r} is a text; it takes a list of oracles, such as ['stride']")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if bound is not None and not (isinstance(bound, int | float) and 0 <= bound < math.inf):
            raise ValueError(f"{name}: {bound!r} is no tolerance, which is a finite number of at least 0")
    for name in ignore:
        if name not in ROWS and not is_plugin(name):
            raise ValueError(f"ignore: {name!r} is no oracle")
    tolerance: dict[str, Any] = {"exact": True} if exact else {}
    if (rtol, atol) != (None, None):
        tolerance["by_dtype"] = {"": [rtol, atol]}
    job = Job("", "", "", "", "", {}, tolerance=tolerance, ignore=tuple(ignore))
    expected, actual = _observed(eager), _observed(compiled)
    evidence = Evidence(job, expected, actual, _wide(expected, reference))
    findings = tuple(judge(evidence))
    values = sum(leaf.problem is None for leaf in expected.calls[0].outputs.leaves)
    return Comparison(findings, tuple(evidence.labels), tuple(evidence.notes), values, evidence.compared["elements"])


def _observed(value: Any) -> Observation:
    return Observation(calls=[CallRecord(outputs=snapshot(value, "output", copy=False))])


def _wide(eager: Observation, reference: Any) -> Reference:
    """Return the float64 values of a result that was computed elsewhere."""
    if reference is None:
        return Reference(None, None, eager, False, lambda phase: None)
    expected, actual = eager.calls[0].outputs, snapshot(reference, "output", copy=False)
    if expected.structure != actual.structure:
        raise ValueError(f"the reference is {actual.structure}, and eager's result {expected.structure}")
    leaves = {}
    for leaf, wide_leaf in zip(expected.leaves, actual.leaves, strict=True):
        values, wide = elements(leaf), elements(wide_leaf)
        if values is None or wide is None:
            continue
        if values.shape != wide.shape:
            raise ValueError(f"{leaf.path}: the reference has shape {list(wide.shape)}, eager's {list(values.shape)}")
        if values.is_floating_point() > wide.is_floating_point() or values.is_complex() > wide.is_complex():
            raise ValueError(f"{leaf.path}: the reference has {wide.dtype}, which is no wider form of {values.dtype}")
        wide = wide.to(torch.complex128 if wide.is_complex() else torch.float64)
        leaves[0, leaf.path] = wide_leaf if wide_leaf.metadata is None else replace(wide_leaf, value=wide)
    return Reference(None, None, eager, False, lambda phase: None, leaves)
