"""Models that change a setting of torch, and leave it changed."""

import torch


class DefaultDtype(torch.nn.Module):
    """Sets the dtype of new tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result does not depend on the setting."""
        torch.set_default_dtype(torch.float64)
        return x * 2


class Deterministic(torch.nn.Module):
    """Asks for deterministic algorithms."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result does not depend on the setting."""
        torch.use_deterministic_algorithms(True)
        return x * 2


class Autocast(torch.nn.Module):
    """Turns autocast on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result does not depend on the setting."""
        torch.set_autocast_enabled("cpu", True)
        return x * 2


class GradMode(torch.nn.Module):
    """Turns gradients off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result asks for no gradient."""
        torch.set_grad_enabled(False)
        return x * 2


class Suspended(torch.nn.Module):
    """A generator stops inside ``no_grad`` and is never resumed. Python ends it when ``forward`` returns, and so the block."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result asks for no gradient."""

        def multiples():
            with torch.no_grad():
                yield x * 2

        generator = multiples()
        return next(generator)
