"""Further runs with other inputs, which say whether outputs are one constant whatever the inputs hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from runner.worker.comparison.compare import equal_bits
from runner.worker.program.load import Source
from runner.worker.program.observe import Observation, Settings, observe
from runner.worker.program.snapshot import map_tensors
from runner.worker.program.walk import flatten
from runner.worker.rerun.agreement import tree_disagreement

SECOND_SEED = 1000  # added to the job's seed
FILLS = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0)
"""What the probes put into floating inputs. NaN shows most dependences, the infinities comparisons, the rest outputs
that are NaN."""


def is_saturated(eager: Observation, source: Source, settings: Settings) -> bool:
    """Return whether every output is one constant whatever random inputs hold, though data flows into it.

    So ``relu(-abs(x))`` is saturated; ``zeros_like(x)`` is not, being rightly constant.

    Raises:
        InvalidCase: a further eager run cannot be set up.
    """
    return _looks_saturated(eager) and _stays_constant(eager, source, settings)


def varied_output(observation: Observation) -> str:
    """Return the path of a tensor output whose elements are not all equal; empty where all outputs are constants."""
    leaves = (leaf for call in observation.calls for leaf in call.outputs.leaves)
    tensors = (leaf for leaf in leaves if leaf.kind == "tensor" and leaf.value is not None)
    return next((leaf.path for leaf in tensors if not _is_constant(leaf.value)), "")


def _looks_saturated(observation: Observation) -> bool:
    """Return whether every output has two or more elements, all equal, and neither mutation nor gradient was
    compared."""
    calls = observation.calls
    gradients = (leaf for call in calls for leaf in call.gradients.values() if leaf is not None)
    if any(call.mutated or not call.outputs.leaves for call in calls) or any(gradients):
        return False
    values = [leaf.value if leaf.kind == "tensor" else None for call in calls for leaf in call.outputs.leaves]
    return bool(calls) and all(value is not None and value.numel() > 1 and _is_constant(value) for value in values)


def _stays_constant(first: Observation, source: Source, settings: Settings) -> bool:
    """Return whether other random inputs give the same constant, and some filling of them another one."""
    other_seed = replace(settings, seed=settings.seed + SECOND_SEED)
    if not _has_random_input(source, settings, other_seed) or _outputs_differ(first, _run(source, other_seed)):
        return False
    return any(_outputs_differ(first, _run(source, settings, fill)) for fill in FILLS)


def _has_random_input(source: Source, settings: Settings, other_settings: Settings) -> bool:
    loaded, reseeded = source.load(settings.seed), source.load(other_settings.seed)
    for call in range(len(loaded.makers)):
        inputs = _floating(loaded.make_inputs(call, settings.seed + call))
        other_inputs = _floating(reseeded.make_inputs(call, other_settings.seed + call))
        for first, second in zip(inputs, other_inputs):  # noqa: B905  a maker may make other inputs from another seed
            if first.numel() >= 2 and not _is_constant(first) and not equal_bits(first, second):
                return True
    return False


def _run(source: Source, settings: Settings, fill: float | None = None) -> Observation:
    loaded = source.load(settings.seed)
    change = None if fill is None else lambda args: list(map_tensors(lambda tensor: _filled(tensor, fill), args))
    return observe(loaded, loaded.model, settings, change_inputs=change)


def _filled(tensor: torch.Tensor, fill: float) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.device.type == "meta":
        return tensor
    # float8 is not filled with an infinity it lacks
    wide = torch.float32 if tensor.element_size() == 1 else tensor.dtype
    filled = torch.full_like(tensor, fill, dtype=wide, requires_grad=False).to(tensor.dtype)
    return filled.requires_grad_(tensor.requires_grad)


def _outputs_differ(first: Observation, second: Observation) -> bool:
    """Return whether the outputs differ; a run that raised counts as equal."""
    if second.error is not None or len(first.calls) != len(second.calls):
        return False
    return any(
        tree_disagreement(first_call.outputs, second_call.outputs, compare_elements=True) is not None
        for first_call, second_call in zip(first.calls, second.calls, strict=True)
    )


def _floating(args: Sequence[Any]) -> list[torch.Tensor]:
    leaves = (leaf for _, leaf in flatten(list(args), "")[1])
    return [
        leaf.detach().cpu()
        for leaf in leaves
        if isinstance(leaf, torch.Tensor)
        and leaf.is_floating_point()
        and leaf.layout == torch.strided
        and leaf.device.type != "meta"
    ]


def _is_constant(tensor: torch.Tensor) -> bool:
    """Return whether all elements are equal, or all NaN."""
    flat = tensor.reshape(-1)
    return equal_bits(flat, flat[:1].expand_as(flat))
