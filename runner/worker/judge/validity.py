"""Whether a comparison can be believed: does eager agree with itself, and was anything really compared?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from runner.worker.case.load import Source
from runner.worker.case.observe import CallRecord, Observation, Settings, observe
from runner.worker.case.snapshot import Tree, flatten, map_tensors
from runner.worker.judge.compare import compare_values, equal_bits, tolerance_for
from runner.worker.judge.judge import Evidence, same_python

VALUE_ORACLES = frozenset({"value", "nonfinite", "sign-of-zero", "grad", "mutation"})
"""What an eager run that disagrees with itself cannot be asked about."""

SECOND_SEED = 1000  # added to the job's seed
FILLS = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0)
"""What the probes put into floating inputs. NaN shows most dependences, the infinities comparisons, the rest outputs
that are NaN."""


VARIES = "eager-varies"


class Agreement:
    """Whether a tensor of one eager run agrees with the same of another.

    On the CPU, bit for bit. Other devices may add in another order each time
    (https://docs.pytorch.org/docs/stable/notes/randomness.html), as atomic additions under ``index_select``'s backward do:
    there it may be off by the tolerance that the backend is allowed, unless that is none.
    """

    def __init__(self, device: str, wanted: Mapping[str, Any] | None) -> None:
        """``wanted`` is the job's tolerance, see ``tolerance_for``."""
        self.varied = False
        """Whether it was off anywhere by no more than that."""
        self._strict = device in ("cpu", "meta")
        self._wanted = wanted

    def __call__(self, one: torch.Tensor, two: torch.Tensor) -> bool:
        """Two dense CPU tensors of one shape and dtype."""
        if equal_bits(one, two):
            return True
        if self._strict or compare_values(one, two, tolerance_for(one.dtype, self._wanted)).differences:
            return False
        self.varied = True
        return True


def unsteady(
    first: Observation,
    second: Observation,
    compare_elements: bool = True,
    agree: Callable[[torch.Tensor, torch.Tensor], bool] = equal_bits,
) -> str | None:
    """Where two eager runs, made alike, disagree; None if nowhere.

    ``compare_elements`` False leaves out the values of tensors (the case ignores them, being random); ``agree`` says whether
    two tensors are the same.
    """
    if len(first.calls) != len(second.calls):
        return "the number of calls before the first error"
    several = len(first.calls) > 1
    for call, (one, two) in enumerate(zip(first.calls, second.calls, strict=True)):
        where = f"call {call}, " if several else ""
        if (one.error is None) != (two.error is None):
            return f"{where}whether it raises"
        if one.error is not None and two.error is not None:
            if one.error.bases[0] != two.error.bases[0]:
                return f"{where}what it raises"
            continue
        trees = ((one.outputs, two.outputs), (one.inputs, two.inputs), (one.state, two.state))
        graded = _gradient_tree(one), _gradient_tree(two)
        for mine, other in (*trees, graded):
            place = _unsteady_tree(mine, other, compare_elements, agree)
            if place is not None:
                return where + place
    return None


def _gradient_tree(record: CallRecord) -> Tree:
    present = {path: leaf for path, leaf in record.gradients.items() if leaf is not None}
    return Tree(", ".join(present), tuple(present.values()))


def _unsteady_tree(
    mine: Tree, other: Tree, compare_elements: bool, agree: Callable[[torch.Tensor, torch.Tensor], bool] = equal_bits
) -> str | None:
    if mine.structure != other.structure:
        return "the structure of what it gives"
    for one, two in zip(mine.leaves, other.leaves, strict=True):
        if one.type != two.type or one.facts != two.facts:
            return f"{one.path}, type or metadata"
        if not compare_elements or one.problem is not None:
            continue
        if one.kind == "tensor":
            if not agree(one.value, two.value):
                return one.path
        elif not same_python(one.value, two.value):
            return one.path
    return None


def vacuous(evidence: Evidence, source: Source, settings: Settings) -> str | None:
    """Why a run without findings proves nothing, or None.

    The probes (further eager runs) are only made when every output is constant.

    Raises:
        InvalidCase: a probe cannot be set up.
    """
    launches = evidence.compiled.launches
    if launches is not None and launches.count == 0:
        return "no kernel was launched"
    if launches is None and evidence.compiled.graphs == 0 and evidence.compiled.error is None:
        return "no graph was compiled"
    if evidence.comparisons == 0:
        return "nothing was compared"
    eager = evidence.eager
    if eager.error is None and _looks_saturated(eager) and _is_saturated(eager, source, settings):
        return "every output is one constant whatever the inputs hold, though it is computed from them"
    return None


def _looks_saturated(seen: Observation) -> bool:
    """Every output is a tensor of two or more equal elements, and neither mutation nor gradient was compared."""
    for call in seen.calls:
        if call.mutated or any(leaf is not None for leaf in call.gradients.values()) or not call.outputs.leaves:
            return False
        for leaf in call.outputs.leaves:
            if leaf.kind != "tensor" or leaf.value is None or leaf.value.numel() < 2 or not _is_constant(leaf.value):
                return False
    return bool(seen.calls)


def _is_saturated(first: Observation, source: Source, settings: Settings) -> bool:
    """Random floating inputs go in, and other ones give the same constant, yet the data does flow into the output.

    So ``relu(-abs(x))`` is saturated; ``zeros_like(x)`` is not, being rightly constant.
    """
    other_seed = replace(settings, seed=settings.seed + SECOND_SEED)
    if not _has_random_input(source, settings, other_seed):
        return False
    if _outputs_differ(first, _run(source, other_seed)):
        return False
    return any(_outputs_differ(first, _run(source, settings, fill)) for fill in FILLS)


def _has_random_input(source: Source, settings: Settings, other: Settings) -> bool:
    loaded, again = (source.load(each.seed) for each in (settings, other))
    for call in range(len(loaded.makers)):
        ours = _floating(loaded.make_inputs(call, settings.seed + call))
        theirs = _floating(again.make_inputs(call, other.seed + call))
        for one, two in zip(ours, theirs):  # noqa: B905  a maker may make other inputs from another seed
            if one.numel() >= 2 and not _is_constant(one) and not equal_bits(one, two):
                return True
    return False


def _run(source: Source, settings: Settings, fill: float | None = None) -> Observation:
    loaded = source.load(settings.seed)
    change = None if fill is None else lambda args: list(map_tensors(lambda tensor: _filled(tensor, fill), args))
    return observe(loaded, loaded.model, settings, change_inputs=change)


def _filled(tensor: torch.Tensor, fill: float) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.device.type == "meta":
        return tensor
    return torch.full_like(tensor, fill, requires_grad=False).requires_grad_(tensor.requires_grad)


def _outputs_differ(first: Observation, second: Observation) -> bool:
    """Whether the outputs differ; a run that raised shows nothing."""
    if second.error is not None or len(first.calls) != len(second.calls):
        return False
    return any(
        _unsteady_tree(one.outputs, two.outputs, compare_elements=True) is not None
        for one, two in zip(first.calls, second.calls, strict=True)
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
    """All elements equal, or all NaN."""
    flat = tensor.reshape(-1)
    return equal_bits(flat, flat[:1].expand_as(flat))
