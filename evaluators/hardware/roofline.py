"""Hardware facts of a target, and the shortest time that its memory and arithmetic allow for a task.

After the roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009).

Which values are bounds:

- Memory: everything that the outputs depend on is read at least once, since the judge overwrites a GPU's L2 before each
  timed call; outputs may still be in the L2 when the call ends, so only the excess counts. At the data sheet's
  bandwidth that is a lower bound. The task's intake measures how much of the inputs that is (`bytes_needed`); without
  that measurement all of them count.
- Arithmetic: operations of the *reference*, at the peak of the fastest unit for the inputs' dtype. Another algorithm
  may need fewer, and a lenient tolerance allow a smaller type: an estimate, never a bound.
- CPUs: bandwidth and the caches' contents are not known, so there is no bound.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from messages.tasks import CpuFacts, DescribedWorkload, Target, TaskDescription, TensorSpec

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_facts() -> CpuFacts:
    """Return the number of cores that this process may run on, and the caches of the first."""
    sizes = dict.fromkeys(("1", "2", "3"), 0)
    for folder in sorted(_CACHES.glob("index*")):
        if _told(folder / "type") in ("Data", "Unified"):
            sizes[_told(folder / "level")] = _cache_bytes(_told(folder / "size"))
    return CpuFacts(cores=len(os.sched_getaffinity(0)), l1_bytes=sizes["1"], l2_bytes=sizes["2"], l3_bytes=sizes["3"])


def _told(path: Path) -> str:
    """Return a line of a system file; empty if a virtual machine hides it."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _cache_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _UNITS.get(match[2], 1) if match else 0


_WORDS = re.compile(r"[A-Za-z0-9]+")
REGISTERS_PER_SM = 65536
"""32-bit registers of a multiprocessor, on every architecture of the table (CUDA C++ Programming Guide)."""
REGISTERS_PER_THREAD = 255

Rate: TypeAlias = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
_RATES: tuple[Rate, ...] = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")


class Architecture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about all GPUs of a compute capability."""

    name: str
    tensor_cores: str
    shared_per_sm: int
    """Bytes."""
    shared_per_block: int
    """Most bytes that a block may request."""
    threads_per_sm: int
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    advice: tuple[str, ...] = ()


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU model."""

    name: str
    words: tuple[str, ...]
    """Words that all occur in the device's name."""
    without: tuple[str, ...] = ()
    """Words that do not occur in it."""
    arch: str
    multiprocessors: int
    l2_bytes: int
    memory_bytes_per_s: float
    """Peak by its data sheet; kernels reach some 90 % of it."""
    peak: dict[Rate, float]
    """FLOP/s by data type, dense."""


class Simd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vector units of a CPU level."""

    simd: str
    lanes_fp32: int


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a target. All None: unknown."""

    device: str
    """The target's name of it."""
    gpu: Gpu | None = None
    """None: this device is not in the table, and only facts of its architecture are known."""
    architecture: Architecture | None = None
    simd: Simd | None = None
    cpu: CpuFacts | None = None


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    arch: dict[str, Architecture]
    gpu: tuple[Gpu, ...]
    cpu: dict[str, Simd]


