"""Honest kernels that read only what the drawn data needs, faster than memory could deliver all of their inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.local import LocalEvaluator
from messages.events import Built
from messages.tasks import Candidate, SourceFile, TaskSpec
from messages.verdicts import Measured
from tests.evaluators.words import build_job, evaluate_job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU"),
]

DEVICE = "cuda:0"
NO_MEMORY_BYTES_PER_S = 10e12
_END = """

def get_init_inputs():
    return []
"""
TABLE = TaskSpec(
    name="live_rows",
    source="kernelbench",
    text="""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, length):
        live = torch.arange(x.shape[0], device=x.device)[:, None] < length
        return (x * live).sum(0)


def get_inputs():
    return [torch.randn(524288, 256), torch.randint(4096, 16384, (1,))]
"""
    + _END,
)
TABLE_BYTES = 524288 * 256 * 4
LIVE_ROWS = """
import torch
import triton
import triton.language as tl


@triton.jit
def sum_live(x_ptr, length_ptr, y_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    length = tl.load(length_ptr)
    if first < length:
        rows = first + tl.arange(0, ROWS)
        columns = tl.arange(0, COLUMNS)
        x = tl.load(x_ptr + rows[:, None] * COLUMNS + columns[None, :], mask=(rows < length)[:, None], other=0.0)
        tl.atomic_add(y_ptr + columns, tl.sum(x, axis=0))


def ksearch_run(x, length, y):
    y.zero_()
    sum_live[(x.shape[0] // 64,)](x, length, y, ROWS=64, COLUMNS=x.shape[1])
"""
PAGED = TaskSpec(
    name="short_paged_decode",
    source="kernelbench",
    text="""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, cache, table, lengths):
        tokens = cache[table.long()].flatten(1, 2).float()
        scores = torch.einsum("bhd,bnd->bhn", q.float(), tokens) * 128**-0.5
        behind = torch.arange(tokens.shape[1], device=q.device) >= lengths[:, None]
        weights = scores.masked_fill(behind[:, None], float("-inf")).softmax(-1)
        return torch.einsum("bhn,bnd->bhd", weights, tokens).to(q.dtype)


def get_inputs():
    batch, pages, page = 64, 256, 64
    pool = batch * pages
    return [
        torch.randn(batch, 16, 128).bfloat16(),
        torch.randn(pool, page, 128).bfloat16(),
        torch.randperm(pool).view(batch, pages).int(),
        torch.randint(1, 257, (batch,)).int(),
    ]
"""
    + _END,
)
PAGED_BYTES = 64 * 256 * 64 * 128 * 2
DECODE = """
import torch
import triton
import triton.language as tl


@triton.jit
def decode(q_ptr, cache_ptr, table_ptr, lengths_ptr, y_ptr, PAGES, PAGE: tl.constexpr, HEADS: tl.constexpr,
           DIM: tl.constexpr):
    batch = tl.program_id(0)
    length = tl.load(lengths_ptr + batch)
    heads, columns, tokens = tl.arange(0, HEADS), tl.arange(0, DIM), tl.arange(0, PAGE)
    at = batch * HEADS * DIM + heads[:, None] * DIM + columns[None, :]
    q = tl.load(q_ptr + at)
    top = tl.full((HEADS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((HEADS,), dtype=tl.float32)
    acc = tl.zeros((HEADS, DIM), dtype=tl.float32)
    for i in range(0, (length + PAGE - 1) // PAGE):
        page = tl.load(table_ptr + batch * PAGES + i).to(tl.int64)
        k = tl.load(cache_ptr + page * PAGE * DIM + tokens[:, None] * DIM + columns[None, :])
        s = tl.dot(q, tl.trans(k)) * 0.08838834764831845
        s = tl.where((i * PAGE + tokens < length)[None, :], s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, axis=1))
        keep = tl.exp(top - new_top)
        p = tl.exp(s - new_top[:, None])
        total = total * keep + tl.sum(p, axis=1)
        acc = tl.dot(p.to(tl.bfloat16), k, acc * keep[:, None])
        top = new_top
    tl.store(y_ptr + at, (acc / total[:, None]).to(tl.bfloat16))


def ksearch_run(q, cache, table, lengths, y):
    decode[(q.shape[0],)](q, cache, table, lengths, y, table.shape[1], PAGE=cache.shape[1], HEADS=q.shape[1],
                          DIM=q.shape[2])
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("task", "text", "size_bytes"),
    [(TABLE, LIVE_ROWS, TABLE_BYTES), (PAGED, DECODE, PAGED_BYTES)],
    ids=["live rows of a table", "paged decode"],
)
async def test_a_kernel_that_reads_what_it_needs_is_measured_below_the_time_for_whole_tensors(
    task: TaskSpec, text: str, size_bytes: int, tmp_path: Path
) -> None:
    candidate = Candidate(
        language="triton", entry_point="ksearch_run", files=(SourceFile(path="kernel.py", text=text),)
    )
    target = probe_target("triton", DEVICE)
    evaluator = LocalEvaluator(tmp_path / "artifacts", device=DEVICE, slots=1)
    try:
        description = await evaluator.describe_task(task, "triton")
        assert 0 < description.bytes_needed < 0.2 * description.bytes_moved
        own = LocalBuilder(tmp_path / "artifacts")
        built = (await own.build(build_job(candidate, target))).outcome
        assert isinstance(built, Built), built
        verdict = (await evaluator.evaluate(evaluate_job(candidate, built.artifact_id, target, task))).verdict
    finally:
        await evaluator.aclose()
    assert isinstance(verdict, Measured), verdict
    assert verdict.latency_us is not None
    assert verdict.latency_us < size_bytes / NO_MEMORY_BYTES_PER_S * 1e6
