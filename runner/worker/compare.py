"""Elements against elements: pure functions of tensors, no knowledge of runs.

Shapes and dtypes are equal when anything here is called; the judge has seen to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

NEARER = "nearer-to-float64"
NOISE = "within-float64-noise"

# How many times eager's error against float64 the compiled error may be: torch._dynamo.utils.same takes 3 for half
# precision and for fewer than 1000 elements, 2 otherwise.
SMALL = 1000
MULTIPLIER_NARROW = 3.0
MULTIPLIER = 2.0

_SAME_SIZE_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Tolerance:
    """As ``torch.testing.assert_close`` has them; ``exact`` asks for equal bits, where any NaN equals any other."""

    rtol: float
    atol: float
    exact: bool = False


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


def tolerance_for(dtype: torch.dtype, wanted: Mapping[str, Any] | None = None) -> Tolerance:
    """The tolerance of a dtype: where ``wanted`` says nothing, the default of ``torch.testing.assert_close``.

    Args:
        wanted: ``{"by_dtype": {"": [rtol, atol], "float16": [rtol, atol]}, "exact": bool}``; None in place of a
            number keeps the default; ``""`` holds for every dtype that has no entry of its own.
    """
    rtol, atol = default_tolerances(dtype)
    wanted = wanted or {}
    table = wanted.get("by_dtype") or {}
    asked = table.get(str(dtype).removeprefix("torch."), table.get("", (None, None)))
    return Tolerance(
        rtol=rtol if asked[0] is None else float(asked[0]),
        atol=atol if asked[1] is None else float(asked[1]),
        exact=bool(wanted.get("exact")),
    )


def compare_values(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    tolerance: Tolerance,
    reference: Callable[[], torch.Tensor | None] = lambda: None,
) -> Comparison:
    """Compare two dense CPU tensors of one shape and dtype.

    Integers and booleans must be equal. Floating and complex elements must have NaN and infinities in the same places;
    finite ones must lie within the tolerance of eager's. Where they do not, the float64 reference is asked for, and
    decides: the compiled error against it may be a small multiple of eager's, by RMSE and at the worst element.

    Args:
        reference: gives the float64 (complex128) result of the same shape, or None. Called only when it is needed.
    """
    if eager.numel() == 0:
        return Comparison()
    if tolerance.exact or not (eager.is_floating_point() or eager.is_complex()):
        return _compare_exactly(eager, compiled)
    ours, theirs = _planes(eager), _planes(compiled)
    same_class = (_classes(ours) == _classes(theirs)).all(dim=1)
    error = _norm(_finite_difference(ours, theirs))
    limit = tolerance.atol + tolerance.rtol * _norm(_finite_part(ours, theirs))
    mismatched = same_class & (error > limit)
    if bool(same_class.all()) and not bool(mismatched.any()):
        return Comparison()
    exact = reference()
    case = _Case(eager, compiled, exact, ours, theirs, error, limit, tolerance)
    differences: list[Difference] = []
    labels = []
    for found in (_judge_classes(case, ~same_class), _judge_finite(case, mismatched, same_class)):
        differences += found.differences
        labels += [found.label] if found.label else []
    if differences:
        return Comparison(tuple(differences))
    return Comparison(label=NOISE if NOISE in labels else NEARER)


def equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two dense CPU tensors are the same, bit for bit; any NaN equals any other."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return first.numel() == 0 or not bool(_different_bits(first, second).any())


def ask_same(eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor | None) -> bool | str:
    """What ``torch._dynamo.utils.same`` says by its own defaults: reported, since upstream asks; decides nothing."""
    from torch._dynamo.utils import same

    try:
        return bool(same(eager, compiled, reference, log_error=lambda *args, **kwargs: None))
    except Exception as error:  # noqa: BLE001  it asserts and raises on what it does not know
        return f"{type(error).__name__}: {str(error)[:200]}"


def number(value: Any) -> Any:
    """A number that JSON can carry: NaN, infinities and complex numbers become text."""
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


@dataclass(frozen=True)
class _Case:
    """One comparison. ``ours`` and ``theirs`` are float64 [elements, 1 or 2]; ``error`` and ``limit`` [elements]."""

    eager: torch.Tensor
    compiled: torch.Tensor
    reference: torch.Tensor | None
    ours: torch.Tensor
    theirs: torch.Tensor
    error: torch.Tensor
    limit: torch.Tensor
    tolerance: Tolerance

    @property
    def multiplier(self) -> float:
        narrow = self.eager.dtype in (torch.float16, torch.bfloat16) or self.eager.numel() < SMALL
        return MULTIPLIER_NARROW if narrow else MULTIPLIER


def _judge_classes(case: _Case, wrong: torch.Tensor) -> Comparison:
    """NaN and infinities in other places than eager's: forgiven where float64 says that the compiled side is right.

    Right means the class of the reference rounded to the output's dtype, and, where that is finite, a value near it:
    else anything would do at a place where eager alone has a NaN.
    """
    if not bool(wrong.any()):
        return Comparison()
    if case.reference is not None:
        exact = _planes(case.reference)
        rounded = _planes(case.reference.to(case.eager.dtype))
        right = (_classes(rounded) == _classes(case.theirs)).all(dim=1)
        limit = case.tolerance.atol + case.tolerance.rtol * _norm(_finite_part(exact, case.theirs))
        near = _norm(_finite_difference(exact, case.theirs)) <= case.multiplier * limit
        if bool((right & near)[wrong].all()):
            return Comparison(label=NEARER)
    first = int(wrong.nonzero()[0])
    numbers = {"elements": case.eager.numel(), "mismatched": int(wrong.sum()), **_at(case, first)}
    numbers["same"] = ask_same(case.eager, case.compiled, case.reference)
    return Comparison((Difference("nonfinite", _sentence(numbers, "are NaN or infinite on one side only"), numbers),))


def _judge_finite(case: _Case, mismatched: torch.Tensor, comparable: torch.Tensor) -> Comparison:
    if not bool(mismatched.any()):
        return Comparison()
    ratio = torch.where(mismatched, case.error / case.limit.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    worst = int(ratio.nan_to_num(nan=math.inf, posinf=math.inf).argmax())
    size = float(_norm(_finite_part(case.ours, case.theirs))[worst])
    gap = float(case.error[worst])
    numbers: dict[str, Any] = {
        "elements": case.eager.numel(),
        "mismatched": int(mismatched.sum()),
        **_at(case, worst),
        "abs_error": number(gap),
        "rel_error": number(gap / size if size else math.inf),
        "rtol": case.tolerance.rtol,
        "atol": case.tolerance.atol,
    }
    if case.reference is not None:
        passed, label, against = _against_reference(case, mismatched, comparable)
        if passed:
            return Comparison(label=label)
        numbers.update(against)
    numbers["same"] = ask_same(case.eager, case.compiled, case.reference)
    return Comparison((Difference("value", _sentence(numbers, "differ"), numbers),))


def _against_reference(
    case: _Case, mismatched: torch.Tensor, comparable: torch.Tensor
) -> tuple[bool, str, dict[str, Any]]:
    """Whether float64 excuses the mismatch, under which label, and the numbers.

    RMSE alone would let one wrong element in a million pass, so the worst element counts too, in units of the
    tolerance at the reference. Elements that are not finite on all three sides cannot be excused.
    """
    exact = _planes(case.reference) if case.reference is not None else case.ours
    usable = comparable.clone()
    for planes in (exact, case.ours, case.theirs):
        usable &= planes.isfinite().all(dim=1)
    if not bool(usable[mismatched].all()):
        return False, "", {}
    exact = exact[usable]
    allowed = case.tolerance.atol + case.tolerance.rtol * _norm(exact)
    unit = allowed.clamp_min(torch.finfo(torch.float64).tiny)
    if case.tolerance.rtol == 0 and case.tolerance.atol == 0:
        unit = torch.ones_like(unit)  # no tolerance, no unit: errors as they are
    eager, compiled = _norm(case.ours[usable] - exact), _norm(case.theirs[usable] - exact)
    eager_worst, compiled_worst = float((eager / unit).max()), float((compiled / unit).max())
    eager_rmse, compiled_rmse = _rmse(eager), _rmse(compiled)
    needed = max(_ratio(compiled_rmse, eager_rmse), _ratio(compiled_worst, eager_worst))
    numbers = {
        "eager_error_max": number(float(eager.max())),
        "eager_error_rmse": number(eager_rmse),
        "compiled_error_max": number(float(compiled.max())),
        "compiled_error_rmse": number(compiled_rmse),
        "multiplier": number(needed),
    }
    within = bool((compiled <= allowed).all())
    measured = all(math.isfinite(item) for item in (eager_worst, compiled_worst, eager_rmse, compiled_rmse))
    passed = within or (measured and needed <= case.multiplier)
    nearer = compiled_rmse <= eager_rmse and compiled_worst <= eager_worst
    return passed, NEARER if nearer else NOISE, numbers


def _compare_exactly(eager: torch.Tensor, compiled: torch.Tensor) -> Comparison:
    """Equal bits, where any NaN equals any other; the zeros' signs are an oracle of their own."""
    different = _different_bits(eager, compiled)
    if not bool(different.any()):
        return Comparison()
    kinds = {"value": different}
    if eager.is_floating_point() or eager.is_complex():
        ours, theirs = _planes(eager), _planes(compiled)
        other_class = (_classes(ours) != _classes(theirs)).any(dim=1)
        zeros = ~other_class & (_finite_difference(ours, theirs) == 0).all(dim=1)
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
    ours, theirs = _item(eager, first), _item(compiled, first)
    numbers: dict[str, Any] = {
        "elements": eager.numel(),
        "mismatched": int(wrong.sum()),
        "worst_index": _unravel(first, eager.shape),
        "eager": number(ours),
        "compiled": number(theirs),
        "rtol": 0.0,
        "atol": 0.0,
    }
    if oracle == "value":
        gap = abs(int(ours) - int(theirs)) if isinstance(ours, (bool, int)) else abs(ours - theirs)
        numbers["abs_error"] = number(gap)
        numbers["rel_error"] = number(gap / abs(ours) if ours else math.inf)
    numbers["same"] = ask_same(eager, compiled, None)
    return Difference(oracle, _sentence(numbers, "differ"), numbers)


