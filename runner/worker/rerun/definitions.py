"""Definitions of operators whose result torch leaves open: what still holds for every legal result.

A ``Definition`` is given the operator's call and its own result in eager, both on the CPU, the place of an output among
its results, and what was compiled there. A ``Joint`` is given all that was compiled of the result, by its places. Each
returns in which way that breaks the definition; an empty text where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from runner.worker import thresholds
from runner.worker.comparison.compare import compare_values
from runner.worker.operators.choices import Call, dimension, symmetric_matrix, targets
from runner.worker.tensors import tolerance_for, wide_dtype

Definition = Callable[[Call, Sequence[torch.Tensor], int, torch.Tensor], str]
Joint = Callable[[Call, Sequence[torch.Tensor], Mapping[int, torch.Tensor]], str]


def _differ(expected: torch.Tensor, actual: torch.Tensor, uncertainty: torch.Tensor | None = None) -> bool:
    """Return whether elements differ beyond the tolerance of their dtype and twice the ``uncertainty`` of both."""
    if uncertainty is not None and expected.is_floating_point():
        distance = (actual.to(torch.float64) - expected.to(torch.float64)).abs()
        actual = torch.where(distance <= thresholds.OWN_FACTOR.value * uncertainty, expected, actual)
    return bool(compare_values(expected, actual.contiguous(), tolerance_for(expected.dtype)).differences)


def _indices(call: Call, results: Sequence[torch.Tensor], place: int, compiled: torch.Tensor) -> str:
    """Indices are in range, none twice in a sort, and the elements that they name are the values."""
    if not compiled.numel():
        return ""
    if call.arguments.get("dim", 0) is None:  # of all elements
        call = replace(
            call,
            arguments={**call.arguments, "self": call.arguments["self"].reshape(-1), "dim": 0},
            uncertainty=None if call.uncertainty is None else call.uncertainty.reshape(-1),
        )
        results, compiled = [part.reshape(()) for part in results], compiled.reshape(())
    x, dim = call.arguments["self"], dimension(call)
    uncertain = call.uncertainty if x.is_floating_point() else None
    kind = call.func.overloadpacket.__name__
    own = results[-1]
    if len(results) > 1 and place == 0:
        first, second = results[0], compiled
        amount = None if uncertain is None else _at(uncertain, x, dim, own)
        if call.arguments.get("sorted") is False:
            first, order = first.sort(dim)
            second, amount = second.sort(dim).values, None if amount is None else amount.gather(dim, order)
        return "its values are not those of the input in this order" if _differ(first, second, amount) else ""
    lowest, highest = int(compiled.min()), int(compiled.max())
    if lowest < 0 or highest >= max(x.size(dim) if x.dim() else 1, 1):
        return f"index {lowest if lowest < 0 else highest} is outside of 0 to {x.size(dim) - 1}"
    if x.dim() == 0:
        return ""
    own, indices = _along(own, x, dim), _along(compiled, x, dim)
    expected, actual = x.gather(dim, own), x.gather(dim, indices)
    if kind in ("sort", "argsort", "topk"):
        if bool((indices.sort(dim).values.diff(dim=dim) == 0).any()):
            return "one index stands there twice"
        if call.arguments.get("sorted") is False:
            expected, actual = expected.sort(dim).values, actual.sort(dim).values
    if kind in ("cummax", "cummin"):
        reach = torch.arange(x.size(dim)).view([-1 if n == dim else 1 for n in range(x.dim())])
        if bool((indices > reach).any()):
            return "an index lies beyond its own element"
    amount = None if uncertain is None else torch.maximum(uncertain.gather(dim, own), uncertain.gather(dim, indices))
    return "the elements that its indices name are not those of the result" if _differ(expected, actual, amount) else ""


def _at(amounts: torch.Tensor, x: torch.Tensor, dim: int, indices: torch.Tensor) -> torch.Tensor:
    """Return the amounts of the elements that indices name, in the shape of the indices."""
    return amounts.gather(dim, _along(indices, x, dim)).view(indices.shape) if x.dim() else amounts


def _along(part: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a result with the dimension that it has lost."""
    return part.unsqueeze(dim) if part.dim() < x.dim() else part


