"""How torch's own tests and its compiler compare elements."""

from __future__ import annotations

from collections.abc import Callable

import torch

from runner.worker.torch_private.doors import Door

default_tolerances: Callable[[torch.dtype], tuple[float, float]] = Door(
    "torch.testing._comparison:default_tolerances", "no element could be compared"
).need()
"""Return rtol and atol of ``torch.testing.assert_close`` for a dtype."""

_SAME = Door("torch._dynamo.utils:same", "what torch's own comparison says is not known")


def ask_same(eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor | None) -> bool | str:
    """Return what ``torch._dynamo.utils.same`` says by its own defaults. It decides nothing; upstream asks for it."""
    same = _SAME.find()
    if same is None:
        return f"torch has no {_SAME.name}"
    try:
        return bool(same(eager, compiled, reference, log_error=lambda *args, **kwargs: None))
    except Exception as error:  # noqa: BLE001  it asserts and raises on what it does not know
        return f"{type(error).__name__}: {str(error)[:200]}"