def _sentence(numbers: Mapping[str, Any], verb: str) -> str:
    where = f" at {numbers['worst_index']}" if numbers["worst_index"] else ""
    return (
        f"{numbers['mismatched']} of {numbers['elements']} elements {verb}; "
        f"eager {numbers['eager']}, compiled {numbers['compiled']}{where}"
    )


def _at(case: _Case, flat: int) -> dict[str, Any]:
    return {
        "worst_index": _unravel(flat, case.eager.shape),
        "eager": number(_item(case.eager, flat)),
        "compiled": number(_item(case.compiled, flat)),
        "reference": None if case.reference is None else number(_item(case.reference, flat)),
    }


def _item(tensor: torch.Tensor, flat: int) -> Any:
    return tensor.reshape(-1)[flat].item()


def _unravel(flat: int, shape: torch.Size) -> list[int]:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def _planes(tensor: torch.Tensor) -> torch.Tensor:
    """float64 [elements, 1], or [elements, 2] for real and imaginary parts. float64 holds narrower floats exactly."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).contiguous()).reshape(-1, 2)
    return tensor.to(torch.float64).reshape(-1, 1)


def _classes(planes: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 infinity, 3 minus infinity."""
    return planes.isnan() * 1 + planes.isposinf() * 2 + planes.isneginf() * 3