def _writes(call: Call, results: Sequence[torch.Tensor], place: int, compiled: torch.Tensor) -> str:
    """Each element that is written holds one of the values that were written there."""
    writes = targets(call)
    if writes is None:
        return ""
    positions, values = writes
    wide = wide_dtype(compiled.dtype)
    chosen, values = compiled.reshape(-1)[positions].to(wide), values.to(wide)
    right = chosen == values
    if compiled.is_floating_point() or compiled.is_complex():
        right |= (chosen - values).abs() <= tolerance_for(compiled.dtype).allowed(values.abs())
        right |= chosen.isnan() & values.isnan()
    hits = torch.zeros(compiled.numel(), dtype=torch.int64).scatter_reduce_(0, positions, right.long(), "amax")
    wrong = (hits[positions] == 0).nonzero()
    return f"element {int(positions[wrong[0]])} holds no value that was written there" if len(wrong) else ""


def _set(call: Call, results: Sequence[torch.Tensor], place: int, compiled: torch.Tensor) -> str:
    """The same elements in any order; places of them that name each as often, and how often that is.

    Only of a plain ``unique``.
    """
    if "dim" in call.arguments:
        return ""
    if place:
        return _numbers_of_set(call, results, place, compiled) if compiled.numel() else ""
    return (
        "its elements are not those of the input" if _differ(results[0].sort().values, compiled.sort().values) else ""
    )


def _numbers_of_set(call: Call, results: Sequence[torch.Tensor], place: int, compiled: torch.Tensor) -> str:
    """Places of elements (the second result) lie in the set.

    Each element is named as often as in eager, and counted so.
    """
    count, least = results[0].numel(), int(place > 1)
    lowest, highest = int(compiled.min()), int(compiled.max())
    if lowest < least or (place == 1 and highest >= count):
        return f"{lowest if lowest < least else highest} is no {'place in the set' if place == 1 else 'count'}"
    sides = (part.flatten().bincount(minlength=count) if place == 1 else part for part in (results[place], compiled))
    # Of computed elements it is not known which are equal.
    alike = call.uncertainty is not None or torch.equal(*(side.sort().values for side in sides))
    return "" if alike else "its elements are not named as often as in eager"


def _off(actual: torch.Tensor, expected: torch.Tensor | float, scale: torch.Tensor | float, size: int) -> bool:
    """Return whether two matrices differ by more than the rounding of a decomposition."""
    difference = (actual - expected).abs()
    bound = thresholds.DECOMPOSITION_FACTOR.value * size * torch.finfo(actual.dtype).eps * max(float(scale), 1e-30)
    return not bool((difference <= bound).all())


def _orthonormal(vectors: torch.Tensor) -> bool:
    """Return whether the columns are."""
    return not _off(
        vectors.mH @ vectors, torch.eye(vectors.size(-1), dtype=vectors.dtype), 1.0, max(vectors.shape[-2:])
    )


def _are_others(own: torch.Tensor, compiled: torch.Tensor, matrix: torch.Tensor) -> bool:
    """Return whether values of a decomposition lie outside the tolerance and further apart than its rounding.

    A matrix that is off by a rounding has values that are off by no more than that (H. Weyl's inequality), also the
    small ones.
    """
    return _differ(own, compiled) and _off(compiled, own, own.abs().max(), max(matrix.shape[-2:]))


