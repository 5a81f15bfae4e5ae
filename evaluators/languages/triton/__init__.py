"""Triton: kernels in Python. On the CPU run by Triton's interpreter; on NVIDIA GPUs compiled when built, and timed."""

from __future__ import annotations

from evaluators.languages.base import LanguageSpec
from evaluators.languages.triton import craft
from evaluators.languages.triton.support import TRITON, TRITON_GPU

SPEC = LanguageSpec(
    main_path="kernel.py",
    suffixes=(".py",),
    fences=("python", "py", "python3", "triton"),
    is_native=False,
    supports={"cpu": TRITON, "cuda": TRITON_GPU},
    craft=craft,
    proof="""
import triton
import triton.language as tl


@triton.jit
def add_mean(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    tl.store(y_ptr + row * columns + offsets, 2.0 * x + mean, mask=mask)


def ksearch_run(x, y):
    rows, columns = x.shape
    add_mean[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
""",
    proof_part="2.0 * x",
)
