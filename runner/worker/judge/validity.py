"""Whether a comparison without findings can be believed: was anything really compared?

Further runs with other inputs say whether outputs are one constant whatever the inputs hold.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.contract.oracles import UNSPECIFIED
from runner.worker import thresholds
from runner.worker.comparison.compare import equal_bits
from runner.worker.judge.evidence import Evidence
from runner.worker.program.load import Source
from runner.worker.program.observe import CallRecord, Observation, Settings, observe
from runner.worker.program.snapshot import Leaf, elements, map_tensors
from runner.worker.program.walk import flatten
from runner.worker.rerun.agreement import tree_disagreement
from runner.worker.tensors import Tolerance, largest, norm, pieces, planes, tolerance_for

BACKWARD_AUTOCAST = "torch._functorch.config.backward_pass_autocast"
"""The switch, of torch 2.13, that says under which autocast a backward is traced."""
ASSUMED_AUTOCAST = (
    "torch assumes that the backward runs under autocast like the forward, and here it does not; "
    f"config: {{{BACKWARD_AUTOCAST}: 'off'}} tells it so"
)
SECOND_SEED = 1000  # added to the job's seed
FILLS = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0)
"""What the probes put into floating inputs. NaN shows most dependences, the infinities comparisons, the rest outputs
that are NaN."""


def note_autocast(evidence: Evidence, findings: Iterable[Finding]) -> None:
    """Note what torch assumes of a backward if gradients differ under autocast, unless the case sets BACKWARD_AUTOCAST
    itself.

    The comment at that switch says it: unless it is "off", the backward is traced under the autocast of the forward.
    Cases run theirs outside, since torch's page on autocast advises against a backward inside.
    """
    is_asked = evidence.job.autocast and BACKWARD_AUTOCAST not in evidence.job.config
    if is_asked and any(finding.oracle == "grad" for finding in findings):
        module, _, switch = BACKWARD_AUTOCAST.rpartition(".")
        if hasattr(importlib.import_module(module), switch):
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
    eager, compiled = evidence.eager, evidence.compiled
    if graphs and launches is None and compiled.graphs == 0 and compiled.error is None:
        return ": ".join(filter(None, ("no graph was compiled", compiled.uncompiled)))
    if eager.compilations:
        return f"eager is no reference: it ran compiled code ({', '.join(eager.compilations)})"
    if evidence.comparisons == 0:
        return "nothing was compared"
    if problem := _incomparable(eager, settings.device):
        return f"no output can be compared: {problem}"
    if UNSPECIFIED in evidence.labels and not evidence.defined:
        return f"no value that was compared is defined: {', '.join(evidence.undefined.operators)}"
    if eager.error is not None:
        return None
    if reason := blind_bounds(evidence):
        return reason
    if not evidence.job.expect.get("constant") and is_saturated(eager, source, settings):
        evidence.note("a case whose point is a constant says so: expect: {constant: true}")
        return "every output is one constant whatever the inputs hold, though it is computed from them"
    return None


def _incomparable(observation: Observation, device: str) -> str:
    """Return why no output can be compared, where none can, and neither mutation nor gradient was compared; else
    nothing.

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
            if bounds.entry is None:
                continue
            is_output = leaf.path.startswith("output") and leaf.metadata is not None
            is_asked = bounds.entry not in sighted or is_output
            if is_asked and _passes_zeros(tensor, bounds) and not _is_noise(evidence, call, leaf, tensor):
                name = f"tolerance of {bounds.entry}" if bounds.entry else "tolerance"
                blind[bounds.entry] = (
                    f"the {name} (rtol {bounds.rtol:g}, atol {bounds.atol:g}) would pass zeros in place of all "
                    "numbers at "
                    f"{evidence.where(call, leaf.path)}, of which the largest is {_largest(tensor):g}"
                )
                if is_output:
                    outputs.setdefault(leaf.path, blind[bounds.entry])
            else:
                sighted.add(bounds.entry)
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
        if bool((size.isfinite() & (size > bounds.allowed(size))).any()):
            return False
    return _largest(tensor) > 0 or bounds.atol >= torch.finfo(tensor.dtype).max


def _is_noise(evidence: Evidence, call: int, leaf: Leaf, tensor: torch.Tensor) -> bool:
    exact = evidence.reference.tensor(call, leaf.path)
    return (
        exact is not None
        and exact.shape == tensor.shape
        and largest(norm(planes(exact) - planes(tensor))) >= thresholds.NOISE_PART.value * _largest(tensor) > 0
    )


def _largest(tensor: torch.Tensor) -> float:
    return max(largest(norm(plane)) for _, plane in pieces(tensor))


def is_saturated(eager: Observation, source: Source, settings: Settings) -> bool:
    """Return whether every output is one constant whatever random inputs hold, though data flows into it: other random
    inputs give the same constant, and some filling of them another one.

    So ``relu(-abs(x))`` is saturated; ``zeros_like(x)`` is not, being rightly constant.

    Raises:
        InvalidCase: a further eager run cannot be set up.
    """
    other_seed = replace(settings, seed=settings.seed + SECOND_SEED)
    if not _looks_saturated(eager) or not _has_random_input(source, settings, other_seed):
        return False
    return not _outputs_differ(eager, _run(source, other_seed)) and any(
        _outputs_differ(eager, _run(source, settings, fill)) for fill in FILLS
    )


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
    is_comparable = second.error is None and len(first.calls) == len(second.calls)
    return is_comparable and any(
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
