"""relu(a @ b + bias), a block of the result a program; any strides."""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, bias_ptr, out_ptr, M, N, K,
    a_row, a_column, b_row, b_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a_inside = (row[:, None] < M) & (inner[None, :] < K)
        b_inside = (inner[:, None] < K) & (column[None, :] < N)
        a = tl.load(a_ptr + row[:, None] * a_row + inner[None, :] * a_column, mask=a_inside, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * b_row + column[None, :] * b_column, mask=b_inside, other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    bias = tl.load(bias_ptr + column, mask=column < N, other=0.0).to(tl.float32)
    result = tl.maximum(total + bias[None, :], 0.0)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(out_ptr + row[:, None] * N + column[None, :], result, mask=inside)
