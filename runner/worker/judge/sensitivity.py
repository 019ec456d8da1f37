"""Bounds on rounding in float32: the response of the float64 run to perturbed inputs.

Another order of addition gives another sum. Inductor adds in another order than eager, whose sums are cascaded. Then
eager's own error against float64 does not bound the allowed error: it is smaller by the square root of the count.
The sensitivity does: each input is perturbed by one unit roundoff, up or down at random, and the results are compared.
This is Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic", 1997).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

UNIT = 2.0**-24
"""Unit roundoff of float32."""

FACTOR = 128.0
"""How many times the sensitivity counts as rounding: inputs rounded to 17 bits instead of 24. Naive sums of n numbers are off by up to
about half the square root of n times it (N. J. Higham, "The Accuracy of Floating Point Summation", 1993); measured with
Inductor on the CPU: 22 for 4,096 numbers, 87 for 40,960, 66 for a million, which are added in several lanes."""

PAIRS = 6
"""Draws; each is made up and down. The root mean square of six is below a tenth of what it should be once in a million times."""

SMALL = 2.0**-10
"""Of the largest element of a tensor: what is off by more is no rounding, and not asked about."""

DTYPES = (torch.float32, torch.complex64)
"""Narrower results round more when they are stored than when they are summed; wider ones have no wider reference."""


def perturb(tensors: Iterable[torch.Tensor], draw: int, sign: int) -> None:
    """Multiply every element of floating or complex tensors by 1 plus or minus the unit roundoff, in place.

    ``draw`` chooses which go up; the other ``sign`` (1 or -1) has those go down. A tensor that overlaps itself stays.
    """
    generator = torch.Generator().manual_seed(draw)
    visited: set[int] = set()
    for tensor in tensors:
        if id(tensor) in visited or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        visited.add(id(tensor))
        up = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8).to(torch.float64) * 2 - 1
        try:
            tensor.detach().mul_((1 + sign * UNIT * up).to(tensor.device))
        except RuntimeError:  # an expanded tensor cannot be written into
            continue


def element_sensitivity(exact: torch.Tensor, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return how far each element moves: the root mean square over (up, down) pairs of results, shaped like ``exact``.

    An element has crossed a step (a comparison, a floor) if it does not move up as it moves down. One that is not finite
    has no distance. Both give 0, so that nothing is accepted there.
    """
    squares, smooth = torch.zeros(exact.shape, dtype=torch.float64), torch.ones(exact.shape, dtype=torch.bool)
    for up, down in pairs:
        odd, even = ((up - down) / 2).abs(), ((up + down) / 2 - exact).abs()
        smooth &= odd.isfinite() & (even <= odd / 2)
        squares += odd.square()
    return torch.where(smooth, (squares / len(pairs)).sqrt(), 0.0)


def is_small(eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether both results are off by no more than rounding could explain anywhere.

    All have one shape; ``exact`` is the float64 result.
    """
    finite = exact.isfinite()
    scale = exact[finite].abs().max() if bool(finite.any()) else torch.tensor(0.0)
    sides = (side.to(exact.dtype) for side in (eager, compiled))  # float8 dtypes have no arithmetic
    return all(bool(((side - exact)[finite].abs() <= SMALL * scale).all()) for side in sides)


def explains(
    eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor, response: torch.Tensor, rtol: float, atol: float
) -> bool:
    """Return whether both results lie within the tolerance plus ``FACTOR`` times the sensitivity, everywhere."""
    finite = eager.isfinite() & compiled.isfinite() & exact.isfinite()
    allowed = (atol + rtol * exact.abs() + FACTOR * response)[finite]
    return all(bool(((side - exact)[finite].abs() <= allowed).all()) for side in (eager, compiled))
