"""A row a program, read once. Rows may lie apart, columns may not."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    raised = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + column, raised / tl.sum(raised, axis=0), mask=inside)
