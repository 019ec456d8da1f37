"""Runs in which nothing that counts has changed: the rules ``deterministic`` and ``batch-invariant``.

A variation changes the caches, the threads, the autotuning or the size of the batch. Where eager keeps its bits under
it, compiled code must keep its own. Where eager's change too, nobody can ask for more, and a note says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.contract.finding import Finding, index_of
from runner.contract.oracles import POLICIES
from runner.worker.program.graph_cache import graph_caches
from runner.worker.program.load import configured
from runner.worker.program.observe import CallRecord, Change, Observation
from runner.worker.program.snapshot import Leaf, elements, map_tensors
from runner.worker.tensors import different_bits, number

Run = Callable[[Change | None], Observation]

AUTOTUNED = "torch._inductor.config.max_autotune"


@dataclass(frozen=True)
class Variation:
    """One way to run again. ``rows`` is the size of the batch, 0 for the whole; ``cached`` says that graphs are stored,
    and loaded if they have been."""

    name: str
    threads: int = 0
    flags: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False
    rows: int = 0

    @property
    def change(self) -> Change | None:
        """Return what makes the inputs shorter, where it does."""
        return cut(self.rows) if self.rows else None

    @property
    def reaches_eager(self) -> bool:
        """Return whether eager's bits may change under it too."""
        return bool(self.threads or self.rows)


def variations(rule: str, sizes: list[int]) -> list[Variation]:
    """Return what a rule asks for. ``sizes`` are those of the batches of all calls."""
    if rule == "batch-invariant":
        least = min(sizes, default=0)
        rows = sorted({1, least // 2} - {0, least}) if least > 1 else []
        return [Variation(f"in a batch of {count}", rows=count) for count in rows]
    return [
        Variation("compiled again, into empty caches", cached=True),
        Variation("from the graphs that were stored", cached=True),
        Variation("with 1 thread", threads=1),
        Variation("with 4 threads", threads=4),
        Variation("autotuned", flags={AUTOTUNED: True}),
    ]


def batch(args: list[Any]) -> int:
    """Return the size of the first dimension of the first tensor that has one; 0 without such a tensor."""
    tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    return int(tensors[0].shape[0]) if tensors else 0


def cut(rows: int) -> Change:
    """Return what keeps the first rows of each tensor whose first dimension is the batch's."""

    def change(args: list[Any]) -> list[Any]:
        size = batch(args)

        def shorten(leaf: torch.Tensor) -> torch.Tensor:
            is_batch = leaf.ndim and leaf.shape[0] == size
            return leaf.detach()[:rows].clone().requires_grad_(leaf.requires_grad) if is_batch else leaf

        return map_tensors(shorten, args)  # type: ignore[no-any-return]

    return change


def vary(
    rule: str, eager: Observation, compiled: Observation, sizes: list[int], run_eager: Run, run_compiled: Run
) -> tuple[list[Finding], list[str]]:
    """Run again under each variation of a rule, and return findings and notes.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    ways = variations(rule, sizes)
    notes = [] if ways else ["no input has a batch of two rows or more"]
    several = len(eager.calls) > 1
    unstable: dict[str, str] = {}  # where eager's bits change, to how it ran
    for way in (way for way in ways if way.reaches_eager):
        with _threads(way.threads):
            again = run_eager(way.change)
        if again.error is not None:
            return [], [f"values: {rule}: {way.name}, eager raises {again.error.summary}"]
        for place, *_ in _differences(eager, again, way.rows, several):
            unstable.setdefault(place, way.name)
    findings: list[Finding] = []
    tag = f"again-{os.urandom(8).hex()}"
    for way in ways:
        with ExitStack() as settings:
            if way.cached and not settings.enter_context(graph_caches(tag)):
                notes.append("this torch stores no graphs")
                continue
            settings.enter_context(configured(way.flags.items()))
            settings.enter_context(_threads(way.threads))
            again = run_compiled(way.change)
        if again.error is not None:
            notes.append(f"{way.name}, nothing is compared: it raised {again.error.summary}")
            continue
        for place, before, after in _differences(compiled, again, way.rows, several):
            if not (way.reaches_eager and place in unstable):
                findings.append(_finding(POLICIES[rule].oracle, way.name, place, before, after))
    if unstable:
        notes.append(f"eager has other bits {next(iter(unstable.values()))}, at {', '.join(unstable)}")
    return findings, [f"values: {rule}: {note}" for note in dict.fromkeys(notes)]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set how many threads an operator uses, if there is a count."""
    original = torch.get_num_threads()
    torch.set_num_threads(count or original)
    try:
        yield
    finally:
        torch.set_num_threads(original)


def _differences(
    first: Observation, second: Observation, rows: int, several: bool
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield the places where two runs have other bits, and both tensors. ``rows`` is the batch of the second run."""
    for call, records in enumerate(zip(first.calls, second.calls, strict=True)):
        for leaf, other in zip(*(_leaves(record, rows) for record in records)):  # noqa: B905  may differ
            before, after = elements(leaf), elements(other)
            if before is None or after is None:
                continue
            if rows and before.ndim:
                before = before[:rows]
            if (before.shape, before.dtype) != (after.shape, after.dtype) or bool(different_bits(before, after).any()):
                yield (f"call {call}, {leaf.path}" if several else leaf.path), before, after


def _leaves(record: CallRecord, rows: int) -> list[Leaf]:
    """Return the tensors of a call: outputs, and gradients but in a smaller batch, where they are other sums."""
    gradients = () if rows else record.gradients.values()
    leaves = [*record.outputs.leaves, *(leaf for leaf in gradients if leaf is not None)]
    return [leaf for leaf in leaves if leaf.metadata is not None]


def _finding(oracle: str, way: str, place: str, before: torch.Tensor, after: torch.Tensor) -> Finding:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return Finding(oracle, f"{way}: shape {list(after.shape)}, before {list(before.shape)}", place)
    wrong = different_bits(before, after)
    worst = int(wrong.nonzero()[0])
    first, second = (number(side.reshape(-1)[worst].item()) for side in (before, after))
    index, count = index_of(worst, before.shape), int(wrong.sum())
    numbers = {"elements": wrong.numel(), "mismatched": count, "worst_index": index, "before": first, "after": second}
    where = f" at {index}" if index else ""
    message = f"{way}: {count} of {wrong.numel()} elements have other bits; {second}, before {first}{where}"
    return Finding(oracle, message, place, numbers)
