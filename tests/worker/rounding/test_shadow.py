"""Shadows hold what float64 would, while the program stays as it is."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from runner.worker.rounding.sensitivity import blur
from runner.worker.rounding.shadow import NoShadow, Shadow, whole
from runner.worker.tensors import wide_dtype

F = torch.nn.functional
torch.manual_seed(0)
X, W, IMAGES = torch.randn(6, 8), torch.randn(8, 8), torch.randn(2, 3, 9, 9)
ATTENTION = torch.nn.MultiheadAttention(8, 2, batch_first=True)
LSTM, GRU = torch.nn.LSTM(8, 5, bidirectional=True), torch.nn.GRU(8, 5)
ENCODER = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

PROGRAMS = {
    "pointwise": lambda x: (x * 0.3 + 1).tanh() / 7,
    "numbers": lambda x: x * x.sum().item() + float(x[0, 0]),
    "integers": lambda x: x[:, 0] + torch.arange(6) / 7 + torch.arange(6).float().mean(),
    "factories": lambda x: x + torch.linspace(0, 1, 8) + torch.full((8,), 0.3) + torch.ones_like(x) / 3,
    "reductions": lambda x: (x.var(0), x.logsumexp(1), x.cumsum(0), torch.median(x)),
    "products": lambda x: torch.einsum("ij,kj->ik", x, x) @ x,
    "out": lambda x: torch.add(x, 0.3, out=torch.empty(0)),
    "foreach": lambda x: torch._foreach_mul([x, x + 1], 0.3),
    "sorted": lambda x: x.sort(dim=1, stable=True).values / 3,
    "chosen": lambda x: torch.where(x > 0.1, x / 3, x.exp()),
    "scattered": lambda x: torch.zeros(6, 8).index_add_(0, torch.tensor([1, 1, 2, 0, 3, 5]), x / 3),
    "complex": lambda x: torch.view_as_real((torch.complex(x, x / 3) * (1 + 2j)).conj() / 3).sum(-1),
    "transform": lambda x: torch.fft.irfft(torch.fft.rfft(x) / 3),
    "factored": lambda x: torch.linalg.solve(x[:, :6] + 10 * torch.eye(6), x),
    "convolution": lambda x: F.conv2d(IMAGES, IMAGES[:, :, :3, :3]) * x[0, 0],
    "pooled": lambda x: F.avg_pool2d(F.max_pool2d(IMAGES / 3, 2), 2) * x[0, 0],
    "normalized": lambda x: F.group_norm(IMAGES, 3) + F.batch_norm(IMAGES, None, None, training=True) + x[0, 0],
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "heads": lambda x: ATTENTION(x[None], x[None], x[None])[0],
    "encoder": lambda x: ENCODER(x[None]),
    "lstm": lambda x: LSTM(x[None])[0],
    "gru": lambda x: GRU(x[None])[0],
    "mapped": lambda x: torch.vmap(lambda row: torch.softmax(row, -1))(x),
    "derived": lambda x: torch.vmap(torch.func.grad(lambda row: row.sin().sum()))(x),
    "pushed": lambda x: torch.func.jvp(torch.sin, (x,), (x / 3,)),
    "sparse": lambda x: (x / 3).to_sparse() @ W,
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[1]]).to_padded_tensor(0.0) / 3,
    "embedded": lambda x: F.embedding(torch.tensor([1, 3]), x) / 3,
    "interpolated": lambda x: F.interpolate(IMAGES, scale_factor=1.7, mode="bilinear") * x[0, 0],
}


def values(results, shadow=None):
    tensors = torch.utils._pytree.tree_leaves(results)
    return [shadow.of(tensor) if shadow is not None else tensor for tensor in tensors]


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_what_the_program_gives_in_float64(name):
    program, modules = PROGRAMS[name], (ATTENTION, LSTM, GRU, ENCODER)
    shadow = Shadow("cpu")
    with torch.no_grad():
        own = program(X)
        with shadow.running():
            result = program(X)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "IMAGES", IMAGES.double())
            patch.setitem(globals(), "W", W.double())
            torch.set_default_dtype(torch.float64)
            try:
                for module in modules:
                    module.double()
                wide = program(X.double())
            finally:
                torch.set_default_dtype(torch.float32)
                for module in modules:
                    module.float()
    assert not shadow.problem
    for tensor, shade, expected, plain in zip(values(result), values(result, shadow), values(wide), values(own)):  # noqa: B905
        assert tensor.dtype == plain.dtype and torch.allclose(tensor, plain, rtol=1e-4, atol=1e-5)
        rounded = 1e-7 if name in ("factories", "integers") else 1e-13  # 0.3 of full and the like
        assert shade.dtype in (torch.float64, torch.complex128)
        assert torch.allclose(shade, expected, rtol=rounded, atol=rounded)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn])
def test_no_rounding_of_the_program_enters(dtype):
    x = (torch.arange(8.0) / 8).to(dtype)
    shadow = Shadow("cpu")
    with shadow.running():
        y = (x.to(torch.float32 if not dtype.is_complex else dtype) / 3).to(dtype)
        z = y.to(torch.complex64 if dtype.is_complex else torch.float32) * 3
    assert torch.allclose(shadow.of(z), x.to(wide_dtype(dtype)), rtol=1e-15)
    assert not torch.equal(z, x.to(z.dtype)) or dtype.is_complex


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_float32_from_halves_is_computed_from_their_shadows(name):
    """Only CUDA's kernels take halves and give float32 so: the operator is called as if by one."""
    func = getattr(torch.ops.aten, name).default
    own, x = func._op, torch.randn(3, 5).half()

    def kernel(x, dim, from_half):
        assert from_half == (x.dtype == torch.float16), "conversion is supported for Half type only"
        return own(x.float() if from_half else x, dim, False)

    shadow = Shadow("cpu")
    with mock.patch.object(func, "_op", kernel), shadow:
        y = shadow.__torch_dispatch__(func, (), (x, 1, True))
    assert y.dtype == torch.float32
    assert torch.equal(shadow.of(y), own(x.double(), 1, False))


