"""softmax(q k^T / sqrt(d)) v without the matrix in memory: blocks of keys, the maximum and the sum corrected as they come."""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, queries, keys, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    within = tl.arange(0, D)
    q_inside = row[:, None] < queries
    q = tl.load(q_ptr + head * queries * D + row[:, None] * D + within[None, :], mask=q_inside, other=0.0)
    top = tl.full([BLOCK_Q], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_Q], dtype=tl.float32)
    # Inside a compiled graph Inductor hands over Python's floats as float64, which what a loop carries must not become.
    scale = tl.cast(scale, tl.float32)
    out = tl.zeros([BLOCK_Q, D], dtype=tl.float32)
    for start in range(0, keys, BLOCK_K):
        key = start + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + head * keys * D + key[None, :] * D + within[:, None], mask=key[None, :] < keys, other=0.0)
        v = tl.load(v_ptr + head * keys * D + key[:, None] * D + within[None, :], mask=key[:, None] < keys, other=0.0)
        seen = key[None, :] < keys
        if CAUSAL:
            seen = seen & (key[None, :] <= row[:, None])
        score = tl.where(seen, tl.dot(q, k, input_precision="ieee") * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp(score - higher[:, None])
        correction = tl.exp(top - higher)
        total = total * correction + tl.sum(weight, axis=1)
        out = out * correction[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        top = higher
    tl.store(out_ptr + head * queries * D + row[:, None] * D + within[None, :], out / total[:, None], mask=q_inside)
