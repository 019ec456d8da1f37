"""Elements against elements: pure functions of tensors, no knowledge of runs.

Shapes and dtypes are equal when anything here is called; the judge has seen to that. ``compare_values`` holds elements
against the tolerance. ``adjudicate`` lets the float64 reference say which of two results that differ is right, or
whether both are near enough. ``compare_small_tensors`` looks again at what a tolerance accepts that accepts anything.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from runner.contract.finding import index_of
from runner.contract.oracles import NEARER, NOISE, OVERFLOWED, ROUNDING
from runner.worker import thresholds
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
    rmse,
)
from runner.worker.torch_private.comparison import ask_same

Movement = tuple[torch.Tensor, torch.dtype]
"""How far roundings move each element, and the dtype of the coarsest."""


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
    if scan.is_within:
        return Comparison()
    exact = reference()
    adjudication = None if exact is None else adjudicate(eager, compiled, exact, tolerance, measure_conditioning)
    differences = []
    labels = []
    if scan.other_class:
        if adjudication is not None and adjudication.classes_right:
            labels.append(OVERFLOWED if scan.overflowed else NEARER)
        else:
            details = numbers_at(scan.other_class, scan.first_other_class, eager, compiled=compiled, reference=exact)
            details["same"] = ask_same(eager, compiled, exact)
            differences.append(Difference("nonfinite", sentence(details, "have another NaN or infinity"), details))
    if scan.mismatched:
        if adjudication is not None and adjudication.passed:
            labels.append(adjudication.label)
        elif _is_rounding(eager, compiled, exact, adjudication, tolerance, measure_sensitivity, measure_movement):
            labels.append(ROUNDING)
        else:
            worst = scan.worst if adjudication is None or adjudication.place is None else adjudication.place
            error, relative = map(float, error_at(eager, compiled, worst))
            details = numbers_at(scan.mismatched, worst, eager, compiled=compiled, reference=exact)
            details.update(
                abs_error=number(error),
                rel_error=number(relative),
                abs_error_max=number(scan.largest_error),
                scale=number(scan.scale),
                rtol=tolerance.rtol,
                atol=tolerance.atol,
                **(adjudication.numbers if adjudication is not None else {}),
                same=ask_same(eager, compiled, exact),
            )
            differences.append(Difference("value", sentence(details, "differ"), details))
    if differences:
        return Comparison(tuple(differences))
    return Comparison(label=next(label for label in (OVERFLOWED, ROUNDING, NOISE, NEARER) if label in labels))


def lies_within(eager: torch.Tensor, compiled: torch.Tensor, tolerance: Tolerance) -> bool:
    """Return whether NaN and infinities have the same places, and all other elements lie within the tolerance of
    eager's."""
    return _scan(eager, compiled, tolerance).is_within


def describe_excess(eager: torch.Tensor, compiled: torch.Tensor, tolerance: Tolerance) -> str:
    """Return how many elements lie outside the tolerance of eager's, and how far the worst; empty if all lie within."""
    scan = _scan(eager, compiled, tolerance)
    parts = [f"{scan.other_class} of {eager.numel()} elements have another NaN or infinity"] * bool(scan.other_class)
    if scan.mismatched:
        far = f"the worst is off by {scan.worst_ratio:.3g} times what it allows"
        parts.append(f"{scan.mismatched} of {eager.numel()} elements lie outside the tolerance, {far}")
    return "; ".join(parts)


def equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two dense CPU tensors are the same, bit for bit; any NaN equals any other."""
    are_alike = (first.dtype, first.shape) == (second.dtype, second.shape)
    return are_alike and (
        first.numel() == 0 or identical(first, second) or not bool(different_bits(first, second).any())
    )


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

    @property
    def is_within(self) -> bool:
        """Return whether nothing is found."""
        return not self.other_class and not self.mismatched


def _scan(eager: torch.Tensor, compiled: torch.Tensor, tolerance: Tolerance) -> _Scan:
    scan = _Scan()
    for start, eager_planes, compiled_planes in pieces(eager, compiled):
        same_class = (classes(eager_planes) == classes(compiled_planes)).all(dim=1)
        size = norm(finite_part(eager_planes, compiled_planes))
        limit = tolerance.allowed(size)
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
    exact: torch.Tensor | None,
    adjudication: Adjudication | None,
    tolerance: Tolerance,
    measure_sensitivity: Callable[[], Movement | None],
    measure_movement: Callable[[], Movement | None],
) -> bool:
    """Return whether roundings explain a mismatch: those of the reference, or a rounding of the inputs. Asked last,
    since each takes a dozen runs."""
    is_asked = adjudication is not None and adjudication.numbers and adjudication.place is None
    response = measure_sensitivity() if exact is not None and is_asked else None
    if response is not None and sensitivity.response_explains(eager, compiled, exact, *response, tolerance):
        return True
    movement = measure_movement()
    return movement is not None and sensitivity.movement_explains(eager, compiled, *movement, tolerance)


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
    return Comparison(
        tuple(_exact_difference(oracle, eager, compiled, wrong) for oracle, wrong in kinds.items() if bool(wrong.any()))
    )


def _exact_difference(oracle: str, eager: torch.Tensor, compiled: torch.Tensor, wrong: torch.Tensor) -> Difference:
    first = int(wrong.nonzero()[0])
    numbers = {**numbers_at(int(wrong.sum()), first, eager, compiled=compiled), "rtol": 0.0, "atol": 0.0}
    if oracle == "value":
        numbers["abs_error"], numbers["rel_error"] = map(number, error_at(eager, compiled, first))
    numbers["same"] = ask_same(eager, compiled, None)
    return Difference(oracle, sentence(numbers, "differ"), numbers)


def numbers_at(mismatched: int, worst: int, eager: torch.Tensor, **sides: torch.Tensor | None) -> dict[str, Any]:
    """Return how many elements are wrong, and what each side holds at the worst, whose index is flat."""
    return {
        "elements": eager.numel(),
        "mismatched": mismatched,
        "worst_index": index_of(worst, eager.shape),
        "eager": number(_item(eager, worst)),
        **{name: None if side is None else number(_item(side, worst)) for name, side in sides.items()},
    }


def error_at(eager: torch.Tensor, compiled: torch.Tensor, flat: int) -> tuple[Any, float]:
    """Return the absolute and the relative error of one element."""
    return error_of(_item(eager, flat), _item(compiled, flat))


def sentence(numbers: Mapping[str, Any], verb: str, remark: str = "") -> str:
    """Return a sentence of the numbers of ``numbers_at``. A remark follows what both sides hold."""
    where = f" at {numbers['worst_index']}" if numbers["worst_index"] else ""
    return (
        f"{numbers['mismatched']} of {numbers['elements']} elements {verb}; "
        f"eager {numbers['eager']}, compiled {numbers['compiled']}{remark}{where}"
    )


def _item(tensor: torch.Tensor, flat: int) -> Any:
    return tensor.reshape(-1)[flat].item()


@dataclass
class _Errors:
    """Errors of one side against float64, gathered piece by piece."""

    largest: float = 0.0
    worst: float = 0.0  # in units of the tolerance
    pieces: list[tuple[float, int]] = field(default_factory=list)  # (root mean square, elements)

    def add(self, errors: torch.Tensor, unit: torch.Tensor) -> None:
        self.largest = max(self.largest, float(errors.max()))
        self.worst = max(self.worst, float((errors / unit).max()))
        self.pieces.append((rmse(errors), errors.numel()))

    @property
    def rmse(self) -> float:
        """Return the root mean square, scaled so that squares of large errors do not overflow."""
        top = max((value for value, _ in self.pieces), default=0.0)
        if top == 0 or not math.isfinite(top):
            return top
        squares = sum((value / top) ** 2 * count for value, count in self.pieces)
        return top * math.sqrt(squares / sum(count for _, count in self.pieces))


Doubts = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Elements that are further off than their own error in eager, or the tolerance, accounts for: flat indices, errors,
and what each is measured in."""