_TABLE = msgspec.convert(tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8")), _Table)
"""Read on import, since prompts are made in event loops, which must not read files."""


def hardware_of(target: Target) -> Hardware:
    """Return the facts about a target's device; its own row only if name and architecture match."""
    if target.platform == "cuda":
        return Hardware(device=target.device, gpu=_gpu(target), architecture=_TABLE.arch.get(target.arch))
    return Hardware(device=target.device, simd=_TABLE.cpu.get(target.march), cpu=target.cpu)


def describe_hardware(target: Target) -> str:
    """Describe the device for a model: amounts, rates, supported and missing features, in lines."""
    hardware = hardware_of(target)
    if target.platform == "cuda":
        return "\n".join(_gpu_lines(hardware, target.arch))
    built = f"built with -march={target.march} by {target.toolchain}" if target.march else f"run by {target.toolchain}"
    return "\n".join((f"{target.device}; {target.arch}, {built}.", *_cpu_lines(hardware)))


def _gpu(target: Target) -> Gpu | None:
    said = {word.casefold() for word in _WORDS.findall(target.device)}
    for gpu in _TABLE.gpu:
        wanted, unwanted = ({word.casefold() for word in words} for words in (gpu.words, gpu.without))
        if gpu.arch == target.arch and wanted <= said and not unwanted & said:
            return gpu
    return None


def _gpu_lines(hardware: Hardware, arch: str) -> list[str]:
    gpu, architecture = hardware.gpu, hardware.architecture
    lines = [f"{hardware.device} ({arch}{f', {architecture.name}' if architecture else ''})."]
    if gpu is not None:
        rates = ", ".join(f"{rate} {gpu.peak[rate] / 1e12:.4g}" for rate in _RATES if rate in gpu.peak)
        lines.append(
            f"- {gpu.multiprocessors} multiprocessors; {gpu.l2_bytes / 2**20:.0f} MiB of L2; memory at "
            f"{gpu.memory_bytes_per_s / 1e9:,.0f} GB/s at most"
        )
        lines.append(f"- peak in TFLOP/s, dense (fp32 by CUDA cores, narrower types by tensor cores): {rates}")
    elif architecture is not None:
        lines.append("- this very device is not in the table: what follows holds for its architecture")
    if architecture is None:
        return [*lines, "- nothing more is known of this architecture"]
    lines.append(
        f"- per multiprocessor: {architecture.shared_per_sm // 1024} KiB of shared memory, of which a block may have "
        f"{architecture.shared_per_block // 1024} KiB; {REGISTERS_PER_SM // 1024} Ki registers, "
        f"{REGISTERS_PER_THREAD} per thread at most; {architecture.threads_per_sm} threads"
    )
    lines.append(f"- tensor cores: {architecture.tensor_cores}")
    lines.append(f"- has: {'; '.join(architecture.has)}")
    lines.append(f"- lacks: {', '.join(architecture.lacks)}")
    return lines


def _cpu_lines(hardware: Hardware) -> list[str]:
    lines = [f"- vector units: {hardware.simd.simd}"] if hardware.simd else []
    cpu = hardware.cpu
    if cpu is None:
        return lines
    caches = (("L1 data", cpu.l1_bytes), ("L2", cpu.l2_bytes), ("L3", cpu.l3_bytes))
    told = ", ".join(f"{name} {_size(size)}" for name, size in caches if size)
    cores = f"- {cpu.cores} core{'s' if cpu.cores != 1 else ''}, hardware threads included"
    return [*lines, f"{cores}; caches: {told}" if told else cores]


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


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
"""Units for the reference's arithmetic on inputs of a dtype, the fastest first."""

_SIZES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


_WORKLOADS_SHOWN = 12


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds."""

    memory_us: float
    """Least time to move the required bytes."""
    compute_us: float
    """Time for the reference's counted operations at the peak; 0: none are counted."""
    rate: Rate | None = None
    """Source of that peak."""

    @property
    def time_us(self) -> float:
        """The larger of both times."""
        return max(self.memory_us, self.compute_us)

    @property
    def limited_by(self) -> Literal["memory", "arithmetic"]:
        """Name of the larger time."""
        return "memory" if self.memory_us >= self.compute_us else "arithmetic"

    @property
    def is_bound(self) -> bool:
        """True if no program that needs all of its inputs can be faster."""
        return self.limited_by == "memory"

    def share(self, latency_us: float) -> float:
        """Return the share of the roofline that a latency reaches. Above 1 only if the roofline is not a bound."""
        return self.time_us / latency_us


def roofline(description: TaskDescription, target: Target) -> Roofline | None:
    """Return a task's roofline; None if the device is not in the table, or nothing is known of the task."""
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
    """Return a task's roofline as list items, one per workload; none without a roofline."""
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
    """Describe a roofline in a sentence, for models and people."""
    word = "lower bound" if found.is_bound else "estimate, no bound: other algorithms may need fewer operations"
    said = f"Roofline: {found.time_us:.2f} us, by {found.limited_by} ({word})."
    if found.rate is None:
        return said
    return (
        f"{said} Moving what must be moved takes {found.memory_us:.2f} us, the reference's counted operations "
        f"{found.compute_us:.2f} us at the {found.rate} peak."
    )


def share_text(found: Roofline, latency_us: float) -> str:
    """Return a latency relative to the roofline: `73 % of the roofline (12.40 us, memory)`."""
    return f"{100 * found.share(latency_us):.0f} % of the roofline ({found.time_us:.2f} us, {found.limited_by})"


def _rate(tensors: tuple[TensorSpec, ...], gpu: Gpu) -> Rate | None:
    inputs = [tensor for tensor in tensors if tensor.role != "output"]
    floating = [tensor for tensor in inputs if "float" in tensor.dtype] or inputs
    largest = max(floating, key=_bytes, default=None)
    wanted = _FASTEST.get(largest.dtype, ()) if largest else ()
    return next((rate for rate in wanted if rate in gpu.peak), None)


def _bytes(tensor: TensorSpec) -> int:
    return math.prod(tensor.shape) * _SIZES.get(tensor.dtype, 0)