def _vectors(call: Call, results: Sequence[torch.Tensor], place: int, compiled: torch.Tensor) -> str:
    """Singular and eigenvectors are orthonormal, and the matrix only stretches them."""
    matrix = call.arguments["A"]
    kind = call.func.overloadpacket.__name__
    if not matrix.numel() or not compiled.numel():
        return ""
    if kind == "linalg_qr":
        return _triangular(matrix, place, compiled)
    if kind == "_linalg_svd":
        if place == 1:
            return "these are not its singular values" if _are_others(results[1], compiled, matrix) else ""
        vectors = compiled if place == 0 else compiled.mH
        square = matrix @ matrix.mH if place == 0 else matrix.mH @ matrix
        stretched = results[1] ** 2
    else:
        if place == 0:
            return "these are not its eigenvalues" if _are_others(results[0], compiled, matrix) else ""
        square, vectors, stretched = symmetric_matrix(call), compiled, results[0]
    if not _orthonormal(vectors):
        return "its vectors are not orthonormal"
    main = vectors[..., : stretched.size(-1)]
    off = _off(square @ main, main * stretched.unsqueeze(-2), stretched.abs().max(), max(matrix.shape[-2:]))
    return "its vectors do not belong to the matrix" if off else ""


def _triangular(matrix: torch.Tensor, place: int, compiled: torch.Tensor) -> str:
    """Q is orthonormal and spans the matrix; R is triangular, and its square is the matrix's."""
    size = max(matrix.shape[-2:])
    if place == 0:
        if not _orthonormal(compiled):
            return "Q is not orthonormal"
        spans = not _off(compiled @ (compiled.mH @ matrix), matrix, matrix.abs().max(), size)
        return "" if spans else "Q does not span the matrix"
    if bool((compiled.tril(-1) != 0).any()):
        return "R is not triangular"
    square = matrix.mH @ matrix
    return "R does not belong to the matrix" if _off(compiled.mH @ compiled, square, square.abs().max(), size) else ""


def _pairs(call: Call, results: Sequence[torch.Tensor], place: int, compiled: torch.Tensor) -> str:
    """Eigenvalues are those of the matrix, in any order; eigenvectors have length one and are only stretched."""
    values = results[0]
    size = call.arguments["self"].size(-1)
    if not compiled.numel():
        return ""
    wide = call.arguments["self"].to(compiled.dtype)
    if place == 1:
        image = wide @ compiled
        stretched = compiled * (compiled.conj() * image).sum(-2, keepdim=True)
        lengths = compiled.abs().square().sum(-2).sqrt()
        off = _off(image, stretched, wide.abs().max(), size) or _off(lengths, 1.0, 1.0, size)
        return "its vectors do not belong to the matrix" if off else ""
    gaps = (compiled.unsqueeze(-1) - values.unsqueeze(-2)).abs()
    near = torch.maximum(gaps.amin(-1).max(), gaps.amin(-2).max())
    off = _off(near, 0.0, values.abs().max(), thresholds.EIGENVALUE_FACTOR.value * size)
    return "these are not its eigenvalues" if off else ""


DEFINITIONS: Mapping[str, Definition] = {
    "indices": _indices,
    "set": _set,
    "writes": _writes,
    "vectors": _vectors,
    "pairs": _pairs,
}
"""By the ``definition`` of a ``Freedom``."""


def _named(call: Call, results: Sequence[torch.Tensor], parts: Mapping[int, torch.Tensor]) -> str:
    """The values are the elements that the indices name."""
    x, dim = call.arguments["self"], dimension(call)
    if not {0, 1} <= parts.keys() or not x.dim() or not parts[1].numel():
        return ""
    values, indices = (_along(parts[place], x, dim) for place in (0, 1))
    amount = None if call.uncertainty is None else call.uncertainty.expand_as(x).gather(dim, indices)
    differ = _differ(x.gather(dim, indices) + 0, values + 0, amount)  # either zero may stand for both
    return "its values are not the elements that its indices name" if differ else ""


