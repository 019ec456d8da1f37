"""Cross entropy of rows of logits; a row whose target is ``ignored`` costs nothing."""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, classes, stride, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + column, mask=column < classes, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    total = top + tl.log(tl.sum(tl.exp(x - top), axis=0))
    counts = target != ignored
    wanted = tl.load(x_ptr + row * stride + target, mask=counts, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(counts, total - wanted, 0.0))
