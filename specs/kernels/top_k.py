"""The K largest of each row with their places, one after the other."""

import triton
import triton.language as tl


@triton.jit
def top_k_kernel(x_ptr, values_ptr, places_ptr, columns, stride, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    for k in range(K):
        place = tl.argmax(x, axis=0)
        tl.store(values_ptr + row * K + k, tl.max(x, axis=0))
        tl.store(places_ptr + row * K + k, place)
        x = tl.where(column == place, -float("inf"), x)
