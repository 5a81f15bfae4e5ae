"""How long a task must take on a device, by its memory traffic and its arithmetic.

After the roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009).

- `roofline(description: TaskDescription, target: Target) -> Roofline | None`
- `roofline_lines(description: TaskDescription, target: Target) -> tuple[str, ...]`, for models

What is a bound here and what is not:

- Memory: what the outputs depend on is read once at least, since the judge overwrites a GPU's L2 before each timed
  call; outputs may still lie in the L2 when the call ends, so only what exceeds it counts. At the data sheet's
  bandwidth that is a lower bound. The task's intake finds out how much of the inputs that is (`bytes_needed`); where it
  did not look, all of them count.
- Arithmetic: operations of the *reference*, at the peak of the fastest unit for the inputs' dtype. Another algorithm
  may need fewer, a lenient tolerance allow a smaller type: an estimate, never a bound.
- CPUs: bandwidth and caches' contents are not known. There is none.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from evaluators.hardware.table import Gpu, Rate, hardware_of
from messages.tasks import DescribedWorkload, Target, TaskDescription, TensorSpec

_FASTEST: dict[str, tuple[Rate, ...]] = {
    "float64": ("fp64",),
    "float32": ("tf32", "fp32"),
    "bfloat16": ("bf16", "fp32"),
    "float16": ("fp16", "fp32"),
    "int8": ("int8", "fp32"),
    "uint8": ("int8", "fp32"),
    "float8_e4m3fn": ("fp8", "bf16", "fp32"),
    "float8_e5m2": ("fp8", "bf16", "fp32"),
}
"""Units that may do the reference's arithmetic on inputs of a dtype, the fastest first."""

_SIZES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


_WORKLOADS_SHOWN = 12


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds."""

    memory_us: float
    """Least time to move what must be moved."""
    compute_us: float
    """Time for the reference's counted operations at the peak; 0: none are counted."""
    rate: Rate | None = None
    """Whose peak that is."""

    @property
    def time_us(self) -> float:
        """The larger of both."""
        return max(self.memory_us, self.compute_us)

    @property
    def limited_by(self) -> Literal["memory", "arithmetic"]:
        """Which of both it is."""
        return "memory" if self.memory_us >= self.compute_us else "arithmetic"

    @property
    def is_bound(self) -> bool:
        """No program that needs all of its inputs can be faster."""
        return self.limited_by == "memory"

    def share(self, latency_us: float) -> float:
        """Return which share of the roofline a latency reaches; above 1 it can be only where this is no bound."""
        return self.time_us / latency_us


def roofline(description: TaskDescription, target: Target) -> Roofline | None:
    """Return a task's roofline; none where the device is not in the table, or nothing is known of the task."""
    gpu = hardware_of(target).gpu
    if gpu is None:
        return None
    return roofline_of(description, gpu)


def roofline_of(work: TaskDescription | DescribedWorkload, gpu: Gpu) -> Roofline | None:
    """Return the roofline of one workload on a GPU."""
    tensors, flops = work.tensors, work.flops
    written = sum(_bytes(tensor) for tensor in tensors if tensor.role == "output")
    read = sum(_bytes(tensor) for tensor in tensors if tensor.role != "output")
    if work.bytes_needed:
        read = min(read, work.bytes_needed - written)
    if not read + written:
        return None
    moved = read + max(0, written - gpu.l2_bytes)
    rate = _rate(tensors, gpu) if flops else None
    return Roofline(
        memory_us=1e6 * moved / gpu.memory_bytes_per_s,
        compute_us=1e6 * flops / gpu.peak[rate] if rate else 0.0,
        rate=rate,
    )


def roofline_lines(description: TaskDescription, target: Target) -> tuple[str, ...]:
    """Say a task's roofline, of several workloads each one's, as items of a list; nothing where there is none."""
    gpu = hardware_of(target).gpu
    if gpu is None:
        return ()
    if not description.workloads:
        found = roofline_of(description, gpu)
        return (f"- {describe_roofline(found)}",) if found else ()
    each = ((one.name, roofline_of(one, gpu)) for one in description.workloads)
    lines = [f"- workload {name}: {describe_roofline(found)}" for name, found in each if found]
    more = len(lines) - _WORKLOADS_SHOWN
    return (*lines[:_WORKLOADS_SHOWN], f"- ({more} more workloads)") if more > 0 else tuple(lines)


def describe_roofline(found: Roofline) -> str:
    """Say it in a sentence, for models and people."""
    word = "lower bound" if found.is_bound else "estimate, no bound: other algorithms may need fewer operations"
    said = f"Roofline: {found.time_us:.2f} us, by {found.limited_by} ({word})."
    if found.rate is None:
        return said
    return (
        f"{said} Moving what must be moved takes {found.memory_us:.2f} us, the reference's counted operations "
        f"{found.compute_us:.2f} us at the {found.rate} peak."
    )


def share_text(found: Roofline, latency_us: float) -> str:
    """Say how near a latency is: `73 % of the roofline (12.40 us, memory)`."""
    return f"{100 * found.share(latency_us):.0f} % of the roofline ({found.time_us:.2f} us, {found.limited_by})"


def _rate(tensors: tuple[TensorSpec, ...], gpu: Gpu) -> Rate | None:
    """Return the fastest unit for the largest floating, else the largest, tensor that is read."""
    inputs = [tensor for tensor in tensors if tensor.role != "output"]
    floating = [tensor for tensor in inputs if "float" in tensor.dtype] or inputs
    largest = max(floating, key=_bytes, default=None)
    wanted = _FASTEST.get(largest.dtype, ()) if largest else ()
    return next((rate for rate in wanted if rate in gpu.peak), None)


def _bytes(tensor: TensorSpec) -> int:
    return math.prod(tensor.shape) * _SIZES.get(tensor.dtype, 0)
