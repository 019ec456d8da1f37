"""Leaf against leaf: the metadata, elements and Python values of two leaves at one place of both runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.contract.oracles import METADATA, NEARER, OVERFLOWED, ROUNDING, row_of
from runner.worker import thresholds
from runner.worker.comparison.accuracy import bounded_rule, measure
from runner.worker.comparison.compare import (
    Comparison,
    Movement,
    compare_precision,
    compare_small_tensors,
    compare_values,
    describe_excess,
    equal_bits,
    lies_within,
    same_python,
)
from runner.worker.judge.evidence import Evidence
from runner.worker.program.memory import Gaps
from runner.worker.program.observe import CallRecord, Observation
from runner.worker.program.snapshot import Leaf, elements, owner
from runner.worker.rounding import sensitivity
from runner.worker.tensors import Tolerance, different_bits, identical, own_bounds, tolerance_for

_BITS = 14_000  # of an integer that str takes: it has less than 4300 digits
EXACT = Tolerance(0.0, 0.0, exact=True)


def metadata_differences(evidence: Evidence, where: str, eager: Leaf, compiled: Leaf) -> Iterator[tuple[str, str]]:
    """Yield (oracle, message) of every piece of metadata that differs."""
    expected, actual = eager.metadata, compiled.metadata
    assert expected is not None and actual is not None
    evidence.comparisons += 1
    for oracle, name in (*((name, name) for name in ("shape", "dtype", "device", "layout")), ("shape", "parts")):
        if getattr(expected, name) != getattr(actual, name):
            remark = "; its values are not compared" if oracle in ("shape", "dtype") else ""
            yield oracle, f"eager {_plain(getattr(expected, name))}, compiled {_plain(getattr(actual, name))}{remark}"
    if (expected.shape, expected.layout) == (actual.shape, actual.layout) and expected.stride != actual.stride:
        steps = (
            f"eager {list(expected.stride or ())}, compiled {list(actual.stride or ())} for shape "
            f"{list(expected.shape)}"
        )
        if fixed_strides(evidence, eager) != fixed_strides(evidence, compiled):
            yield "stride", steps
        elif 0 not in expected.shape and "stride" not in evidence.job.ignore:
            evidence.note(f"{where}: strides of dimensions of size one differ: {steps}")
    if expected.layout == actual.layout and expected.dims != actual.dims:
        sides = (f"{sparse} sparse and {dense} dense dimensions, {'' if coalesced else 'not '}coalesced"
                 for sparse, dense, coalesced in (expected.dims, actual.dims))  # fmt: skip
        yield "layout", "eager has {}; compiled has {}".format(*sides)
    if expected.layout == actual.layout and expected.indices != actual.indices:
        sides = (f"{_plain(dtype)} indices{f' and blocks of {list(block)}' if block else ''}"
                 for dtype, block in (expected.indices, actual.indices))  # fmt: skip
        yield "layout", "eager has {}; compiled has {}".format(*sides)
    for bit, verb in (("is_conj", "conjugated"), ("is_neg", "negated")):
        if getattr(actual, bit) and not getattr(expected, bit):  # where eager alone has the bit, no program needs it
            yield "layout", f"compiled is {verb} when it is read ({bit}), eager is not: numpy() refuses such a tensor"
    if expected.dtype == actual.dtype and not _are_near(expected.quantizer, actual.quantizer):
        yield "dtype", f"eager is quantized by {_plain(expected.quantizer)}, compiled by {_plain(actual.quantizer)}"
    if expected.is_inference != actual.is_inference:
        sides = ("an inference tensor" if side.is_inference else "a plain one" for side in (expected, actual))
        yield "requires-grad", "eager has {}, compiled {}; autograd refuses inference tensors".format(*sides)
    if expected.requires_grad != actual.requires_grad:
        yield "requires-grad", f"eager {expected.requires_grad}, compiled {actual.requires_grad}"
    elif expected.is_leaf != actual.is_leaf:
        kinds = ("a leaf" if side.is_leaf else "computed from what requires one" for side in (expected, actual))
        yield "requires-grad", "both require a gradient; eager's is {}, compiled is {}".format(*kinds)
    elif actual.refuses_writes and not expected.refuses_writes:  # where eager alone refuses, no program relies on it
        message = (
            "both require a gradient; autograd takes a write into eager's, and refuses one into compiled's, a view"
        )
        yield "requires-grad", message


def fixed_strides(evidence: Evidence, leaf: Leaf) -> tuple[int, ...]:
    """Return the strides that must agree: of dimensions with more than one element, or all that there are."""
    metadata = leaf.metadata
    if metadata is None or metadata.stride is None:
        return ()
    if evidence.job.strides == "exact":
        return metadata.stride
    if 0 in metadata.shape:
        return ()
    return tuple(step for step, size in zip(metadata.stride, metadata.shape, strict=True) if size > 1)


def leaf_findings(evidence: Evidence, call: int, eager: Leaf, compiled: Leaf, oracle: str) -> Iterator[Finding]:
    """Compare metadata and value of a leaf that is no output, all under one oracle."""
    if eager.kind != compiled.kind or eager.type != compiled.type:
        yield Finding(oracle, f"eager a {eager.type}, compiled a {compiled.type}", evidence.where(call, eager.path))
        return
    if eager.metadata is not None and compiled.metadata is not None:
        where = evidence.where(call, eager.path)
        for name, message in metadata_differences(evidence, where, eager, compiled):
            yield Finding(oracle, f"{name}: {message}", where, severity=row_of(name).severity)
        if eager.metadata.hooks != compiled.metadata.hooks:
            message = f"eager has {eager.metadata.hooks} hooks of autograd, compiled {compiled.metadata.hooks}"
            yield Finding(oracle, message, where)
    for finding in value_findings(evidence, call, eager, compiled, oracle):
        yield Finding(oracle, f"{finding.oracle}: {finding.message}", finding.path, finding.numbers)


def needless_writes(evidence: Evidence, call: int, eager: Leaf, compiled: Leaf) -> Iterator[Finding]:
    """Report elements of what eager does not write to, and leaves as it was before the call, where compiled code does
    not.

    No tolerance applies to them, since nothing was computed. Where eager writes, equal bits may come from a rounding.
    """
    sides = (eager.value, compiled.value)
    are_equal = not all(isinstance(side, torch.Tensor) for side in sides) or equal_bits(*sides)
    if are_equal or eager.path in evidence.eager.calls[call].written:
        return
    # What an earlier call computed was compared after that call.
    runs = ((evidence.eager, eager), (evidence.compiled, compiled))
    if [_is_as_before(evidence, run, call, leaf) for run, leaf in runs] != [True, False]:
        return
    for difference in compare_values(*sides, EXACT).differences:
        message = f"{difference.oracle}: eager does not write to it; {difference.message}"
        yield Finding("mutation", message, evidence.where(call, eager.path), difference.numbers)


def late_writes(evidence: Evidence, call: int, eager: CallRecord, compiled: CallRecord) -> Iterator[Finding]:
    """Report what a later call changes in eager alone: whoever keeps it has other numbers.

    The bits that compiled code has left may be eager's, up to a rounding. A call that raises may have written or not.
    Where aliases are ignored, so is what later shows them.
    """
    if evidence.eager.error is not None or evidence.compiled.error is not None or "alias" in evidence.job.ignore:
        return
    kept = {leaf.path: leaf.value for leaf in compiled.leaves() if leaf.path not in compiled.overwritten}
    for path, expected in eager.overwritten.items():
        value = kept.get(path)
        is_alike = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (expected.shape, expected.dtype)
        bounds = tolerance_for(expected.dtype, evidence.job.tolerance, path)
        if (
            is_alike
            and (call, path) not in evidence.undefined.masks
            and compare_values(expected, value, bounds).differences
        ):
            message = "eager's holds other values after the backward or a later call; compiled stays as it is"
            yield Finding("mutation", message, evidence.where(call, path))


def spoilt_paths(eager: CallRecord, compiled: CallRecord) -> frozenset[str]:
    """Return the paths of tensors that compiled code has written into, and eager has not."""
    trees = ((eager.inputs, compiled.inputs), (eager.state, compiled.state))
    return frozenset(compiled.overwritten).union(
        one.path
        for mine, others in trees
        for one, other in zip(mine.leaves, others.leaves)  # noqa: B905  may differ
        if one.path == other.path and one.path not in eager.written
        if isinstance(one.value, torch.Tensor) and isinstance(other.value, torch.Tensor)
        if not equal_bits(one.value, other.value)
    )


def place_findings(
    evidence: Evidence, call: int, eager: Mapping[str, str], compiled: Mapping[str, str]
) -> Iterator[Finding]:
    """Compare where a call puts another object in place of one that somebody may hold.

    The outermost ones are reported.
    """
    differing = eager.keys() ^ compiled.keys()
    for path in sorted(path for path in differing if not owner(path, differing - {path})):
        message = (
            f"eager keeps what stood there before the call; compiled code puts {compiled[path]} in its place"
            if path in compiled
            else f"eager puts {eager[path]} in place of what stood there; compiled code keeps that"
        )
        yield Finding("mutation", message, evidence.where(call, path))


def hidden_writes(evidence: Evidence, call: int, eager: Leaf) -> Iterator[Finding]:
    """Report what torch's version counter says of one side alone, where both leave the same elements.

    Autograd takes a tensor for changed by it: a backward that has saved the tensor raises, or does not.
    """
    is_written, is_compiled = (eager.path in run.calls[call].written for run in (evidence.eager, evidence.compiled))
    if is_written == is_compiled or not isinstance(eager.value, torch.Tensor) or not eager.value.numel():
        return
    if (call, eager.path) in evidence.undefined.masks:
        return  # such as memory that overlaps itself: whether anything is written there is open
    unchanged = _is_as_before(evidence, evidence.eager, call, eager)
    if unchanged is None or (is_compiled and not unchanged):  # eager may have written by ``Tensor.data``
        return
    message = (
        "compiled code's write moves the version of the tensor, and eager does not write to it"
        if is_compiled
        else "eager's write moves the version of the tensor, compiled code's does not: autograd takes it for unchanged"
    )
    yield Finding("mutation", message, evidence.where(call, eager.path), severity=METADATA if unchanged else None)


def gap_findings(evidence: Evidence, call: int, path: str, eager: Gaps, compiled: Gaps) -> Iterator[Finding]:
    """Compare what two calls write into memory behind an input or state.

    Before a call nobody need have written there.
    """
    (eager_before, eager_after), (compiled_before, compiled_after) = eager, compiled
    if eager_after.shape != compiled_after.shape or eager_after.dtype != compiled_after.dtype:
        return
    if identical(eager_before, eager_after) and identical(compiled_before, compiled_after):
        return
    written, touched = different_bits(eager_before, eager_after), different_bits(compiled_before, compiled_after)
    expected = torch.where(written, eager_after, compiled_before)
    touched |= written
    bounds = tolerance_for(eager_after.dtype, evidence.job.tolerance, path) if bool(written.any()) else EXACT
    for difference in compare_values(expected[touched], compiled_after[touched], bounds).differences:
        message = f"{difference.oracle}: in the memory behind it, between its elements: {difference.message}"
        yield Finding("mutation", message, evidence.where(call, path), difference.numbers)


def _is_as_before(evidence: Evidence, run: Observation, call: int, leaf: Leaf) -> bool | None:
    """Return whether a leaf of a run is as it was made, or as the call before left it; None where it was not there."""
    original = evidence.reference.original(call, leaf.path)
    if original is None and call:
        original = next((earlier for earlier in run.calls[call - 1].state.leaves if earlier.path == leaf.path), None)
    return None if original is None or original.value is None else equal_bits(original.value, leaf.value)


def value_findings(
    evidence: Evidence, call: int, eager: Leaf, compiled: Leaf, oracle: str = "value"
) -> Iterator[Finding]:
    """Compare the elements of two leaves, or their Python values; those that are undefined count as equal."""
    where = evidence.where(call, eager.path)
    if eager.problem is not None or compiled.problem is not None:
        evidence.leave_out(where, eager.problem or compiled.problem or "", oracle)
        return
    if eager.metadata is None or compiled.metadata is None:
        mask = evidence.undefined_elements(call, eager, oracle)
        if mask is not None and bool(mask):
            evidence.excuse(where, int(not same_python(eager.value, compiled.value)), 1)
        else:
            yield from _python_findings(evidence, call, eager, compiled)
        return
    if not evidence.undefined.has_shape(call, eager.path):
        breach = evidence.undefined.breach(call, eager.path, compiled.value, evidence.compiled.calls[call].outputs)
        if breach:
            yield Finding("value", breach, where)
        evidence.excuse(where, eager.value.numel(), eager.value.numel())
        return
    if any(getattr(eager.metadata, name) != getattr(compiled.metadata, name) for name in ("shape", "parts", "dtype")):
        return
    if eager.value.shape != compiled.value.shape:  # the parts of a nested tensor
        yield Finding("shape", f"eager {list(eager.value.shape)}, compiled {list(compiled.value.shape)}", where)
        return
    mask = evidence.undefined_elements(call, eager, oracle)
    if mask is not None:
        mask = evidence.undefined.reachable(call, eager.path, mask, compiled.value)
        breach = evidence.undefined.breach(call, eager.path, compiled.value, evidence.compiled.calls[call].outputs)
        if breach:
            yield Finding("value", breach, where)
        evidence.excuse(where, int((mask & (eager.value != compiled.value)).sum()), mask.numel())
        compiled = replace(compiled, value=torch.where(mask, eager.value, compiled.value))
    yield from _element_findings(evidence, call, eager, compiled, eager.metadata.dtype, mask)


def _element_findings(
    evidence: Evidence,
    call: int,
    eager_leaf: Leaf,
    compiled_leaf: Leaf,
    dtype: torch.dtype,
    undefined: torch.Tensor | None = None,
) -> Iterator[Finding]:
    """Compare elements under the tolerance of ``dtype``. A Python number has the dtype of the tensor it came from.

    ``undefined`` elements, which both sides hold alike, have no error against the reference either.
    """
    eager, compiled = elements(eager_leaf), elements(compiled_leaf)
    assert eager is not None and compiled is not None
    observed, path = compiled, eager_leaf.path
    where = evidence.where(call, path)
    wide = evidence.reference
    tolerance = evidence.job.tolerance or {}
    evidence.comparisons += int(eager.numel() > 0)

    def reference() -> torch.Tensor | None:
        tensor = wide.tensor(call, path)
        if tensor is None or (tensor.shape, tensor.is_complex()) != (eager.shape, eager.is_complex()):
            return None
        return tensor if undefined is None else torch.where(undefined, eager.to(tensor.dtype), tensor)

    if (
        (tolerance.get("values") or evidence.job.accuracy)
        and eager.numel()
        and path.startswith(("output", "gradient of "))
    ):
        evidence.accuracy.append({"path": where, **measure(eager, compiled, reference())})
    compare = bounded_rule(tolerance, eager, path)
    if compare is not None:
        for difference in compare(eager, compiled, reference(), float(tolerance["bound"])).differences:
            yield Finding(difference.oracle, difference.message, where, difference.numbers)
        return

    def precision() -> torch.dtype:
        """The dtype of the coarsest rounding behind the elements: a cast to a wider dtype does not make them more
        exact."""
        own = sensitivity.unit(dtype)
        rounded = None if own is None else wide.rounded_in(call, path)
        return dtype if own is None or rounded is None or (sensitivity.unit(rounded) or 0.0) <= own else rounded

    def is_measured() -> bool:
        return reference() is not None and sensitivity.is_measured(precision())

    def with_precision(response: torch.Tensor | None) -> Movement | None:
        return None if response is None else (response, precision())

    def measure_sensitivity() -> Movement | None:
        exact = None if named or not is_measured() else reference()
        if exact is None or not sensitivity.is_small(eager, compiled, exact, precision()):
            return None
        return with_precision(wide.measure_sensitivity(call, path))

    def measure_movement() -> Movement | None:
        return None if named or is_measured() else with_precision(wide.measure_movement(call, path, precision()))

    def measure_conditioning() -> Movement | None:
        is_widest = precision() in sensitivity.WIDEST
        return with_precision(
            wide.measure_movement(call, path, precision()) if is_widest else wide.measure_sensitivity(call, path)
        )

    measures = reference, measure_sensitivity, measure_movement, measure_conditioning
    # Who names a tolerance has said how much may be rounded away.
    named = tolerance.get("by_dtype") or own_bounds(tolerance, path)
    bounds = tolerance_for(dtype, tolerance, path)
    is_default = not (named or bounds.exact)
    if is_default and eager_leaf.metadata is not None and eager_leaf.metadata.quantizer:  # neighbouring codes differ
        bounds = replace(bounds, atol=min(bounds.atol, _least_scale(eager_leaf.metadata.quantizer) / 2))
    result = compare_values(eager, compiled, bounds, *measures)
    if result.differences and is_default and precision() != dtype:
        bounds = tolerance_for(precision(), tolerance, path)
        result = compare_values(eager, compiled, bounds, *measures)
    if is_default and any(difference.oracle == "nonfinite" for difference in result.differences) and is_measured():
        domain = wide.measure_domain(call, path)
        if domain is not None:
            plausible = domain.holds(compiled, dtype)
            undefined = plausible if undefined is None else undefined | plausible
            compiled = torch.where(undefined, eager, observed)
            result = compare_values(eager, compiled, bounds, *measures)
            result = result if result.differences else Comparison(label=ROUNDING)
    if is_default and result == Comparison() and eager.numel() and sensitivity.is_measured(dtype):
        respond = functools.partial(wide.measure_sensitivity, call, path)
        result = compare_small_tensors(eager, compiled, dtype, bounds, reference, precision, respond)
    if is_default and result == Comparison() and dtype in sensitivity.WIDEST and precision() == dtype:
        result = compare_precision(eager, compiled)
    label = result.label
    if wide.overflow and label in (NEARER, OVERFLOWED):
        label = OVERFLOWED
        evidence.note(f"eager overflows in {wide.overflow}, where float64 has numbers")
    if label is not None:
        evidence.pass_outside(where, label, describe_excess(eager, observed, bounds))
    name = str(dtype).removeprefix("torch.")
    claimed = (tolerance.get("precision") or {}).get(name)
    for difference in result.differences:
        numbers = difference.numbers
        near = claimed and lies_within(eager, compiled, tolerance_for(getattr(torch, claimed)))
        if near and difference.oracle == "value":
            numbers = {**numbers, "precision": f"{name} beyond {claimed}"}
        yield Finding(difference.oracle, difference.message, where, numbers)


def _python_findings(evidence: Evidence, call: int, eager: Leaf, compiled: Leaf) -> Iterator[Finding]:
    """Compare Python values for equality; NaN equals NaN, and zeros of both signs are equal unless bits must be.

    A float may be off by the tolerance of the job's dtype, since it usually comes out of a tensor of that dtype
    (``x.sum().item()``).
    """
    evidence.comparisons += 1
    is_float = isinstance(eager.value, (float, complex))
    has_bits = is_float and bool((evidence.job.tolerance or {}).get("exact"))
    if eager.type != compiled.type or (not has_bits and same_python(eager.value, compiled.value)):
        return
    if not is_float:
        numbers: dict[str, Any] = {"eager": _text(eager.value), "compiled": _text(compiled.value)}
        message = "eager {eager}, compiled {compiled}".format(**numbers)
        if type(eager.value) is int and max(eager.value.bit_length(), compiled.value.bit_length()) < _BITS:
            error = abs(eager.value - compiled.value)
            numbers = {"eager": eager.value, "compiled": compiled.value, "abs_error": error}
        yield Finding("value", message, evidence.where(call, eager.path), numbers)
        return
    dtype = getattr(torch, evidence.job.dtype.removeprefix("torch."))
    yield from _element_findings(evidence, call, eager, compiled, dtype if dtype.is_floating_point else torch.float32)


def _text(value: Any) -> str:
    """Return the beginning of a value's text: of an integer with too many digits for ``str``, in hexadecimal."""
    try:
        return str(value)[:200]
    except ValueError:
        return hex(value)[:200] if isinstance(value, int) else f"a {type(value).__name__} with too many digits"


def _least_scale(quantizer: tuple[Any, ...]) -> float:
    """Return the smallest step between the numbers of a quantized tensor."""
    scales = quantizer[1]
    return min(scales, default=0.0) if isinstance(scales, list) else float(scales)


def _are_near(first: Any, second: Any) -> bool:
    """Return whether two quantizers are equal, but for the rounding of a scale that was computed."""
    if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
        return len(first) == len(second) and all(map(_are_near, first, second))
    are_floats = isinstance(first, float) and isinstance(second, float)
    return math.isclose(first, second, rel_tol=thresholds.SCALE_PART.value) if are_floats else bool(first == second)


def _plain(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value).removeprefix("torch.")