def _grouped(call: Call, results: Sequence[torch.Tensor], parts: Mapping[int, torch.Tensor]) -> str:
    """Each place (the second result) names an element equal to the input's; counts (the third) are those of the
    elements."""
    x, dim = call.arguments["self"], call.arguments.get("dim")
    members, places, counts = (parts.get(place, x.new_empty(0)) for place in range(3))
    if not x.numel():
        return ""
    sizes = [part.size(way) for part, way in ((members, dim or 0), (counts, 0)) if part.numel()]
    if not places.numel():
        differ = len(sizes) == 2 and call.uncertainty is None and not _are_counted(x, members, counts, dim)
        return "its counts are not those of its elements" if differ else ""
    if sizes and (int(places.min()) < 0 or int(places.max()) >= min(sizes)):
        return "a place lies outside of its elements"
    if counts.numel() and not torch.equal(places.flatten().bincount(), counts):
        return "its counts are not those of its places"
    if not members.numel():
        return ""
    named = members[places] if dim is None else members.index_select(dim, places)
    differ = named.shape != x.shape or _differ(x + 0, named + 0, call.uncertainty)  # either zero stands for both
    return "the elements that its places name are not those of the input" if differ else ""


def _are_counted(x: torch.Tensor, members: torch.Tensor, counts: torch.Tensor, dim: int | None) -> bool:
    """Return whether each member stands in ``x`` as often as its count says; NaN equals nothing, and stands there
    once."""
    both = torch.cat([x.reshape(-1), members]) if dim is None else torch.cat([x, members], dim)
    _, groups, numbers = torch.unique(both, return_inverse=True, return_counts=True, dim=dim)
    return bool(torch.equal((numbers[groups[-counts.numel() :]] - 1).clamp_min(1), counts))


def _product(call: Call, results: Sequence[torch.Tensor], parts: Mapping[int, torch.Tensor]) -> str:
    """Q R, or U S Vh, is the matrix. Values and vectors of a symmetric one are in a fixed order."""
    matrix = call.arguments["A"]
    last = {"linalg_qr": 1, "_linalg_svd": 2}.get(call.func.overloadpacket.__name__, 0)
    if not last or not {0, last} <= parts.keys() or not parts[0].numel() or not parts[last].numel():
        return ""
    left, right = parts[0], parts[last]
    if last == 2:
        values = parts.get(1, results[1])
        left, right = left[..., : values.size(-1)] * values.unsqueeze(-2), right[..., : values.size(-1), :]
    off = _off(left @ right, matrix, matrix.abs().max(), max(matrix.shape[-2:]))
    return f"{'Q @ R' if last == 1 else 'U @ diag(S) @ Vh'} is not the matrix" if off else ""


def _stretched(call: Call, results: Sequence[torch.Tensor], parts: Mapping[int, torch.Tensor]) -> str:
    """The matrix stretches each eigenvector by the eigenvalue of the same place."""
    if not {0, 1} <= parts.keys() or not parts[1].numel():
        return ""
    values, vectors = parts[0], parts[1]
    matrix = call.arguments["self"].to(vectors.dtype)
    off = _off(matrix @ vectors, vectors * values.unsqueeze(-2), matrix.abs().max(), matrix.size(-1))
    return "its vectors do not belong to the eigenvalues of their places" if off else ""


def _scaled(call: Call, results: Sequence[torch.Tensor], parts: Mapping[int, torch.Tensor]) -> str:
    """A mantissa times two to the power of its exponent is the number."""
    if not {0, 1} <= parts.keys():
        return ""
    differ = _differ(call.arguments["self"], torch.ldexp(parts[0], parts[1]), call.uncertainty)
    return "its mantissas and exponents are not those of the numbers together" if differ else ""


JOINTS: Mapping[str, Joint] = {
    "indices": _named,
    "set": _grouped,
    "groups": _grouped,
    "vectors": _product,
    "pairs": _stretched,
    "mantissas": _scaled,
}
"""What holds for several results of one call together, by the ``definition`` of a ``Freedom``."""
