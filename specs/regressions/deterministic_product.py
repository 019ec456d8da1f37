"""A model that changes a global switch of torch for part of its work."""

import torch


class Product(torch.nn.Module):
    """A product with ones, plus 1 if it was made under deterministic algorithms, else minus 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The switch is off again afterwards, whatever happens."""
        torch.use_deterministic_algorithms(True)
        try:
            product = torch.nn.functional.linear(x, torch.ones(4, 4))
            sign = torch.tensor(1.0 if torch.are_deterministic_algorithms_enabled() else -1.0)
        finally:
            torch.use_deterministic_algorithms(False)
        return product + sign
