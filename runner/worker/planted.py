"""Backends that are broken on purpose, to show what a failure looks like and to prove that it is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def toy_compiler(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs every graph as it is, and fails to compile one that holds ``torch.relu``.

    Raises:
        AssertionError: the graph has a relu.
    """
    assert all(node.target is not torch.relu for node in module.graph.nodes), "the toy backend does not know relu"
    forward: Callable[..., Any] = module.forward
    return forward
