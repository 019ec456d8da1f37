"""How often each of the bins occurs: programs add to the same counters, and so must do it atomically."""

import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, bins, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=inside & (x >= 0) & (x < bins))