def test_writes_reach_all_that_shares_the_memory():
    x = torch.ones(4, 4)
    row, same = x[1], x.t()
    shadow = Shadow("cpu")
    with shadow.running():
        row.div_(3)
        x.float().add_(1)  # x itself
        x.half().add_(1)  # a copy
        same[0].mul_(2)
        x.data[3] = 0.125
    expected = torch.ones(4, 4, dtype=torch.float64)
    expected[1] /= 3
    expected += 1
    expected.t()[0] *= 2
    expected[3] = 0.125
    assert torch.equal(shadow.of(x), expected) and torch.equal(shadow.of(same), expected.t())
    assert torch.equal(shadow.of(row), expected[1]) and torch.allclose(x, expected.float())


def test_memory_that_is_read_as_another_dtype_begins_anew():
    x = torch.full((4,), 1 / 3)
    shadow = Shadow("cpu")
    with shadow.running():
        x.div_(3)
        x.view(torch.int32).add_(1)
        y = x * 1
    assert torch.equal(shadow.of(y), x.double())


def test_memory_is_told_apart_after_its_death(monkeypatch):
    monkeypatch.setattr("runner.worker.rounding.shadow.SWEEP", 4)
    shadow = Shadow("cpu")
    with shadow.running():
        x = torch.zeros(100)
        for step in range(200):
            x = x + 1 / (step + 3)
    exact = sum(1 / (step + 3) for step in range(200))
    assert shadow.of(x)[7].item() == pytest.approx(exact, rel=1e-14)
    assert len(shadow._storages) < 50


@pytest.mark.parametrize(
    ("program", "rounded"),
    [
        (lambda x: x * 2, torch.float32),
        (lambda x: x.half() * 2, torch.float16),
        (lambda x: (x.bfloat16() * 2).double(), torch.bfloat16),
        (lambda x: (x.bfloat16() * 2).double().sin() + x.half(), torch.bfloat16),
        (lambda x: (x * 2).half().float(), torch.float16),
        (lambda x: torch.cat([x.bfloat16().float() * 2, x]), torch.float32),
        (lambda x: x.clone().add_(x.half() * 2), torch.float16),
        (lambda x: (x.half() * 2)[1:].reshape(-1, 1).float(), torch.float16),
        (lambda x: x.half().float(), None),
        (lambda x: torch.stack([x[1:], x[:-1]]), None),
        (lambda x: (x * 2 > 0).half(), None),
        (lambda x: torch.ones(3), None),
    ],
)
def test_the_coarsest_rounding_behind_a_result(program, rounded):
    x, shadow = torch.randn(8), Shadow("cpu")
    with shadow.running():
        result = program(x)
    assert shadow.rounded_in(result) == rounded