def _worst_doubt(
    doubts: Doubts, multiplier: float, typical: float, measure: Callable[[], Movement | None]
) -> tuple[int, float] | None:
    """Return the element that is furthest off, and by how many units; None where roundings account for each of them.

    How far roundings move the element itself tells; and ``typical``, eager's usual error in units: where most
    elements are noise, so is one that eager has right by chance.
    """
    if not any(len(index) for index, *_ in doubts):
        return None
    index, error, unit = (torch.cat(part) for part in zip(*doubts, strict=True))
    limit = multiplier * unit * max(1.0, thresholds.TYPICAL_FACTOR.value * typical)
    if bool((error > limit).any()) and (movement := measure()) is not None:
        response, dtype = movement
        limit = torch.maximum(limit, multiplier * unit + sensitivity.factor(dtype) * response.reshape(-1)[index])
    ratio = torch.where(error > limit, error / unit, 0.0)
    place = int(ratio.argmax())
    return (int(index[place]), float(ratio[place])) if float(ratio[place]) else None


@dataclass(frozen=True)
class Adjudication:
    """What the float64 reference says: of misplaced NaN and infinities, and of finite mismatches.

    ``place`` is the flat index of an element that is wrong though all errors together are no larger than eager's.
    """

    classes_right: bool
    passed: bool
    label: str
    numbers: dict[str, Any]
    place: int | None = None


