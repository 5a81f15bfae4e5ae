"""The work of a GPU in a call of a candidate: kernels, their times and occupancies.

The candidate's own process records it (`evaluators/vendors/nvidia/activities.py`), so it is a claim, and nothing in a
verdict rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
import torch

from evaluators.hardware.vendors.nvidia.activities import Activity, find_cupti
from evaluators.judge.candidate.candidate import CandidateFailedError
from evaluators.judge.candidate.runner import RunnerError
from evaluators.judge.check.wrong import WrongOutputError
from evaluators.judge.protocol import Artifact, Profiled
from evaluators.judge.reference.gpu_baseline import DEVICE
from evaluators.judge.reference.problem import ProblemError
from evaluators.judge.time.gpu import GpuTimer
from evaluators.process.printed import printable
from evaluators.runners.base import PROFILED
from messages.verdicts import ProfiledKernel, WorkloadProfile

_MOST_KERNELS = 24
_MOST_ACTIVITIES = 20_000
_LATEST_NS, _LONGEST_NS = 1 << 62, 10**12
_LARGEST = (1 << 31) - 1
"""Largest size of a grid (CUDA C++ programming guide, "Technical specifications"); everything else is smaller."""
_BUILT_BYTES = 32 << 20
_SAID = frozenset({"build.log", "meta.json"})
_KERNELS_IN_ALL, _FEWEST_KERNELS = 120, 4
"""Most kernels of all workloads together, and fewest of each."""
_NAMES_LOOKED_FOR = 100
_NAME_CHARACTERS = 160
_WARP_THREADS, _REGISTERS_AT_ONCE = 32, 256
"""Registers are allocated to warps in units of this size (CUDA C++ programming guide, "Technical specifications")."""
_REGISTERS = 65536
"""Registers of a multiprocessor, from compute capability 3.7 on."""
_RESERVED_SHARED_BYTES = 1024
"""Shared memory that each block reserves, from compute capability 8.0 on, 9.0 included."""
_BLOCKS = {(8, 6): 16, (8, 9): 24, (12, 0): 24}
"""Most blocks on a multiprocessor at once; others have 32."""
_activities = msgspec.json.Decoder(list[Activity])


class ProfileError(Exception):
    """A record cannot be used."""


class Multiprocessors(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU's multiprocessors, and the resources of each."""

    count: int
    threads: int
    registers: int
    shared_bytes: int
    blocks: int


