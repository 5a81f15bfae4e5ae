"""A GPU, as NVIDIA's driver reports it.

- `gpu_facts(device: str) -> GpuFacts`, raises EvaluatorError (permanent), ConfigError

Asked in a short-lived process of its own (`query.py` says why), once per device.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from evaluators.hardware.vendors.nvidia.query import NO_DRIVER, NO_SUCH_GPU
from messages.base import ConfigError, EvaluatorError

_SCRIPT = Path(__file__).with_name("query.py")
_TIMEOUT_S = 60.0
"""The driver of an unused GPU may have to be started first."""
_TRANSFERS_PER_CLOCK = 2


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU."""

    name: str
    """`NVIDIA H200`."""
    uuid: str
    """32 hex digits; the same whatever number the GPU has."""
    capability_major: int
    capability_minor: int
    multiprocessors: int
    sm_clock_khz: int
    """Highest clock of the multiprocessors."""
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    """Shared memory that a block may ask for."""
    cuda_version: int
    """Newest CUDA that the driver can serve: 13000 is 13.0."""

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, `(9, 0)`."""
        return self.capability_major, self.capability_minor

    @property
    def arch(self) -> str:
        """Name of the architecture in messages, `sm_90`."""
        return f"sm_{self.capability_major}{self.capability_minor}"

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak bandwidth of the memory by its clock and bus; what a kernel reaches is some 10 % less."""
        return self.memory_clock_khz * 1e3 * _TRANSFERS_PER_CLOCK * self.memory_bus_bits / 8


def gpu_index(device: str) -> int:
    """Return the driver's number of a device.

    Raises:
        ConfigError: it is not `cuda:0`, `cuda:1`, ….
    """
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index.isdecimal():
        raise ConfigError(f"{device!r} is no GPU: it is cuda:0, cuda:1, …")
    return int(index)


@functools.cache
def gpu_facts(device: str) -> GpuFacts:
    """Return what a GPU is. Blocks for some 0.3 s the first time.

    Args:
        device: `cuda:0`, `cuda:1`, …, as the driver counts those that CUDA_VISIBLE_DEVICES leaves.

    Raises:
        EvaluatorError: there is no driver, or no such GPU.
        ConfigError: it is no GPU's name.
    """
    index = gpu_index(device)
    try:
        asked = subprocess.run(  # noqa: S603 - our own script
            (sys.executable, "-I", "-S", str(_SCRIPT), str(index)),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=dict(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EvaluatorError(f"cannot ask NVIDIA's driver about {device}: {error}", permanent=True) from error
    if asked.returncode != 0:
        raise EvaluatorError(_explain(device, asked.returncode, asked.stderr), permanent=True)
    return msgspec.json.decode(asked.stdout, type=GpuFacts)


def _explain(device: str, code: int, said: str) -> str:
    words = " ".join(said.split())[-300:] or f"exit code {code}"
    if code == NO_DRIVER:
        return f"no NVIDIA driver on this host ({words}): candidates for {device} are measured where a GPU is"
    if code == NO_SUCH_GPU:
        return f"there is no {device} on this host ({words}): `nvidia-smi -L` lists the GPUs; see CUDA_VISIBLE_DEVICES"
    return f"NVIDIA's driver does not work ({words}): `nvidia-smi` may tell more"
