"""Layer norm over rows: forward with the statistics that the backward needs; the gradient of x, and those of weight and bias."""

import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, columns, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * columns + column, centred * rstd * w + b, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def input_gradient_kernel(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    normal = tl.where(inside, (x - mean) * rstd, 0.0)
    weighted = dy * w
    along = tl.sum(weighted * normal, axis=0) / columns
    dx = (weighted - tl.sum(weighted, axis=0) / columns - normal * along) * rstd
    tl.store(dx_ptr + row * columns + column, dx, mask=inside)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    dw = tl.zeros([BLOCK], dtype=tl.float32)
    db = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(0, rows):
        x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        dw += dy * (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row)
        db += dy
    tl.store(dw_ptr + column, dw, mask=inside)
    tl.store(db_ptr + column, db, mask=inside)
