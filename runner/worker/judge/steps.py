"""Operators that make a step where their argument crosses a value: comparisons, sorts, rounding to whole numbers.

Of a computed argument it is not known on which side it lies. The legal runs see it moved by a rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from runner.worker.judge.choices import Call, Choose, Draw, dimension, into, unequal


def compare_rounded(choose: Choose, call: Call, draw: Draw) -> tuple[Any, bool]:
    """Choose by elements that are moved by a rounding, and give the elements themselves for what is chosen."""
    x, own = call.arguments["self"], call.run()
    if not x.is_floating_point():
        return own, False
    chosen, _ = choose(replace(call, arguments={**call.arguments, "self": draw.blur(x)}), draw)
    if isinstance(chosen, torch.Tensor):
        return chosen, unequal(chosen, own)
    if len(chosen) == 2 and x.dim():  # values, and where they stand
        indices = chosen[1] if chosen[1].dim() == x.dim() else chosen[1].unsqueeze(dimension(call))
        chosen = into(own, (x.gather(dimension(call), indices).view(chosen[1].shape), chosen[1].clone()))
        return chosen, True
    return chosen, True
