"""The facts of `gpus.toml`, found by what a target says of itself. Sources stand in that file.

- `hardware_of(target: Target) -> Hardware`
- `describe_hardware(target: Target) -> str`, for models
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from messages.tasks import CpuFacts, Target

_WORDS = re.compile(r"[A-Za-z0-9]+")
REGISTERS_PER_SM = 65536
"""32-bit registers of a multiprocessor, on every architecture of the table (CUDA C++ Programming Guide)."""
REGISTERS_PER_THREAD = 255

Rate: TypeAlias = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
_RATES: tuple[Rate, ...] = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")


class Architecture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all GPUs of a compute capability have in common."""

    name: str
    tensor_cores: str
    shared_per_sm: int
    """Bytes."""
    shared_per_block: int
    """Bytes that a block may ask for."""
    threads_per_sm: int
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    advice: tuple[str, ...] = ()


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU as it is sold."""

    name: str
    words: tuple[str, ...]
    """All of them stand in the device's name."""
    without: tuple[str, ...] = ()
    """None of them does."""
    arch: str
    multiprocessors: int
    l2_bytes: int
    memory_bytes_per_s: float
    """Peak by its data sheet; kernels reach some 90 % of it."""
    peak: dict[Rate, float]
    """FLOP/s by data type, dense."""


class Simd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the vector units of a CPU level are."""

    simd: str
    lanes_fp32: int


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What the table knows of a target. All null: nothing."""

    device: str
    """As the target names it."""
    gpu: Gpu | None = None
    """Null: this very device is not in the table; only what its architecture says is known."""
    architecture: Architecture | None = None
    simd: Simd | None = None
    cpu: CpuFacts | None = None


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    arch: dict[str, Architecture]
    gpu: tuple[Gpu, ...]
    cpu: dict[str, Simd]


_TABLE = msgspec.convert(tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8")), _Table)
"""Read when this module is imported: prompts are made in event loops, which read no files."""


def hardware_of(target: Target) -> Hardware:
    """Return what is known of the device that a target names; its own row only where name and architecture agree."""
    if target.platform == "cuda":
        return Hardware(device=target.device, gpu=_gpu(target), architecture=_TABLE.arch.get(target.arch))
    return Hardware(device=target.device, simd=_TABLE.cpu.get(target.march), cpu=target.cpu)


def describe_hardware(target: Target) -> str:
    """Tell a model what the device is: amounts, rates, what it has and what it lacks; by lines."""
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
