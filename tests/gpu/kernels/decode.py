"""Attention of one query per head over a cache: parts of the sequence side by side, then their results put together."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend(
    q_ptr, k_ptr, v_ptr, position_ptr, sums_ptr, peaks_ptr, totals_ptr, groups, length, parts, part_length, scale,
    R: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    group, part = tl.program_id(0), tl.program_id(1)
    heads, dims = tl.arange(0, R), tl.arange(0, D)
    q = tl.load(q_ptr + (group * R + heads[:, None]) * D + dims[None, :]) * scale
    last = tl.load(position_ptr + group // groups).to(tl.int32)
    begin = part * part_length
    end = tl.minimum(tl.minimum(begin + part_length, length), last + 1)
    base = group.to(tl.int64) * length * D
    peak = tl.full((R,), -1e30, dtype=tl.float32)
    total = tl.zeros((R,), dtype=tl.float32)
    summed = tl.zeros((R, D), dtype=tl.float32)
    for start in range(begin, end, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        valid = keys < end
        at = base + keys[:, None].to(tl.int64) * D + dims[None, :]
        k = tl.load(k_ptr + at, mask=valid[:, None], other=0.0)
        score = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        score = tl.where(valid[None, :], score, -float("inf"))
        new = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp(score - new[:, None])
        kept = tl.exp(peak - new)
        v = tl.load(v_ptr + at, mask=valid[:, None], other=0.0)
        summed = summed * kept[:, None] + tl.sum(weight[:, :, None] * v[None, :, :], axis=1)
        total = total * kept + tl.sum(weight, axis=1)
        peak = new
    place = (group * R + heads) * parts + part
    tl.store(peaks_ptr + place, peak)
    tl.store(totals_ptr + place, total)
    tl.store(sums_ptr + place[:, None] * D + dims[None, :], summed)


@triton.jit
def put_together(sums_ptr, peaks_ptr, totals_ptr, y_ptr, PARTS: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0)
    parts, dims = tl.arange(0, PARTS), tl.arange(0, D)
    peak = tl.load(peaks_ptr + head * PARTS + parts)
    share = tl.exp(peak - tl.max(peak, axis=0))
    total = tl.sum(share * tl.load(totals_ptr + head * PARTS + parts), axis=0)
    summed = tl.load(sums_ptr + (head * PARTS + parts[:, None]) * D + dims[None, :])
    tl.store(y_ptr + head * D + dims, tl.sum(summed * share[:, None], axis=0) / total)


PARTS = 16


def ksearch_run(q, k, v, position, y):
    batch, heads, dim = q.shape
    groups, length = k.shape[1], k.shape[2]
    sums = torch.empty((batch, heads, PARTS, dim), dtype=torch.float32, device=q.device)
    peaks = torch.empty((batch, heads, PARTS), dtype=torch.float32, device=q.device)
    totals = torch.empty_like(peaks)
    attend[(batch * groups, PARTS)](
        q, k, v, position, sums, peaks, totals, groups, length, PARTS, triton.cdiv(length, PARTS), dim**-0.5,
        R=heads // groups, D=dim, BLOCK=16, num_warps=4,
    )  # fmt: skip
    put_together[(batch * heads,)](sums, peaks, totals, y, PARTS=PARTS, D=dim, num_warps=2)
