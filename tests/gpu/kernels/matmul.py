"""A product of matrices with bias, GELU and scale behind it: one tile of the result per program, in plain float32."""

import triton
import triton.language as tl

SCALE = 1.25


@triton.jit
def product(x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    x_at = x_ptr + rows[:, None].to(tl.int64) * K + inner[None, :]
    w_at = w_ptr + columns[None, :].to(tl.int64) * K + inner[:, None]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for begun in range(0, K, BK):
        left = K - begun
        x = tl.load(x_at + begun, mask=(rows[:, None] < M) & (inner[None, :] < left), other=0.0)
        w = tl.load(w_at + begun, mask=(columns[None, :] < N) & (inner[:, None] < left), other=0.0)
        sums = tl.dot(x, w, sums, input_precision="ieee")
    v = sums + tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    gelu = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    y_at = y_ptr + rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(y_at, scale * gelu, mask=(rows[:, None] < M) & (columns[None, :] < N))


def ksearch_run(x, weight, bias, y):
    m, k = x.shape
    n = weight.shape[0]
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    product[grid](x, weight, bias, y, m, n, k, SCALE, BM=64, BN=64, BK=16, num_warps=4)
