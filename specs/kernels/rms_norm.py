"""RMS norm over rows; squares are summed in float32 whatever the dtype."""

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, out_ptr, columns, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / columns + eps)
    tl.store(out_ptr + row * columns + column, x * scale * w, mask=inside)
