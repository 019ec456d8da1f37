"""Dropout whose mask is a function of a seed and an element's place: Philox 4x32-10, as ``tl.rand`` draws it."""

import torch
import triton
import triton.language as tl


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=inside)


def dropout(x, p, seed):
    """The same in torch. Products of 32 bits wrap in int64, whose upper half is still right under a mask."""
    low = 0xFFFFFFFF
    count = torch.arange(x.numel(), device=x.device)
    zero = torch.zeros_like(count)
    c0, c1, c2, c3 = count, zero, zero, zero
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        b, a = c2 * 0xCD9E8D57, c0 * 0xD2511F53
        c0, c2 = ((b >> 32) & low) ^ c1 ^ k0, ((a >> 32) & low) ^ c3 ^ k1
        c1, c3 = b & low, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    signed = torch.where(c0 >= 1 << 31, c0 - (1 << 32), c0)
    drawn = torch.where(signed < 0, -signed - 1, signed).to(torch.float32) * 4.6566127342e-10
    keep = (drawn > p).reshape(x.shape)
    return torch.where(keep, x / (1 - p), 0.0)
