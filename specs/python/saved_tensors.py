"""Hooks of saved tensors around a function: plain ones, which autograd calls, and traced ones, which are compiled."""

from collections.abc import Callable

import torch

Hook = Callable[[torch.Tensor], torch.Tensor]


def keep(t: torch.Tensor) -> torch.Tensor:
    """Nothing is changed."""
    return t


def triple(t: torch.Tensor) -> torch.Tensor:
    """A gradient that is linear in this tensor is three times as large."""
    return t * 3.0


def quintuple(t: torch.Tensor) -> torch.Tensor:
    """A gradient that is linear in this tensor is five times as large."""
    return t * 5.0


def negate(t: torch.Tensor) -> torch.Tensor:
    """Twice it gives the tensor again."""
    return -t


PLAIN: dict[str, tuple[Hook, Hook]] = {
    "triple": (keep, triple),
    "quintuple": (keep, quintuple),
    "negate twice": (negate, negate),
}
TRACED = {
    name: (torch.fx.symbolic_trace(pack), torch.fx.symbolic_trace(unpack)) for name, (pack, unpack) in PLAIN.items()
}


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Each gradient is linear in one saved tensor, so that it does not matter which compilers save."""
    return x * w


def curve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compilers choose what they save."""
    return torch.exp(torch.tanh(x @ w)) * torch.sin(x)


class Hooked(torch.nn.Module):
    """The function is a frame of its own, since Dynamo does not trace the context."""

    def __init__(self, function: str, hooks: str, traced: bool) -> None:
        """Take the names of a function and a pair of hooks, and whether these are graphs."""
        super().__init__()
        self.function, self.hooks, self.traced = function, hooks, traced

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Call the function within the hooks."""
        pack, unpack = (TRACED if self.traced else PLAIN)[self.hooks]
        function = product if self.function == "product" else curve
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return function(x, w)
