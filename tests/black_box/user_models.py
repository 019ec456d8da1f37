"""Models of a user, and a script that compiles them: ``tests/black_box/test_capture.py`` captures it."""

import sys

import torch
import torch.nn.functional as F
import torch.utils.checkpoint


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(F.gelu(self.first(x)))


class Attention(torch.nn.Module):
    """A causal mask, dropout, and a residual."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).masked_fill(mask, float("-inf"))
        y = self.drop(torch.softmax(scores, dim=-1)) @ v
        return x + F.softmax(y.transpose(1, 2).flatten(2), -1)


class Convolution(torch.nn.Module):
    """Batch statistics and pooling, over channels that are last."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).mean((-1, -2))


class Dynamic(torch.nn.Module):
    """Sizes that vary: in a view, in a slice, and in arithmetic."""

    def forward(self, x):
        half = x.shape[0] // 2
        return (x.reshape(x.shape[0] * 2, -1) * x.shape[0])[: half + 1], torch.zeros(x.shape[0])


class Broken(torch.nn.Module):
    """A graph break between two graphs."""

    def forward(self, x):
        y = torch.sin(x)
        print("between")
        return torch.cos(y) + x


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(lambda t: torch.tanh(self.layer(t)), x, use_reentrant=False)


class Mixed(torch.nn.Module):
    """Autocast, and a part without gradients."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
        with torch.no_grad():
            scale = torch.sigmoid(x).mean()
        return y.float() * scale


class Tied(torch.nn.Module):
    """Integer inputs, and one weight in two places."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 8)
        self.head = torch.nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, ids):
        self.steps += 1
        return {"logits": self.head(self.embed(ids)), "all": (self.steps * 2, [ids + 1])}


def scale_in_place(x, y, index):
    """Write into an input, and into a view of another one."""
    x.mul_(2)
    y[index] = 1.0
    y[:, 0] += x[:, 0]
    return y.sum(), x[..., None, 1:3]


def write_a_view(a, b):
    """Read a tensor that shares memory with the one that is written."""
    b.mul_(2)
    return a + 1


def main():
    assert sys.argv[1:] == ["--size", "2"], sys.argv
    torch.manual_seed(0)
    torch.compile(Perceptron())(torch.randn(2, 8)).sum().backward()
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.compile(Attention())(torch.randn(2, 5, 8), mask).sum().backward()
    torch.compile(Convolution())(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))
    dynamic = torch.compile(Dynamic(), dynamic=True)
    dynamic(torch.randn(6, 4))
    torch.compile(Broken())(torch.randn(3))
    torch.compile(Checkpointed())(torch.randn(2, 8, requires_grad=True))
    torch.compile(Mixed())(torch.randn(2, 8))
    torch.compile(Tied())(torch.randint(0, 10, (2, 3)))
    base = torch.randn(6, 8)
    torch.compile(scale_in_place)(base[:3].t().contiguous().t()[:, :4], base[3:], torch.tensor([0, 2]))
    torch.compile(write_a_view)(base[:4], base[2:])
    Perceptron().compile()  # never called


def make():
    return Perceptron(), (torch.randn(2, 8),)


class Block(torch.nn.Module):
    """A layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.wide = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 32), torch.nn.GELU())
        self.narrow = torch.nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.narrow(self.wide(x))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.positions = torch.nn.Embedding(50, 16), torch.nn.Embedding(32, 16)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(16, 50)

    def forward(self, ids):
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_transformer():
    return Transformer(), (torch.randint(0, 50, (2, 8)),)


if __name__ == "__main__":
    main()
