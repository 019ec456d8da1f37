"""Models of ``torch.nn`` alone, of any depth, for ``bench/cut.py``: ``make_transformer_8()`` has eight blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 16


class Attention(nn.Module):
    """A block of a transformer, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        y = self.before(x)
        query, key, value = (
            layer(y).view(y.shape[0], y.shape[1], 4, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(query @ key.transpose(-2, -1) * 0.5, -1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(y.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Convolution(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, WIDTH, 1)
        self.norm = nn.GroupNorm(4, WIDTH)
        self.gate = nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        y = F.silu(self.norm(self.first(x)))
        y = self.second(F.leaky_relu(y, 0.1))
        scale = torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        return x + y * scale


class Mixer(nn.Module):
    """A block that mixes rows, then columns."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns = nn.Linear(8, 8), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        y = self.norm(x).transpose(1, 2)
        x = x + F.elu(self.rows(y)).transpose(1, 2)
        first, second = self.columns(x).chunk(2, -1)
        return x + torch.cat([torch.tanh(first) * second, first - second], -1)


class Recurrent(nn.Module):
    """A step of an LSTM, written out, over one element of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(2 * WIDTH, 4 * WIDTH)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run it."""
        gate, forget, new, out = self.cell(torch.cat([x, hidden], -1)).chunk(4, -1)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(gate) * torch.tanh(new)
        return torch.sigmoid(out) * torch.tanh(memory), memory


class Stack(nn.Module):
    """Blocks one after another."""

    def __init__(self, kind: str, blocks: int) -> None:
        super().__init__()
        classes = {"transformer": Attention, "conv": Convolution, "mlp": Mixer}
        self.blocks = nn.ModuleList(classes[kind]() for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        for block in self.blocks:
            x = block(x)
        return x


class Sequence(nn.Module):
    """A recurrent cell over the elements of a sequence."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.cell = length, Recurrent()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        hidden = memory = torch.zeros(x.shape[1], WIDTH)
        outputs = []
        for place in range(self.length):
            hidden, memory = self.cell(x[place], hidden, memory)
            outputs.append(hidden)
        return torch.stack(outputs)


def make(kind: str, blocks: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a model and its inputs."""
    torch.manual_seed(0)
    if kind == "rnn":
        return Sequence(blocks), (torch.randn(blocks, 2, WIDTH),)
    shape = (2, WIDTH, 6, 6) if kind == "conv" else (2, 8, WIDTH)
    return Stack(kind, blocks), (torch.randn(shape),)


def __getattr__(name: str) -> Callable[[], Any]:
    head, _, words = name.partition("_")
    kind, _, blocks = words.partition("_")
    if head != "make" or not blocks.isdigit():
        raise AttributeError(name)
    return lambda: make(kind, int(blocks))
