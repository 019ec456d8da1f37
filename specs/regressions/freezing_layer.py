"""A model that freezes a layer in one call and thaws it in the next."""

import torch


class Freezing(torch.nn.Module):
    """Two layers, of which the first is trained in every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The weight of the first layer asks for a gradient if it did not before."""
        self.first.weight.requires_grad_(not self.first.weight.requires_grad)
        return self.second(self.first(x))
