"""Sums of consecutive rows, from one offset to the next; a segment may be empty, and rows may lie far apart."""

import triton
import triton.language as tl


@triton.jit
def segment_sum_kernel(x_ptr, offsets_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    first = tl.load(offsets_ptr + segment)
    last = tl.load(offsets_ptr + segment + 1)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(first, last):
        total += tl.load(x_ptr + tl.cast(row, tl.int64) * stride + column, mask=inside, other=0).to(tl.float32)
    tl.store(out_ptr + segment * columns + column, total, mask=inside)
