"""Operators of somebody's own that write into an argument, take a keyword alone, or have a backward of their own."""

import torch


@torch.library.custom_op("runner_python::fill_rows", mutates_args=("x",), schema="(Tensor(a!) x, float value) -> ()")
def fill_rows(x: torch.Tensor, value: float) -> None:
    """Write a number into every other row."""
    x[::2] = value


def _scaled(x: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    return x * factor.contiguous()


def _like(x: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _tick(count: int) -> None:
    if count != 3:
        raise ValueError(f"tick takes 3, not {count}")


def _nothing(count: int) -> None:
    return None


if not hasattr(torch.ops.runner_python, "scaled"):  # one process may load this file several times
    torch.library.define("runner_python::scaled", "(Tensor x, *, Tensor factor) -> Tensor")
    torch.library.impl("runner_python::scaled", "cpu", _scaled)
    torch.library.register_fake("runner_python::scaled", _like)
    torch.library.define("runner_python::tick", "(int count) -> ()")
    torch.library.impl("runner_python::tick", "default", _tick)
    torch.library.register_fake("runner_python::tick", _nothing)
    torch.library._register_effectful_op("runner_python::tick", torch.library.EffectType.ORDERED)


class Scale(torch.autograd.Function):
    """Divides by one number on the way forward, and by another one on the way back."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, scores: torch.Tensor) -> torch.Tensor:
        """Divide the scores by three."""
        return scores / 3.0

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        """Divide the gradient by five."""
        return grad / 5.0


def write(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Write into a result that is read before and after, and into a view of an input."""
    result = torch.sin(x)
    before = result + 1.0
    fill_rows(result, 7.0)
    after = result * 2.0
    fill_rows(y[1:], -3.0)
    return [before, after, result, torch.cos(y)]


def keyword(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Give fused results as a plain argument and as a keyword."""
    return torch.ops.runner_python.scaled(torch.sin(x), factor=torch.cos(y).t().contiguous().t()) + 1.0


def ticks(x: torch.Tensor) -> torch.Tensor:
    """Call the operator without tensors between two steps."""
    y = torch.sin(x)
    torch.ops.runner_python.tick(3)
    return y + 1.0


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention whose backward has a scale of its own."""
    return torch.softmax(Scale.apply(q @ k.transpose(-2, -1)), dim=-1) @ v
