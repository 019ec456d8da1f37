"""The parts of a file: the order in which people write their keys, and which of them stand on lines of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Style = Literal["fitting", "block", "spaced", "steps", "step", "line"]
"""How a list or a mapping is laid out: on one line where it fits, else in a block (``fitting``); always in a block,
with blank lines between its entries (``spaced``) or without; as a chain or a step of one; on one line however long."""


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of list or mapping.

    ``order`` are the keys in their order; ``...`` stands for all others. ``parts`` are the kinds of the values of some
    keys, ``items`` is that of all other entries.
    """

    style: Style = "fitting"
    order: tuple[str, ...] = ("...",)
    parts: Mapping[str, str] = field(default_factory=dict)
    items: str = "data"


AXES = ("params", "zip", "devices", "train", "grad", "dynamic", "autocast", "threads")
"""The axes of a case. Ids name them in the order in which the case has them, so that nothing may change it."""

ENTRY = (
    "case", "operators", "torch", "stage", "oracle", "error", "signature", "backend", "device", "dtype", "platform",
    "threads", "params", "issue", "reason", "why", "sometimes", "choice", "review",
)  # fmt: skip
"""The keys of an entry of a ledger."""

CASE = (
    "name", "doc", "tags", "links", "requires", "params", "zip", "exclude", "devices", "inputs", "state", "module",
    "chain", "return", "calls", "train", "grad", "dynamic", "autocast", "threads", "dtypes", "param_dtype", "seed",
    "compile", "config", "...", "expect", "tolerance", "strides", "twin", "ignore", "timeout", "memory", "known",
)  # fmt: skip

_CASE_PARTS = {
    "inputs": "inputs", "state": "inputs", "chain": "chain", "calls": "calls", "known": "known",
}  # fmt: skip

PARTS: Mapping[str, Part] = {
    "data": Part(),
    "file": Part(
        "block",
        (
            "suite", "doc", "specs", "select", "backends", "devices", "dtypes", "kernels", "defaults", "ledger",
            "manual", "...", "known", "cases",
        ),
        {"defaults": "defaults", "cases": "cases", "known": "ledger", "backends": "backends"},
    ),
    "cases": Part("spaced", items="case"),
    "case": Part("block", CASE, _CASE_PARTS),
    "defaults": Part("fitting", CASE, _CASE_PARTS),
    "known": Part("block", items="entry"),
    "entry": Part("line", ENTRY),
    "ledger": Part("block", items="draft"),
    "draft": Part("block", ENTRY),
    "inputs": Part(items="input"),
    "input": Part(
        "fitting",
        (
            "values", "view_of", "list", "dict", "file", "python", "shape", "tile", "dtype", "init", "device",
            "requires_grad", "hidden", "layout", "...",
        ),
        {"list": "inputs", "dict": "inputs"},
    ),
    "calls": Part(items="call"),
    "call": Part(parts={"inputs": "inputs"}),
    "chain": Part("steps", items="step"),
    "step": Part(
        "step",
        ("if", "with", "...", "do", "else", "chain", "id", "train", "state", "call", "out"),
        {"do": "chain", "else": "chain", "chain": "chain"},
    ),
    "backends": Part(items="backend"),
    "backend": Part("fitting", ("name", "backend", "...")),
}  # fmt: skip
"""The kinds of lists and mappings by name."""


def ordered(keys: Sequence[str], part: Part) -> list[int]:
    """Return the numbers of keys in their order. Axes keep the order that they have among themselves."""
    ranks = {key: rank for rank, key in enumerate(part.order)}
    others = ranks.get("...", len(ranks))
    numbers = sorted(range(len(keys)), key=lambda number: ranks.get(keys[number], others))
    if "params" not in ranks:
        return numbers
    axes = iter(sorted(number for number in numbers if keys[number] in AXES))
    return [next(axes) if keys[number] in AXES else number for number in numbers]


def with_order(data: Any, name: str = "file") -> Any:
    """Return plain data with each key in its place; ``name`` is that of a kind of ``PARTS``."""
    part = PARTS[name]
    if isinstance(data, list):
        return [with_order(item, part.items) for item in data]
    if not isinstance(data, dict):
        return data
    keys = [*data]
    return {
        keys[number]: with_order(data[keys[number]], part.parts.get(keys[number], part.items))
        for number in ordered(keys, part)
    }
