"""Triangle multiplication: gated projections, channels first; a product per channel; norm, projection and gate."""

import torch
import triton
import triton.language as tl


@triton.jit
def statistics(z_ptr, rows, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    z = tl.load(z_ptr + rows[:, None] * COUNT + at[None, :])
    mean = tl.sum(z, axis=1) / COUNT
    away = z - mean[:, None]
    return mean, 1.0 / tl.sqrt(tl.sum(away * away, axis=1) / COUNT + 1e-5)


@triton.jit
def project(
    z_ptr, mask_ptr, scale_ptr, shift_ptr, w_ptr, gate_ptr, y_ptr, area, P: tl.constexpr, H: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mean, inverse = statistics(z_ptr, rows, P)
    channels, inner = tl.arange(0, H), tl.arange(0, BK)
    values = tl.zeros((ROWS, H), dtype=tl.float32)
    gates = tl.zeros((ROWS, H), dtype=tl.float32)
    for begun in range(0, P, BK):
        k = begun + inner
        z = tl.load(z_ptr + rows[:, None] * P + k[None, :])
        z = (z - mean[:, None]) * inverse[:, None] * tl.load(scale_ptr + k)[None, :] + tl.load(shift_ptr + k)[None, :]
        values = tl.dot(z, tl.load(w_ptr + channels[None, :] * P + k[:, None]), values, input_precision="ieee")
        gates = tl.dot(z, tl.load(gate_ptr + channels[None, :] * P + k[:, None]), gates, input_precision="ieee")
    result = values * tl.load(mask_ptr + rows)[:, None] / (1.0 + tl.exp(-gates))
    batch, place = rows // area, rows % area
    tl.store(y_ptr + (batch[:, None] * H + channels[None, :]) * area + place[:, None], result)


@triton.jit
def multiply(a_ptr, b_ptr, y_ptr, size, TILE: tl.constexpr, BK: tl.constexpr):
    base = tl.program_id(2).to(tl.int64) * size * size
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, BK)
    sums = tl.zeros((TILE, TILE), dtype=tl.float32)
    for begun in range(0, size, BK):
        k = begun + inner
        a = tl.load(a_ptr + base + i[:, None] * size + k[None, :])
        b = tl.load(b_ptr + base + j[None, :] * size + k[:, None])
        sums = tl.dot(a, b, sums, input_precision="ieee")
    tl.store(y_ptr + base + i[:, None] * size + j[None, :], sums)


@triton.jit
def finish(
    products_ptr, z_ptr, scale_ptr, shift_ptr, gate_ptr, out_scale_ptr, out_shift_ptr, w_ptr, y_ptr, area,
    P: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    batch, place = rows // area, rows % area
    inner = tl.arange(0, BK)
    outputs = tl.arange(0, P)
    hidden = tl.arange(0, H)
    x = tl.load(products_ptr + (batch[:, None] * H + hidden[None, :]) * area + place[:, None])
    middle = tl.sum(x, axis=1) / H
    away = x - middle[:, None]
    spread = 1.0 / tl.sqrt(tl.sum(away * away, axis=1) / H + 1e-5)
    values = tl.zeros((ROWS, P), dtype=tl.float32)
    for begun in range(0, H, BK):
        k = begun + inner
        part = tl.load(products_ptr + (batch[:, None] * H + k[None, :]) * area + place[:, None])
        scale, shift = tl.load(out_scale_ptr + k)[None, :], tl.load(out_shift_ptr + k)[None, :]
        part = (part - middle[:, None]) * spread[:, None] * scale + shift
        values = tl.dot(part, tl.load(w_ptr + outputs[None, :] * H + k[:, None]), values, input_precision="ieee")
    mean, inverse = statistics(z_ptr, rows, P)
    gates = tl.zeros((ROWS, P), dtype=tl.float32)
    for begun in range(0, P, BK):
        k = begun + inner
        z = tl.load(z_ptr + rows[:, None] * P + k[None, :])
        z = (z - mean[:, None]) * inverse[:, None] * tl.load(scale_ptr + k)[None, :] + tl.load(shift_ptr + k)[None, :]
        gates = tl.dot(z, tl.load(gate_ptr + outputs[None, :] * P + k[:, None]), gates, input_precision="ieee")
    tl.store(y_ptr + rows[:, None] * P + outputs[None, :], values / (1.0 + tl.exp(-gates)))


def ksearch_run(
    z, mask, in_scale, in_shift, left, right, left_gate, right_gate, gate, out_scale, out_shift, out, y
):
    batch, size, _, pair = z.shape
    hidden, area = left.shape[0], size * size
    a = torch.empty((batch, hidden, size, size), dtype=torch.float32, device=z.device)
    b, products = torch.empty_like(a), torch.empty_like(a)
    rows = batch * area // 32
    for weights, gates, target in ((left, left_gate, a), (right, right_gate, b)):
        project[(rows,)](
            z, mask, in_scale, in_shift, weights, gates, target, area, P=pair, H=hidden, ROWS=32, BK=16, num_warps=8
        )
    multiply[(size // 64, size // 64, batch * hidden)](a, b, products, size, TILE=64, BK=16, num_warps=4)
    finish[(rows,)](
        products, z, in_scale, in_shift, gate, out_scale, out_shift, out, y, area, P=pair, H=hidden, ROWS=32, BK=16,
        num_warps=8,
    )  # fmt: skip
