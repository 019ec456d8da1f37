"""A model that reads the name of a method which was compiled by itself."""

import torch


class Helper:
    """Something with a method."""

    def add_one(self, x: torch.Tensor) -> torch.Tensor:
        """Bound, then compiled, below."""
        return x + 1


compiled = torch.compile(Helper().add_one, backend="eager")


class Named(torch.nn.Module):
    """Multiplies by the length of the method's name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Only the name is used, the method is not called."""
        return x * len(compiled.__name__)
