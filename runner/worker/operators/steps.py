"""Operators that make a step where their argument crosses a value: comparisons, sorts, rounding to whole numbers,
coins.

Of a computed argument it is not known on which side it lies. The legal runs see it moved by a rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from runner.worker.operators.choices import Call, Choose, Draw, aten, dimension, into, unequal


def compare_rounded(choose: Choose, call: Call, draw: Draw) -> tuple[Any, bool]:
    """Choose by elements that are moved by a rounding, and give the elements themselves for what is chosen."""
    x = call.arguments["self"]
    if not x.is_floating_point():
        return call.run(), False
    if _is_smooth(call):
        return choose(call, draw)
    with _same_numbers(call):
        moved = draw.blur(x, _opposite(call), 0.0 if call.uncertainty is None else call.uncertainty)
        chosen, _ = choose(replace(call, arguments={**call.arguments, "self": moved}), draw)
    own = call.run()
    if isinstance(chosen, torch.Tensor):
        free = unequal(chosen, own)
        return (own.copy_(chosen) if call.func._schema.is_mutable else chosen), free
    if len(chosen) == 2 and x.dim() and chosen[1].dtype == torch.int64:  # values, and where they stand
        indices = chosen[1] if chosen[1].dim() == x.dim() else chosen[1].unsqueeze(dimension(call))
        chosen = into(own, (x.gather(dimension(call), indices).view(chosen[1].shape), chosen[1].clone()))
        return chosen, True
    return chosen, True


def _opposite(call: Call) -> Any:
    """Return what a comparison compares its argument with, of the argument's shape or a number; zero for other
    operators."""
    x, other = call.arguments["self"], call.arguments.get("other", 0)
    if isinstance(other, torch.Tensor) and torch.broadcast_shapes(other.shape, x.shape) != x.shape:
        return 0
    return 0 if isinstance(other, complex) or (isinstance(other, torch.Tensor) and other.is_complex()) else other


def toss_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Toss coins of these probabilities, also where one was moved out of 0 to 1."""
    return call.run(self=call.arguments["self"].clamp(0, 1)), False


def _is_smooth(call: Call) -> bool:
    """Return whether a result moves as its argument does: a cast to a floating dtype, or a quotient that is not
    rounded."""
    given = call.arguments
    if call.func is aten.copy_.default:
        return True  # what is moved would be the memory that is written to
    if call.func is aten._to_copy.default:
        return given["dtype"] is None or given["dtype"].is_floating_point or given["dtype"].is_complex
    return "rounding_mode" in given and given["rounding_mode"] is None


@contextlib.contextmanager
def _same_numbers(call: Call) -> Iterator[None]:
    """Put back the state of the generator that a random operator draws from."""
    if torch.Tag.nondeterministic_seeded not in call.func.tags:
        yield
        return
    x = call.arguments["self"]
    generator = call.arguments.get("generator")
    if generator is None:
        generator = torch.default_generator if x.device.type == "cpu" else torch.cuda.default_generators[x.device.index]
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)
