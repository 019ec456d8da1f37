"""What a case says of itself, and what a mutant may still say: one variant, and no expectation that a change can make
wrong."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

AXES = ("dtypes", "train", "grad", "dynamic", "autocast", "threads")
"""Keys of a case that may hold several values, of which each variant has one; ``params`` holds such lists by name."""

GRAPHS = frozenset({"change_layout", "call_again", "change_dtype"})
"""Changes of a chain after which Dynamo makes the same graphs."""
GRAPHS_OF_PYTHON = frozenset({"change_layout"})
"""The same of a model in Python. It may count its calls, and may branch by a dtype."""
RECOMPILES = "torch._dynamo.config.error_on_recompile"
"""A flag that says the same as ``expect: {recompiles: 0}``."""
VALUES = frozenset({"change_layout", "call_again", "insert_view"})
"""Changes after which a tolerance still holds."""


def one_variant(parent: Mapping[str, Any], numbers: random.Random) -> dict[str, Any]:
    """Return a copy of a parent with one value of each axis. A mutant is one variant, since only one is tried out."""
    case = copy.deepcopy(dict(parent))
    if "params" in case:
        case["params"] = {name: [numbers.choice(values)] for name, values in case["params"].items()}
    for axis in AXES:
        if isinstance(case.get(axis), list):
            value = numbers.choice(case[axis])
            case[axis] = [value] if axis == "dtypes" else value
    return case


def expects_no_graph(case: Mapping[str, Any]) -> bool:
    """Return whether a case says that nothing of it is compiled."""
    return (case.get("expect") or {}).get("graphs") == 0


def without_outdated(case: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any] | None:
    """Return a changed case without the expectations that may no longer hold.

    None if the parent expects that nothing is compiled: without that expectation the mutant could be VACUOUS. An
    exception stays expected, because trying the mutant out shows whether eager still raises it. ``changes`` are names
    of functions of ``mutations.py``.
    """
    kept = dict(case)
    if not VALUES.issuperset(changes):
        kept.pop("tolerance", None)
    # A change may make one call of a case differ from another: by inputs of its own, or by a state that was changed.
    may_differ = "state" in case or any("inputs" in call for call in case.get("calls", ()))
    if not may_differ and (GRAPHS_OF_PYTHON if "module" in case else GRAPHS).issuperset(changes):
        return kept
    if expects_no_graph(case):
        return None
    for key, stale in (
        ("expect", ("graphs", "graph_breaks", "recompiles")),
        ("compile", ("fullgraph",)),
        ("config", (RECOMPILES,)),
    ):
        if key in kept:
            kept[key] = {name: value for name, value in kept[key].items() if name not in stale}
            if not kept[key]:
                del kept[key]
    return kept