def _finite_difference(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The difference, and 0 where either side is not finite."""
    return torch.where(first.isfinite() & second.isfinite(), first - second, 0.0)


def _finite_part(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.where(first.isfinite() & second.isfinite(), first, 0.0)


def _norm(planes: torch.Tensor) -> torch.Tensor:
    """Absolute value of each element [elements]; hypot neither overflows nor underflows early."""
    return planes[:, 0].abs() if planes.shape[1] == 1 else torch.hypot(planes[:, 0], planes[:, 1])


def _rmse(errors: torch.Tensor) -> float:
    """Root mean square, scaled so that squares of large errors do not overflow."""
    top = float(errors.max())
    return top if top == 0 or not math.isfinite(top) else top * math.sqrt(float(((errors / top) ** 2).mean()))


def _ratio(compiled: float, eager: float) -> float:
    if compiled == 0:
        return 0.0
    return compiled / eager if eager else math.inf


def _different_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """bool [elements]."""
    if first.is_floating_point() or first.is_complex():
        # Through float64, since float8 dtypes have no isnan of their own.
        ours, theirs = _planes(first), _planes(second)
        unequal = (ours != theirs) | (torch.signbit(ours) != torch.signbit(theirs))
        return (unequal & ~(ours.isnan() & theirs.isnan())).any(dim=1)
    if first.dtype != torch.bool:
        integer = _SAME_SIZE_INTEGER[first.element_size()]
        first, second = first.contiguous().view(integer), second.contiguous().view(integer)
    return first.reshape(-1) != second.reshape(-1)
