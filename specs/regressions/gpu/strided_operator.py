"""A model around an operator whose output has its third dimension innermost."""

import torch


@torch.library.custom_op("runner_regressions::time_innermost", mutates_args=())
def time_innermost(x: torch.Tensor) -> torch.Tensor:
    """A copy of a video [batch, channels, time, height, width] in which the frames of a pixel lie side by side."""
    out = _empty(x)
    out.copy_(x)
    return out


@time_innermost.register_fake
def _empty(x: torch.Tensor) -> torch.Tensor:
    batch, channels, time, height, width = x.shape
    sizes = (batch, channels, time, height, width)
    strides = (channels * time * height * width, time, 1, channels * time * width, channels * time)
    return torch.empty_strided(sizes, strides, dtype=x.dtype, device=x.device)


class Upsampled(torch.nn.Module):
    """Doubles a video in every direction, and adds a bias to another."""

    def forward(self, x: torch.Tensor, c: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The first ``time`` frames of the doubled video, and the other with its bias."""
        y = time_innermost(x)
        batch, channels, time, height, width = y.shape
        y = y.unsqueeze(2).repeat_interleave(2, dim=2).reshape(batch, channels // 4, 2, 2, 2, time, height, width)
        y = y.permute(0, 1, 5, 4, 6, 2, 7, 3).reshape(batch, channels // 4, time * 2, height * 2, width * 2)
        z = time_innermost(c).unsqueeze(1) + b.view(1, 1, -1, 1, 1, 1)
        return y[:, :, :time], z
