"""Operators of somebody's own whose results have sizes that only values decide."""

import torch


@torch.library.custom_op("runner_python::positive_twice", mutates_args=())
def positive_twice(x: torch.Tensor) -> torch.Tensor:
    """Return the positive elements, each twice: the size is even."""
    return x[x > 0].repeat_interleave(2)


@positive_twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(2 * torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("runner_python::masked_gradient", mutates_args=())
def masked_gradient(x: torch.Tensor) -> torch.Tensor:
    """Return a copy, whose gradient reaches the elements that are not negative alone."""
    return x.clone()


@masked_gradient.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    index = torch.nonzero(x >= 0).squeeze(1)
    return torch.zeros_like(grad).index_put((index,), grad[index])


masked_gradient.register_autograd(_backward, setup_context=_save)


class EvenSize(torch.nn.Module):
    """Computes with a result of an even size."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the result's double, and the sum of its halves."""
        twice = positive_twice(x)
        return [twice * 2.0, twice.sum()]


class SizesOfBothPasses(torch.nn.Module):
    """The backward is given a number of the forward, and has a size of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a product of a copy that has a gradient of its own, and of the number of positive elements."""
        count = torch.nonzero(x > 0).shape[0]
        return torch.cos(masked_gradient(x)) * count
