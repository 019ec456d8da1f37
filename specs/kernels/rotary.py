"""Rotary embedding: the two halves of a row turn against one another by the angles of its position."""

import triton
import triton.language as tl


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, positions, half, x_row, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    position = row % positions
    column = tl.arange(0, BLOCK)
    inside = column < half
    left = tl.load(x_ptr + row * x_row + column, mask=inside).to(tl.float32)
    right = tl.load(x_ptr + row * x_row + half + column, mask=inside).to(tl.float32)
    cos = tl.load(cos_ptr + position * half + column, mask=inside).to(tl.float32)
    sin = tl.load(sin_ptr + position * half + column, mask=inside).to(tl.float32)
    tl.store(out_ptr + row * 2 * half + column, left * cos - right * sin, mask=inside)
    tl.store(out_ptr + row * 2 * half + half + column, right * cos + left * sin, mask=inside)
