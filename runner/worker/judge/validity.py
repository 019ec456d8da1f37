"""Whether a comparison can be believed: does eager agree with itself, and was anything really compared?"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.contract.oracles import UNSPECIFIED
from runner.worker.case.load import Source
from runner.worker.case.observe import CallRecord, Observation, Settings, observe
from runner.worker.case.snapshot import Leaf, Tree, flatten, map_tensors
from runner.worker.judge.bounds import blind_bounds
from runner.worker.judge.compare import compare_values, equal_bits
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.leaves import same_python
from runner.worker.judge.tolerance import tolerance_for

SECOND_SEED = 1000  # added to the job's seed
FILLS = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0)
"""What the probes put into floating inputs. NaN shows most dependences, the infinities comparisons, the rest outputs
that are NaN."""


VARIES = "eager-varies"


class Agreement:
    """Whether a tensor of one eager run agrees with the same of another.

    On the CPU they must agree bit for bit. Other devices may add in another order each time
    (https://docs.pytorch.org/docs/stable/notes/randomness.html), as atomic additions under ``index_select``'s backward do.
    There the tolerance that the backend is allowed holds, unless that is none.
    """

    def __init__(self, device: str, tolerance: Mapping[str, Any] | None) -> None:
        """Keep the job's ``tolerance``, see ``tolerance_for``."""
        self.varied = False
        """Whether it was off anywhere by no more than that."""
        self._strict = device in ("cpu", "meta")
        self._tolerance = tolerance

    def __call__(self, first: torch.Tensor, second: torch.Tensor, path: str = "") -> bool:
        """Return whether two dense CPU tensors of one shape and dtype agree. ``path`` says where they stand."""
        if equal_bits(first, second):
            return True
        if self._strict or compare_values(first, second, tolerance_for(first.dtype, self._tolerance, path)).differences:
            return False
        self.varied = True
        return True


BACKWARD_AUTOCAST = "torch._functorch.config.backward_pass_autocast"
"""The switch, of torch 2.13, that says under which autocast a backward is traced."""
ASSUMED_AUTOCAST = (
    "torch assumes that the backward runs under autocast like the forward, and here it does not; "
    f"config: {{{BACKWARD_AUTOCAST}: 'off'}} tells it so"
)

Agree = Callable[[torch.Tensor, torch.Tensor, str], bool]
"""Whether two tensors at a path are the same."""


def _agree_exactly(first: torch.Tensor, second: torch.Tensor, path: str) -> bool:
    return equal_bits(first, second)


def find_disagreement(
    first: Observation,
    second: Observation,
    compare_elements: bool = True,
    agree: Agree = _agree_exactly,
) -> str | None:
    """Return where two eager runs, made alike, disagree; None if nowhere.

    ``compare_elements`` False leaves out the values of tensors (the case ignores them, being random); ``agree`` says whether
    two tensors are the same.
    """
    if len(first.calls) != len(second.calls):
        return "the number of calls before the first error"
    several = len(first.calls) > 1
    for call, (first_call, second_call) in enumerate(zip(first.calls, second.calls, strict=True)):
        where = f"call {call}, " if several else ""
        if (first_call.error is None) != (second_call.error is None):
            return f"{where}whether it raises"
        if first_call.error is not None and second_call.error is not None:
            if first_call.error.bases[0] != second_call.error.bases[0]:
                return f"{where}what it raises"
            continue
        for first_tree, second_tree in zip(_trees(first_call), _trees(second_call), strict=True):
            place = tree_disagreement(first_tree, second_tree, compare_elements, agree)
            if place is not None:
                return where + place
    return None


def _trees(record: CallRecord) -> tuple[Tree, ...]:
    gradients = {path: leaf for path, leaf in record.gradients.items() if leaf is not None}
    return record.outputs, record.inputs, record.state, Tree(", ".join(gradients), tuple(gradients.values()))


def tree_disagreement(first: Tree, second: Tree, compare_elements: bool, agree: Agree = _agree_exactly) -> str | None:
    """Return where two trees disagree, as ``find_disagreement`` does of runs."""
    if first.structure != second.structure:
        return "the structure of what it gives"
    for first_leaf, second_leaf in zip(first.leaves, second.leaves, strict=True):
        if first_leaf.as_loaded and second_leaf.as_loaded:
            continue
        if first_leaf.type != second_leaf.type or first_leaf.metadata != second_leaf.metadata:
            return f"{first_leaf.path}, type or metadata"
        if not compare_elements or first_leaf.problem is not None:
            continue
        if first_leaf.kind == "tensor":
            if not agree(first_leaf.value, second_leaf.value, first_leaf.path):
                return first_leaf.path
        elif not same_python(first_leaf.value, second_leaf.value):
            return first_leaf.path
    return None


def note_autocast(evidence: Evidence, findings: Iterable[Finding]) -> None:
    """Note what torch assumes of a backward if gradients differ under autocast, unless the case sets BACKWARD_AUTOCAST itself.

    The comment at that switch says it: unless it is "off", the backward is traced under the autocast of the forward. Cases run
    theirs outside, since torch's page on autocast advises against a backward inside.
    """
    job = evidence.job
    if not job.autocast or BACKWARD_AUTOCAST in job.config:
        return
    module, _, switch = BACKWARD_AUTOCAST.rpartition(".")
    if any(finding.oracle == "grad" for finding in findings) and hasattr(importlib.import_module(module), switch):
        evidence.note(ASSUMED_AUTOCAST)


def vacuity_reason(evidence: Evidence, source: Source, settings: Settings) -> str | None:
    """Return why a run without findings proves nothing, or None.

    The probes (further eager runs) are only made when every output is constant.

    Raises:
        InvalidCase: a probe cannot be set up.
    """
    launches = evidence.compiled.launches
    if launches is not None and launches.count == 0:
        return "no kernel was launched"
    graphs = evidence.job.expect.get("graphs") != 0
    for error in evidence.compiled.suppressed:
        reason = f"torch failed to compile a frame, which ran eagerly: {error}"
        if graphs:
            return reason
        evidence.note(reason)
    uncompiled = launches is None and evidence.compiled.graphs == 0 and evidence.compiled.error is None
    if uncompiled and graphs:
        return ": ".join(filter(None, ("no graph was compiled", evidence.compiled.uncompiled)))
    if evidence.eager.compilations:
        return f"eager is no reference: it ran compiled code ({', '.join(evidence.eager.compilations)})"
    if evidence.comparisons == 0:
        return "nothing was compared"
    problem = _incomparable(evidence.eager, settings.device)
    if problem:
        return f"no output can be compared: {problem}"
    if UNSPECIFIED in evidence.labels and not evidence.defined and evidence.undefined is not None:
        return f"no value that was compared is defined: {', '.join(evidence.undefined.operators)}"
    eager = evidence.eager
    if eager.error is None and (reason := blind_bounds(evidence)):
        return reason
    if eager.error is None and is_saturated(eager, source, settings):
        return "every output is one constant whatever the inputs hold, though it is computed from them"
    return None


def _incomparable(observation: Observation, device: str) -> str:
    """Return why no output can be compared, where none can, and neither mutation nor gradient was compared; else nothing.

    A tensor on the meta device counts where inputs are there: then its metadata is all that there is.
    """
    calls = observation.calls
    leaves = [leaf for call in calls for leaf in call.outputs.leaves]
    compared = (leaf is not None and not leaf.problem for call in calls for leaf in call.gradients.values())
    if observation.error is not None or any(call.mutated for call in calls) or any(compared):
        return ""
    of_meta = device == "meta" or any(_is_meta(leaf) for call in calls for leaf in call.inputs.leaves)
    comparable = (not leaf.problem or (of_meta and _is_meta(leaf)) for leaf in leaves)
    return leaves[0].problem or "" if leaves and not any(comparable) else ""


def _is_meta(leaf: Leaf) -> bool:
    return leaf.metadata is not None and leaf.metadata.device == "meta"


def is_saturated(eager: Observation, source: Source, settings: Settings) -> bool:
    """Return whether every output is one constant whatever random inputs hold, though data flows into it.

    So ``relu(-abs(x))`` is saturated; ``zeros_like(x)`` is not, being rightly constant.

    Raises:
        InvalidCase: a further eager run cannot be set up.
    """
    return _looks_saturated(eager) and _stays_constant(eager, source, settings)


def _looks_saturated(observation: Observation) -> bool:
    """Return whether every output has two or more elements, all equal, and neither mutation nor gradient was compared."""
    for call in observation.calls:
        if call.mutated or any(leaf is not None for leaf in call.gradients.values()) or not call.outputs.leaves:
            return False
        for leaf in call.outputs.leaves:
            if leaf.kind != "tensor" or leaf.value is None or leaf.value.numel() < 2 or not _is_constant(leaf.value):
                return False
    return bool(observation.calls)


def _stays_constant(first: Observation, source: Source, settings: Settings) -> bool:
    """Return whether other random inputs give the same constant, and some filling of them another one."""
    other_seed = replace(settings, seed=settings.seed + SECOND_SEED)
    if not _has_random_input(source, settings, other_seed):
        return False
    if _outputs_differ(first, _run(source, other_seed)):
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
    wide = (
        torch.float32 if tensor.element_size() == 1 else tensor.dtype
    )  # float8 is not filled with an infinity it lacks
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
