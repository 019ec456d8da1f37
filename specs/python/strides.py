"""Operators of somebody's own that say which strides their argument has, as far as their tag promises eager's."""

import torch


def _strides(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride())


def _order(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(sorted(range(x.dim()), key=x.stride))


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.dim(), dtype=torch.int64)


OPERATORS = {
    tag: torch.library.custom_op(
        f"runner_python::{tag}", function, mutates_args=(), schema="(Tensor x) -> Tensor", tags=getattr(torch.Tag, tag)
    )
    for tag, function in (("needs_exact_strides", _strides), ("needs_fixed_stride_order", _order))
}
for operator in OPERATORS.values():
    operator.register_fake(_like)


class Strides(torch.nn.Module):
    """Looks at what fused loops give."""

    def __init__(self, tag: str) -> None:
        """Take the tag of the operator."""
        super().__init__()
        self.look = OPERATORS[tag]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """Return the strides of two products, of a view, of a part, of a sum with it and of one that is expanded."""
        part = torch.sin(x)[:, :, 1:, ::2]
        column = torch.cos(y[:, :1])
        tensors = [x * y, y * x, torch.sin(x).permute(2, 0, 3, 1), part, part + 1.0, column.expand(y.shape)]
        return [x * y, *(self.look(tensor) for tensor in tensors)]


class Readers(torch.nn.Module):
    """Looks at results that other steps read too, which ask for memory of another order."""

    def __init__(self, tag: str) -> None:
        """Take the tag of the operator."""
        super().__init__()
        self.look = OPERATORS[tag]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """Return a convolution of one result and a concatenation of another one, with their strides before these."""
        wave, product = torch.cos(y), torch.sin(y)
        looked = [self.look(wave)]
        image = torch.nn.functional.conv2d(wave, x[:, :, :2, :2])
        joined = torch.cat([product, y], 1)
        looked.append(self.look(product))
        written = y + 1.0
        return [image, joined, *looked, self.look(written), self.look(x + 1.0)]
