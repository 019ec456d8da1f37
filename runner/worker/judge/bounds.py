"""Bounds of a case that are wider than the numbers that they are held against, so that no wrong number could be
seen."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from runner.worker import thresholds
from runner.worker.judge.evidence import Evidence
from runner.worker.program.observe import CallRecord
from runner.worker.program.snapshot import Leaf, elements
from runner.worker.tensors import Tolerance, largest, norm, pieces, planes, tolerance_for


def blind_bounds(evidence: Evidence) -> str:
    """Return which bounds of the case would pass zeros in place of all numbers at which they hold; empty if none would.

    Where other numbers can fail them, a note tells of each output tensor of which none can.
    Numbers that are rounding alone, such as those of ``x - x`` computed in two ways, are zeros to anybody: they do not
    count.
    """
    tolerance = evidence.job.tolerance
    blind: dict[str, str] = {}
    outputs: dict[str, str] = {}  # blind in each call
    sighted: set[str] = set()
    for call, record in enumerate(evidence.eager.calls if tolerance else ()):
        for leaf in _compared(record):
            tensor = elements(leaf)
            if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
                continue
            bounds = tolerance_for(tensor.dtype, tolerance, leaf.path)
            entry = bounds.entry
            if entry is None:
                continue
            is_output = leaf.path.startswith("output") and leaf.metadata is not None
            if (
                (entry not in sighted or is_output)
                and _passes_zeros(tensor, bounds)
                and not _is_noise(evidence, call, leaf, tensor)
            ):
                name = f"tolerance of {entry}" if entry else "tolerance"
                reason = (
                    f"the {name} (rtol {bounds.rtol:g}, atol {bounds.atol:g}) would pass zeros in place of all "
                    "numbers at "
                    f"{evidence.where(call, leaf.path)}, of which the largest is {_largest(tensor):g}"
                )
                blind[entry] = reason
                if is_output:
                    outputs.setdefault(leaf.path, reason)
            else:
                sighted.add(entry)
                outputs[leaf.path] = ""
    vacuous = next((reason for entry, reason in blind.items() if entry not in sighted), "")
    for reason in () if vacuous else filter(None, outputs.values()):
        evidence.note(f"{reason}; it needs bounds of its own")
    return vacuous


def _compared(record: CallRecord) -> Iterator[Leaf]:
    yield from record.outputs.leaves
    yield from (leaf for leaf in record.gradients.values() if leaf is not None)
    if record.mutated:
        yield from (*record.inputs.leaves, *record.state.leaves)


def _passes_zeros(tensor: torch.Tensor, bounds: Tolerance) -> bool:
    """Return whether zeros lie within the bounds of all finite elements, of which one at least is no zero itself.

    Where all are zeros, only bounds that no number of the dtype passes count.
    """
    for _, plane in pieces(tensor):
        size = norm(plane)
        if bool((size.isfinite() & (size > bounds.atol + bounds.rtol * size)).any()):
            return False
    return _largest(tensor) > 0 or bounds.atol >= torch.finfo(tensor.dtype).max


def _is_noise(evidence: Evidence, call: int, leaf: Leaf, tensor: torch.Tensor) -> bool:
    exact = evidence.reference.tensor(call, leaf.path)
    if exact is None or exact.shape != tensor.shape:
        return False
    return largest(norm(planes(exact) - planes(tensor))) >= thresholds.NOISE_PART.value * _largest(tensor) > 0


def _largest(tensor: torch.Tensor) -> float:
    return max(largest(norm(plane)) for _, plane in pieces(tensor))
