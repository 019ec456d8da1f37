"""What both halves know of operators by their names: who gives indices, and who may draw random numbers."""

from __future__ import annotations

import re

INDICES = frozenset({"argmax", "argmin", "argsort", "sort", "topk", "mode", "kthvalue", "cummax", "cummin"})
"""Operators that return indices, which ties may order in another way."""

INDICES_BY_DIMENSION = frozenset({"max", "min", "median", "nanmedian"})
"""Those that do when they are given more than the tensor."""

DRAWING = re.compile(
    r"(?i)rand|drop|bernoulli|multinomial|normal|uniform|exponential|cauchy|geometric|poisson|binomial|rrelu|gumbel|"
    r"sample|lowrank|lobpcg|fractional|transformer|scramble|sdpa|attention"
)
"""Words of a model that may draw random numbers. What eager does decides."""
