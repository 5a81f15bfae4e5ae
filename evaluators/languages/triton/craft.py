"""Triton, compiled for a GPU or interpreted."""

from __future__ import annotations

from evaluators.hardware.roofline import Hardware

RULES = """\
- Write Triton kernels (`@triton.jit`) and the Python function that launches them, in one file.
- Import torch, triton, triton.language and math, nothing else. torch is there for shapes, views and `torch.empty`
  workspaces on the outputs' device; no operator of it may compute anything.
- Blocks have sizes that are powers of two and known when a kernel is compiled: mask what lies outside the tensors.
- `tl.dot` takes blocks of 16 or more in each dimension. On float32 it rounds its operands to tf32 unless it is told
  `input_precision="ieee"` (or `"tf32x3"`, faster and nearly as exact): the tolerance of a float32 task may need that.
- Offsets into large tensors overflow 32 bits: widen the row's number (`.to(tl.int64)`) before multiplying."""

EXAMPLE = """\
(The sums of a matrix's rows.) One program sums a row in blocks, in float32 whatever the input's type.

```python path=kernel.py
import triton
import triton.language as tl


@triton.jit
def row_sums(x_ptr, sums_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(sums_ptr + row, tl.sum(total, axis=0))


def ksearch_run(x, sums):
    rows, columns = x.shape
    row_sums[(rows,)](x, sums, columns, BLOCK=1024, num_warps=4)
```"""

_NO_ASYNCHRONOUS_COPY = (
    "There is no asynchronous copy here: `num_stages` above 1 brings nothing. bfloat16 is emulated, float16 is not."
)
_MMA_SYNC = (
    "`tl.dot` becomes mma.sync: 64 to 128 rows and columns with 4 or 8 warps, `num_stages` as far as shared memory "
    "allows."
)
_ADVICE: dict[str, tuple[str, ...]] = {
    "1st": (_NO_ASYNCHRONOUS_COPY,),
    "2nd": (_NO_ASYNCHRONOUS_COPY,),
    "3rd": (_MMA_SYNC,),
    "4th": (_MMA_SYNC,),
    "wgmma": (
        "`tl.dot` becomes wgmma where a block has 64 rows or more and 4 or 8 warps; smaller ones fall back to mma.sync "
        "at some 60 % of its rate. `num_stages` of 3 or 4 for products; kernels bound by memory want more programs "
        "instead.",
    ),
    "tcgen05": (
        "`tl.dot` becomes tcgen05 where a block has 128 rows (64 at least) and its operands come from shared memory; "
        "accumulators live in tensor memory, so large tiles cost few registers.",
    ),
    "5th": (_MMA_SYNC,),
}
"""By the matrix instruction that Triton compiles `tl.dot` to, or the tensor cores' generation."""


def advice(hardware: Hardware) -> tuple[str, ...]:
    """Return advice for this generation."""
    architecture = hardware.architecture
    if architecture is None:
        return ()
    for instruction in ("wgmma", "tcgen05"):
        if any(feature.startswith(instruction) for feature in architecture.has):
            return _ADVICE[instruction]
    return _ADVICE[architecture.tensor_cores[:3]]