def adjudicate(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    measure_conditioning: Callable[[], Movement | None] = lambda: None,
) -> Adjudication:
    """Let the float64 reference decide on what the tolerance does not accept.

    A misplaced NaN or infinity is accepted if the compiled element has the class of the reference rounded to the
    output's dtype. If finite, it must also lie near the reference. Otherwise any value would pass where eager alone has
    a NaN.

    A finite mismatch is accepted by RMSE and by the worst element, in units of the tolerance at the reference. RMSE
    alone would let one wrong element in a million pass. A mismatch without a finite reference is never accepted.

    One element that is ill-conditioned says nothing about the others. So each element must also lie within the
    multiplier of the tolerance, or of its own error in eager; else within what roundings move that very element by, or
    near eager's usual error.

    Args:
        measure_conditioning: gives how far roundings move each element, and the dtype of the coarsest. Called only when
        it is
            needed: it takes a dozen runs.
    """
    narrow = eager.dtype in (torch.float16, torch.bfloat16) or eager.numel() < thresholds.FEW_ELEMENTS.value
    multiplier = (thresholds.ERROR_FACTOR_NARROW if narrow else thresholds.ERROR_FACTOR).value
    classes_right = measured = within = True
    eager_errors, compiled_errors = _Errors(), _Errors()
    misplaced: Doubts = []
    doubts: Doubts = []
    medians = []
    sides = eager, compiled, reference, reference.to(eager.dtype)
    for start, eager_planes, compiled_planes, exact, rounded in pieces(*sides):
        same_class = (classes(eager_planes) == classes(compiled_planes)).all(dim=1)
        allowed = tolerance.allowed(norm(finite_part(exact, compiled_planes)))
        unit = _units(allowed, norm(finite_part(exact, exact)), eager.dtype, tolerance)
        right = (classes(rounded) == classes(compiled_planes)).all(dim=1)
        classes_right &= bool((same_class | right).all())
        distance = norm(finite_difference(exact, compiled_planes))
        far = ~same_class & (distance > multiplier * unit)
        misplaced.append((start + far.nonzero()[:, 0], distance[far], unit[far]))

        finite = torch.cat([eager_planes, compiled_planes, exact], dim=1).isfinite().all(dim=1)
        limit = tolerance.allowed(norm(finite_part(eager_planes, compiled_planes)))
        mismatched = same_class & (norm(finite_difference(eager_planes, compiled_planes)) > limit)
        measured &= not bool((mismatched & ~finite).any())
        if not bool(finite.any()):
            continue
        own = norm(finite_difference(exact, eager_planes))
        within &= bool((distance <= allowed)[finite].all())
        far = finite & (distance > multiplier * torch.maximum(own, unit))
        doubts.append((start + far.nonzero()[:, 0], distance[far], unit[far]))
        eager_errors.add(own[finite], unit[finite])
        compiled_errors.add(distance[finite], unit[finite])
        medians.append(float((own / unit)[finite].median()))
    typical = sorted(medians)[len(medians) // 2] if medians else 0.0
    needed = max(_ratio(compiled_errors.rmse, eager_errors.rmse), _ratio(compiled_errors.worst, eager_errors.worst))
    sums = (eager_errors.rmse, eager_errors.worst, compiled_errors.rmse, compiled_errors.worst)
    passed = measured and (within or (all(map(math.isfinite, sums)) and needed <= multiplier))
    measure = functools.cache(measure_conditioning)
    classes_right = classes_right and _worst_doubt(misplaced, multiplier, typical, measure) is None
    if not measured:
        return Adjudication(classes_right, False, "", {})
    numbers = {
        "eager_error_max": number(eager_errors.largest),
        "eager_error_rmse": number(eager_errors.rmse),
        "compiled_error_max": number(compiled_errors.largest),
        "compiled_error_rmse": number(compiled_errors.rmse),
        "multiplier": number(needed),
    }
    wrong = _worst_doubt(doubts, multiplier, typical, measure) if passed else None
    if wrong is not None:
        return Adjudication(classes_right, False, "", {**numbers, "multiplier": number(wrong[1])}, wrong[0])
    nearer = compiled_errors.rmse <= eager_errors.rmse and compiled_errors.worst <= eager_errors.worst
    return Adjudication(classes_right, passed, NEARER if nearer else NOISE, numbers)


def _units(allowed: torch.Tensor, sizes: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance) -> torch.Tensor:
    """Return what errors are measured in: what the tolerance allows; without one, the steps between numbers of the
    dtype."""
    if tolerance.rtol == 0 and tolerance.atol == 0:
        limits = torch.finfo(dtype)
        allowed = limits.eps * (sizes + limits.smallest_normal)
    return allowed.clamp_min(TINY)


def _ratio(compiled: float, eager: float) -> float:
    if compiled == 0:
        return 0.0
    return compiled / eager if eager else math.inf


def compare_small_tensors(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
    reference: Callable[[], torch.Tensor | None],
    precision: Callable[[], torch.dtype],
    measure_response: Callable[[], torch.Tensor | None],
) -> Comparison:
    """Compare two dense CPU tensors of one shape again, which the tolerance has accepted.

    Where all elements are smaller than ``atol``, the tolerance accepts any small numbers. The second moments of Adam, a
    softmax over a vocabulary and the gradient of a mean are such tensors: with ``atol`` 1e-5, zeros pass for each. An
    error is reported where the float64 reference shows that eager's numbers are right, and the compiled ones are not.
    Numbers that are small because larger ones cancelled are noise on both sides, and eager's are then not right either.

    Args:
        dtype: of the program's tensors; a Python number has that of the tensor it came from.
        tolerance: that has accepted them. Its ``atol`` must come from the dtype, not from a person.
        reference: gives the float64 (complex128) result of the same shape, or None. Called only when it is needed.
        precision: gives the dtype of the coarsest rounding behind the elements. Called after the reference.
        measure_response: gives how far roundings move each element of the reference. Called last: it takes a dozen
        runs.
    """
    if identical(eager, compiled):  # the common case: no pass in float64 for it
        return Comparison()
    scale, (least, step) = _largest(eager), _smallest(dtype, tolerance)
    gross = thresholds.GROSS_FACTOR.value * (sensitivity.small(dtype) * scale + step)
    # atol + rtol * scale is what the difference can be at most, and no pass over the elements is needed above it.
    is_seen = scale < least or tolerance.atol + tolerance.rtol * scale <= gross or _largest(eager, compiled) <= gross
    exact = None if is_seen else reference()
    if exact is None:
        return Comparison()
    right = sensitivity.small(precision()) * scale + step
    if _largest(eager, exact) > right or _largest(compiled, exact) <= thresholds.GROSS_FACTOR.value * right:
        return Comparison()
    response = measure_response()
    tolerance = replace(tolerance, atol=tolerance.atol * scale + step)
    is_right = response is None or sensitivity.explains(eager, compiled, exact, response, precision(), tolerance)
    return Comparison() if is_right else compare_values(eager, compiled, tolerance, lambda: exact)


def compare_precision(eager: torch.Tensor, compiled: torch.Tensor) -> Comparison:
    """Compare two dense CPU tensors of float64 or complex128 again, which the tolerance has accepted.

    It accepts what was rounded to float32. An error is reported where all compiled elements are numbers of float32, and
    some are off by as much as a rounding to it is, where eager's are no such numbers. Zeros do not count: a difference
    that cancels may be one.
    """
    if identical(eager, compiled):
        return Comparison()
    least, most = thresholds.LEAST_NARROWED.value, thresholds.MOST_NARROWED.value
    places: list[torch.Tensor] = []
    for start, eager_planes, compiled_planes in pieces(eager, compiled):
        if bool((_to_single(compiled_planes) != compiled_planes)[compiled_planes.isfinite()].any()):
            return Comparison()
        part = (eager_planes - compiled_planes).abs() / eager_planes.abs()
        is_narrowed = (
            (part > least) & (part <= most) & (compiled_planes != 0) & (_to_single(eager_planes) != eager_planes)
        )
        places.append(start + is_narrowed.any(dim=1).nonzero()[:, 0])
    narrowed = torch.cat(places)
    if not len(narrowed):
        return Comparison()
    numbers = numbers_at(len(narrowed), int(narrowed[0]), eager, compiled=compiled)
    return Comparison((Difference("value", sentence(numbers, "were rounded to float32"), numbers),))


def _to_single(plane: torch.Tensor) -> torch.Tensor:
    """Return what float32 holds of float64 elements, again in float64."""
    return plane.to(torch.float32).to(torch.float64)


def _smallest(dtype: torch.dtype, tolerance: Tolerance) -> tuple[float, float]:
    """Return how large the largest element must be, and the distance between numbers there that counts beside the
    relative one.

    Numbers below the normal ones may be flushed to zero. Those of float16 lie above its absolute tolerance, and no CPU
    or GPU flushes them: they count, down to 64 of the steps between them.
    """
    limits = torch.finfo(dtype)
    step = limits.smallest_normal * limits.eps
    return (
        (thresholds.STEPS_OF_SMALL.value * step, step)
        if limits.smallest_normal > tolerance.atol
        else (limits.smallest_normal, 0.0)
    )


def _largest(first: torch.Tensor, second: torch.Tensor | None = None) -> float:
    """Return the largest absolute value of the finite elements, or of the differences from a second tensor."""
    if second is None:
        second = torch.zeros((), dtype=first.dtype).expand_as(first)
    sizes = (norm(finite_difference(*sides)) for _, *sides in pieces(first, second))
    return max((float(size.max()) for size in sizes), default=0.0)


def same_python(first: Any, second: Any) -> bool:
    """Return whether two Python values are equal; NaN equals NaN."""
    if first is second:
        return True
    try:
        return bool(first == second) or bool(first != first and second != second)
    except Exception:  # noqa: BLE001  an object of the model may refuse to be compared
        return False