def profile(timer: GpuTimer, artifact: Artifact) -> Profiled:
    """Record calls of a candidate that was timed; return their profile, or the reason why there is none."""
    if not (cupti := find_cupti()):
        return Profiled(error="CUPTI, by which calls are recorded, is not installed (nvidia-cuda-cupti)")
    try:
        recorded = timer.record(artifact, cupti, activities_in)
        gpu, built = _multiprocessors(), _built(Path(artifact.product).parent)
        most = max(_FEWEST_KERNELS, min(_MOST_KERNELS, _KERNELS_IN_ALL // len(recorded)))
        workloads = tuple(summarize(name, calls, gpu, built, most=most) for name, calls in recorded.items())
    except (CandidateFailedError, WrongOutputError, RunnerError, ProblemError, ProfileError, OSError) as error:
        return Profiled(error=f"no call could be recorded: {error}")
    except torch.OutOfMemoryError:
        return Profiled(error="there is too little memory beside the candidate to have calls recorded")
    return Profiled(workloads=workloads)


def _built(artifact: Path) -> bytes:
    """Return the contents of an artifact's files without its metadata, unless they are too many."""
    contents, left = [], _BUILT_BYTES
    for path in sorted(artifact.rglob("*")):
        if path.is_file() and path.name not in _SAID and path.stat().st_size <= left:
            contents.append(path.read_bytes())
            left -= len(contents[-1])
    return b"\n".join(contents)


def activities_in(printed: bytes) -> list[Activity]:
    """Return the activities of a recorded call."""
    _, is_there, behind = printed.rpartition(PROFILED)
    if not is_there:
        said = printable(printed.decode(errors="replace")).strip().splitlines()
        raise ProfileError(f"nothing was recorded{f': {said[-1][:300]}' if said else ''}")
    try:
        found = _activities.decode(behind.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"the recording cannot be read: {error}") from error
    if len(found) > _MOST_ACTIVITIES:
        raise ProfileError(f"more than {_MOST_ACTIVITIES} things were done in a call")
    if not all(map(_may_be, found)):
        raise ProfileError("the recording is impossible: it has numbers that no GPU has")
    return found


def _may_be(one: Activity) -> bool:
    sizes = (*one.grid, *one.block, one.registers, one.shared_bytes, one.local_bytes)
    is_time = 0 <= one.begun_ns <= one.ended_ns < _LATEST_NS and one.ended_ns - one.begun_ns < _LONGEST_NS
    return is_time and all(0 <= size <= _LARGEST for size in sizes)


def summarize(
    workload: str,
    calls: Sequence[Sequence[Activity]],
    gpu: Multiprocessors,
    built: bytes,
    *,
    most: int = _MOST_KERNELS,
) -> WorkloadProfile:
    """Return the profile of several recorded calls on one workload; kernels with names in `built` are its own."""
    if not all(calls):
        raise ProfileError("in a recorded call the GPU did nothing")
    groups = [_grouped(activities) for activities in calls]
    firsts = {key: first for group in reversed(groups) for key, (first, _, _) in group.items()}
    found = {key: [group.get(key, (first, 0, 0)) for group in groups] for key, first in firsts.items()}
    times_ns = {key: median(took_ns for _, _, took_ns in each) for key, each in found.items()}
    longest = sorted((key for key in times_ns if times_ns[key]), key=lambda key: -times_ns[key])
    if not longest:
        raise ProfileError("the recorded calls have no kernel in common")
    names = [*dict.fromkeys(name for name, _, block in longest if name and any(block))][:_NAMES_LOOKED_FOR]
    own = {name for name in names if name.encode() in built}
    return WorkloadProfile(
        workload=workload,
        span_us=median(_span_ns(activities) for activities in calls) / 1000,
        busy_us=median(_busy_ns(activities) for activities in calls) / 1000,
        kernels_us=sum(times_ns[key] for key in longest) / 1000,
        own_us=sum(times_ns[key] for key in longest if key[0] in own) / 1000,
        kernels=tuple(_kernel(firsts[key], found[key], gpu, is_own=key[0] in own) for key in longest[:most]),
        left_out=len(longest[most:]),
    )


_Key = tuple[str, tuple[int, int, int], tuple[int, int, int]]
_Group = tuple[Activity, int, int]
"""First activity, number, and total ns."""


def _grouped(activities: Sequence[Activity]) -> dict[_Key, _Group]:
    found: dict[_Key, _Group] = {}
    for one in activities:
        first, count, took_ns = found.get((one.name, one.grid, one.block), (one, 0, 0))
        found[one.name, one.grid, one.block] = first, count + 1, took_ns + one.ended_ns - one.begun_ns
    return found


def _kernel(first: Activity, groups: Sequence[_Group], gpu: Multiprocessors, *, is_own: bool) -> ProfiledKernel:
    blocks = _blocks_at_once(first, gpu)
    threads = first.block[0] * first.block[1] * first.block[2]
    grid = first.grid[0] * first.grid[1] * first.grid[2]
    return ProfiledKernel(
        name=_short(first.told),
        launches=int(median(count for _, count, _ in groups)),
        time_us=median(took_ns for _, _, took_ns in groups) / 1000,
        is_own=is_own,
        grid=first.grid,
        block=first.block,
        registers=first.registers,
        shared_bytes=first.shared_bytes,
        local_bytes=first.local_bytes,
        occupancy=min(1.0, blocks * threads / gpu.threads),
        waves=grid / (blocks * gpu.count) if blocks else 0.0,
    )


def _blocks_at_once(kernel: Activity, gpu: Multiprocessors) -> int:
    """Return the number of blocks of a kernel that fit on a multiprocessor at once; 0 for other activities."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    if threads <= 0:
        return 0
    warps = -(-threads // _WARP_THREADS)
    registers = -(-kernel.registers * _WARP_THREADS // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE * warps
    shared_bytes = kernel.shared_bytes + _RESERVED_SHARED_BYTES
    return max(
        0,
        min(
            gpu.blocks,
            gpu.threads // (warps * _WARP_THREADS),
            gpu.registers // max(registers, 1),
            gpu.shared_bytes // shared_bytes,
        ),
    )


def _span_ns(activities: Sequence[Activity]) -> int:
    return max(one.ended_ns for one in activities) - min(one.begun_ns for one in activities)


def _busy_ns(activities: Sequence[Activity]) -> int:
    busy = until = 0
    for one in sorted(activities, key=lambda each: each.begun_ns):
        busy += max(0, one.ended_ns - max(one.begun_ns, until))
        until = max(until, one.ended_ns)
    return busy


def _short(name: str) -> str:
    depth = 0
    for place in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if not depth:
            name = name[:place] if name.endswith(")") else name
            break
    return " ".join(printable(name.removeprefix("void ")).split())[:_NAME_CHARACTERS]


def _multiprocessors() -> Multiprocessors:
    told = torch.cuda.get_device_properties(DEVICE)
    return Multiprocessors(
        count=told.multi_processor_count,
        threads=told.max_threads_per_multi_processor,
        registers=_REGISTERS,
        shared_bytes=told.shared_memory_per_multiprocessor,
        blocks=_BLOCKS.get((told.major, told.minor), 32),
    )
