"""Elements against elements: pure functions of tensors, no knowledge of runs.

Shapes and dtypes are equal when anything here is called; the judge has seen to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.contract.finding import index_of
from runner.contract.oracles import NEARER, NOISE, OVERFLOWED, ROUNDING
from runner.worker.comparison.adjudication import Movement, adjudicate
from runner.worker.rounding import sensitivity
from runner.worker.tensors import (
    TINY,
    Tolerance,
    classes,
    different_bits,
    error_of,
    finite_difference,
    finite_part,
    identical,
    norm,
    number,
    pieces,
    planes,
)
from runner.worker.torch_private.comparison import ask_same


@dataclass(frozen=True)
class Difference:
    """One disagreement of two tensors: an oracle (value, nonfinite, sign-of-zero) and numbers that JSON can carry."""

    oracle: str
    message: str
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """No differences means equal for our purposes; ``label`` says when only the float64 reference made it so."""

    differences: tuple[Difference, ...] = ()
    label: str | None = None


def compare_values(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    tolerance: Tolerance,
    reference: Callable[[], torch.Tensor | None] = lambda: None,
    measure_sensitivity: Callable[[], Movement | None] = lambda: None,
    measure_movement: Callable[[], Movement | None] = lambda: None,
    measure_conditioning: Callable[[], Movement | None] = lambda: None,
) -> Comparison:
    """Compare two dense CPU tensors of one shape and dtype.

    Integers and booleans must be equal. Floating and complex elements must have NaN and infinities in the same places;
    finite ones must lie within the tolerance of eager's. Elements that fail either are adjudicated by the float64
    reference. The compiled error against it may be a small multiple of eager's, by RMSE and at the worst element.

    Args:
        reference: gives the float64 (complex128) result of the same shape, or None. Called only when it is needed.
        measure_sensitivity: gives how far roundings move each element of the reference, and the dtype of the coarsest.
        None
            means unknown, or that a result is off by more than roundings explain. Called only when it is needed.
        measure_movement: gives how far a rounding of the inputs moves each element of eager's, and the dtype of that
            rounding, or None where a reference judges. Called only when it is needed.
        measure_conditioning: gives how far roundings move each element, whatever the dtype and whoever names the
        tolerance.
            Called only when the reference accepts the tensor as a whole, and an element is further off than eager's.
    """
    if eager.numel() == 0:
        return Comparison()
    if tolerance.exact or not (eager.is_floating_point() or eager.is_complex()):
        return _compare_exactly(eager, compiled)
    if identical(eager, compiled):
        return Comparison()
    scan = _scan(eager, compiled, tolerance)
    if not scan.other_class and not scan.mismatched:
        return Comparison()
    exact = reference()
    numbers: dict[str, Any] = {"elements": eager.numel()}
    adjudication = None if exact is None else adjudicate(eager, compiled, exact, tolerance, measure_conditioning)
    differences = []
    labels = []
    if scan.other_class:
        if adjudication is not None and adjudication.classes_right:
            labels.append(OVERFLOWED if scan.overflowed else NEARER)
        else:
            place = _at(eager, compiled, exact, scan.first_other_class)
            details = {**numbers, "mismatched": scan.other_class, **place, "same": ask_same(eager, compiled, exact)}
            differences.append(Difference("nonfinite", _sentence(details, "have another NaN or infinity"), details))
    if scan.mismatched:
        if adjudication is not None and adjudication.passed:
            labels.append(adjudication.label)
        elif (
            adjudication is not None
            and adjudication.numbers
            and adjudication.place is None
            and _is_rounding(eager, compiled, exact, measure_sensitivity, tolerance)
        ) or _is_movement(eager, compiled, measure_movement, tolerance):
            labels.append(ROUNDING)
        else:
            worst = scan.worst if adjudication is None or adjudication.place is None else adjudication.place
            place = _at(eager, compiled, exact, worst)
            error, relative = error_of(_item(eager, worst), _item(compiled, worst))
            details = {**numbers, "mismatched": scan.mismatched, **place}
            details.update(abs_error=number(float(error)), rel_error=number(float(relative)))
            details.update(abs_error_max=number(scan.largest_error), scale=number(scan.scale))
            details.update(rtol=tolerance.rtol, atol=tolerance.atol)
            details.update(adjudication.numbers if adjudication is not None else {})
            details["same"] = ask_same(eager, compiled, exact)
            differences.append(Difference("value", _sentence(details, "differ"), details))
    if differences:
        return Comparison(tuple(differences))
    return Comparison(label=next(label for label in (OVERFLOWED, ROUNDING, NOISE, NEARER) if label in labels))


def lies_within(eager: torch.Tensor, compiled: torch.Tensor, tolerance: Tolerance) -> bool:
    """Return whether NaN and infinities have the same places, and all other elements lie within the tolerance of
    eager's."""
    scan = _scan(eager, compiled, tolerance)
    return not scan.other_class and not scan.mismatched


def equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two dense CPU tensors are the same, bit for bit; any NaN equals any other."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return first.numel() == 0 or identical(first, second) or not bool(different_bits(first, second).any())


@dataclass
class _Scan:
    """What a first look at all elements finds; indices are flat."""

    other_class: int = 0  # elements that are NaN or infinite where eager's are not, or the reverse
    first_other_class: int = 0
    mismatched: int = 0  # elements beyond the tolerance
    worst: int = 0  # the one furthest beyond it
    worst_ratio: float = -1.0
    largest_error: float = 0.0  # anywhere
    scale: float = 0.0  # eager's largest element
    overflowed: bool = False  # eager has NaN or an infinity where the compiled element is finite


