"""Where legal runs of eager differ from its own."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from runner.worker.comparison.compare import same_python
from runner.worker.program.observe import Observation
from runner.worker.program.snapshot import Leaf, elements
from runner.worker.rerun.reference import call_leaves
from runner.worker.tensors import classes, finite_difference, finite_part, norm, planes, tolerance_for


def mark(masks: dict[tuple[int, str], torch.Tensor | None], eager: Observation, legal: Observation) -> None:
    """Add to ``masks`` where a legal run differs from eager. One that raised says nothing from that call on."""
    for call, (first, second) in enumerate(zip(eager.calls, legal.calls)):  # noqa: B905  either may have raised
        if first.error is not None or second.error is not None:
            return
        others = call_leaves(second)
        for path, leaf in call_leaves(first).items():
            if path not in others:
                continue
            difference = _difference(leaf, others[path])
            key = call, path
            if difference is None or (key in masks and masks[key] is None):
                masks[key] = None
            elif bool(difference.any()):
                known = masks.get(key)
                masks[key] = difference if known is None else known | difference


def elements_of(run: Observation) -> Iterator[tuple[tuple[int, str], torch.Tensor]]:
    """Yield the elements of each leaf of a run, by call and path. A run that raised says nothing from that call on."""
    for call, record in enumerate(run.calls):
        if record.error is not None:
            return
        for path, leaf in call_leaves(record).items():
            values = elements(leaf)
            if values is not None:
                yield (call, path), values


def _difference(first: Leaf, second: Leaf) -> torch.Tensor | None:
    """Return which elements differ, beyond the tolerance of the dtype; None where the leaves cannot be paired."""
    if first.kind != second.kind or first.type != second.type:
        return None
    one, other = elements(first), elements(second)
    if one is None or other is None:
        same = first.problem is not None or same_python(first.value, second.value)
        return torch.tensor(False) if same else None
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return None
    if not (one.is_floating_point() or one.is_complex()):
        return one != other
    tolerance = tolerance_for(one.dtype)
    first_planes, second_planes = planes(one), planes(other)
    far = norm(finite_difference(first_planes, second_planes)) > tolerance.atol + tolerance.rtol * norm(
        finite_part(first_planes, second_planes)
    )
    return (far | (classes(first_planes) != classes(second_planes)).any(dim=1)).view(one.shape)