def test_gradients_in_every_dtype():
    x = torch.randn(5, 7, requires_grad=True)
    w = torch.randn(7, 7, dtype=torch.bfloat16, requires_grad=True)
    shadow = Shadow("cpu")
    with shadow.running(), torch.autocast("cpu", torch.bfloat16):
        loss = (F.layer_norm(x @ w.float(), (7,)).half().float() * torch.tensor(0.3, dtype=torch.float16)).sin().sum()
        loss.backward()
    p, q = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    exact = (F.layer_norm(p @ q, (7,)) * torch.tensor(0.3, dtype=torch.float16).double()).sin().sum()
    exact.backward()
    for value, reference in ((loss, exact), (x.grad, p.grad), (w.grad, q.grad)):
        assert torch.allclose(shadow.of(value), reference, rtol=1e-12)
    assert w.grad.dtype == torch.bfloat16 and x.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x, 0.5) / 3,
        lambda x: torch.rand_like(x) / 3,
        lambda x: torch.randn(100).half() / 3,
        lambda x: torch.empty(100).uniform_().sqrt(),
        lambda x: torch.bernoulli(x.sigmoid()) / 3,
        lambda x: x[torch.randperm(100)] / 3,
        lambda x: F.alpha_dropout(x, 0.5, training=True),
        lambda x: torch.native_dropout(x, 0.5, True)[0] / 3,
        lambda x: torch.normal(x, 1.0) / 3,
    ],
)
def test_random_numbers_are_the_programs(draw):
    torch.manual_seed(3)
    x = torch.randn(100)
    state = torch.get_rng_state()
    own, generator_state = draw(x), torch.get_rng_state()
    torch.set_rng_state(state)
    shadow = Shadow("cpu")
    with shadow.running():
        result = draw(x)
    assert torch.equal(own, result) and torch.equal(generator_state, torch.get_rng_state()) and not shadow.problem
    assert torch.allclose(shadow.of(result), own.double(), rtol=1e-3 if own.dtype == torch.float16 else 1e-6, atol=1e-6)
    assert not torch.equal(shadow.of(result), own.double())


def test_what_has_none_says_so():
    def problem(program):
        shadow = Shadow("cpu")
        with pytest.raises(NoShadow), shadow.running():
            program(torch.randn(4, 4))
        return shadow.problem

    assert "numpy" in problem(lambda x: x.numpy())
    assert "draws random numbers and computes" in problem(lambda x: F.rrelu(x, training=True))
    assert "raised" in problem(
        lambda x: torch.fake_quantize_per_channel_affine(x, torch.ones(4), torch.zeros(4).int(), 0, 0, 9)
    )


def test_a_kernel_that_writes_below_the_operators_ends_the_run():
    jit = pytest.importorskip("triton.runtime.jit")

    class Kernel(jit.KernelInterface):
        def run(self, x, **options):
            x.numpy()[:] = 3

    def launch(x):
        Kernel()[(1,)](x)
        return x * 2

    original = jit.KernelInterface.__getitem__
    shadow, x = Shadow("cpu"), torch.zeros(4)
    with pytest.raises(NoShadow), shadow.running():
        launch(x)
    assert "Triton" in shadow.problem and jit.KernelInterface.__getitem__ is original
    assert launch(x).tolist() == [6.0] * 4


def test_the_whole_memory_of_a_view():
    x = torch.arange(6.0).reshape(2, 3)
    assert whole(x[1:, 1:]).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] and whole(x, torch.int32).dtype == torch.int32


def test_a_blurred_run_keeps_what_is_written():
    """A batch norm writes to its statistics, though its schema does not say so."""
    shadow = Shadow("cpu", blur(0, 1))
    x, mean, variance = torch.randn(6, 3), torch.zeros(3), torch.ones(3)
    with shadow.running():
        torch.nn.functional.batch_norm(x, mean, variance, training=True)
    wide = shadow.of(mean)
    assert bool(mean.any()) and torch.allclose(wide.float(), mean) and not torch.equal(wide, mean.double())