def _scan(eager: torch.Tensor, compiled: torch.Tensor, tolerance: Tolerance) -> _Scan:
    scan = _Scan()
    for start, eager_planes, compiled_planes in pieces(eager, compiled):
        same_class = (classes(eager_planes) == classes(compiled_planes)).all(dim=1)
        size = norm(finite_part(eager_planes, compiled_planes))
        limit = tolerance.atol + tolerance.rtol * size
        error = norm(finite_difference(eager_planes, compiled_planes))
        mismatched = same_class & (error > limit)
        scan.scale = max(scan.scale, float(size.max()))
        if not bool(same_class.all()):
            if not scan.other_class:
                scan.first_other_class = start + int((~same_class).nonzero()[0])
            scan.other_class += int((~same_class).sum())
            finite = [plane.isfinite().all(dim=1) for plane in (eager_planes, compiled_planes)]
            scan.overflowed |= bool((~finite[0] & finite[1]).any())
        if bool(mismatched.any()):
            scan.mismatched += int(mismatched.sum())
            scan.largest_error = max(scan.largest_error, float(error[mismatched].max()))
            ratio = torch.where(mismatched, error / limit.clamp_min(TINY), 0.0)
            worst = int(ratio.argmax())
            if float(ratio[worst]) > scan.worst_ratio:
                scan.worst, scan.worst_ratio = start + worst, float(ratio[worst])
    return scan


def _is_rounding(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    reference: torch.Tensor | None,
    measure_sensitivity: Callable[[], Movement | None],
    tolerance: Tolerance,
) -> bool:
    """Return whether the sensitivity to roundings explains the mismatch. Asked last, since it takes a dozen runs."""
    response = measure_sensitivity() if reference is not None else None
    return response is not None and sensitivity.explains(
        eager, compiled, reference, *response, tolerance.rtol, tolerance.atol
    )


def _is_movement(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    measure_movement: Callable[[], Movement | None],
    tolerance: Tolerance,
) -> bool:
    """Return whether a rounding of the inputs moves eager's elements as far as the mismatch. It takes a dozen runs."""
    movement = measure_movement()
    return movement is not None and sensitivity.movement_explains(
        eager, compiled, *movement, tolerance.rtol, tolerance.atol
    )


def _compare_exactly(eager: torch.Tensor, compiled: torch.Tensor) -> Comparison:
    """Compare bits, where any NaN equals any other; the zeros' signs are an oracle of their own."""
    if equal_bits(eager, compiled):
        return Comparison()
    different = different_bits(eager, compiled)
    kinds = {"value": different}
    if eager.is_floating_point() or eager.is_complex():
        eager_planes, compiled_planes = planes(eager), planes(compiled)
        other_class = (classes(eager_planes) != classes(compiled_planes)).any(dim=1)
        zeros = ~other_class & (finite_difference(eager_planes, compiled_planes) == 0).all(dim=1)
        kinds = {
            "nonfinite": different & other_class,
            "value": different & ~other_class & ~zeros,
            "sign-of-zero": different & zeros,
        }
    differences = []
    for oracle, wrong in kinds.items():
        if bool(wrong.any()):
            differences.append(_exact_difference(oracle, eager, compiled, wrong))
    return Comparison(tuple(differences))


def _exact_difference(oracle: str, eager: torch.Tensor, compiled: torch.Tensor, wrong: torch.Tensor) -> Difference:
    first = int(wrong.nonzero()[0])
    eager_value, compiled_value = _item(eager, first), _item(compiled, first)
    numbers: dict[str, Any] = {
        "elements": eager.numel(),
        "mismatched": int(wrong.sum()),
        "worst_index": index_of(first, eager.shape),
        "eager": number(eager_value),
        "compiled": number(compiled_value),
        "rtol": 0.0,
        "atol": 0.0,
    }
    if oracle == "value":
        numbers["abs_error"], numbers["rel_error"] = map(number, error_of(eager_value, compiled_value))
    numbers["same"] = ask_same(eager, compiled, None)
    return Difference(oracle, _sentence(numbers, "differ"), numbers)


def _sentence(numbers: Mapping[str, Any], verb: str) -> str:
    where = f" at {numbers['worst_index']}" if numbers["worst_index"] else ""
    return (
        f"{numbers['mismatched']} of {numbers['elements']} elements {verb}; "
        f"eager {numbers['eager']}, compiled {numbers['compiled']}{where}"
    )


def _at(eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor | None, flat: int) -> dict[str, Any]:
    return {
        "worst_index": index_of(flat, eager.shape),
        "eager": number(_item(eager, flat)),
        "compiled": number(_item(compiled, flat)),
        "reference": None if reference is None else number(_item(reference, flat)),
    }


def _item(tensor: torch.Tensor, flat: int) -> Any:
    return tensor.reshape(-1)[flat].item()


def same_python(first: Any, second: Any) -> bool:
    """Return whether two Python values are equal; NaN equals NaN."""
    if first is second:
        return True
    try:
        return bool(first == second) or bool(first != first and second != second)
    except Exception:  # noqa: BLE001  an object of the model may refuse to be compared
        return False
