"""How much of the data that it made a judge keeps for its next candidates: on a large GPU, all that all are checked on.

What is kept need not be computed again, which in float64 takes longer than anything that a good candidate does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from evaluators.judge.problem import Problem, needed_bytes

_LEAST_ON_HOST, _HOST_ONE_IN = 512 << 20, 16
"""On a host a judge keeps data of a sixteenth of the memory, or this much: there are three of them."""
_TIMED_ON_GPU = 8 << 30
_GPU_SHARE = 0.4
"""Of a GPU's memory; and of what is free beyond what judging takes no more than half: candidates need some."""
_SCRATCH_ONE_IN = 16
"""Part of a GPU's memory that a judge may hold without using it."""


class Room:
    """Memory for the data of all workloads of a task, taken by whoever comes first."""

    def __init__(self, most_bytes: int) -> None:
        """Begin with nothing in it.

        Args:
            most_bytes: how much there may be.
        """
        self._most_bytes = self._free_bytes = most_bytes
        self._is_open = True

    def take(self, size_bytes: int) -> bool:
        """Take so much, if there is so much and it is open."""
        if not self._is_open or size_bytes > self._free_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Give back what was taken."""
        self._free_bytes += size_bytes

    def close(self) -> None:
        """Have nobody take of it for now; whoever took of it gives that back."""
        self._is_open = False

    def reopen(self, *, halved: bool) -> None:
        """Have it taken again: all of it, or half from now on. Where more was taken, the rest waits for its return."""
        self._is_open = True
        lost_bytes = self._most_bytes - self._most_bytes // 2 if halved else 0
        self._most_bytes -= lost_bytes
        self._free_bytes -= lost_bytes


def release_scratch(device: str) -> None:
    """Give memory that computing took back to the GPU: torch keeps it, and the candidate's process needs some, too.

    Args:
        device: of the judge; on a host there is nothing to give back.
    """
    if device == "cpu":
        return
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if unused > torch.cuda.mem_get_info(device)[1] // _SCRATCH_ONE_IN:
        torch.cuda.empty_cache()


def room_for(problems: Sequence[Problem]) -> Room:
    """Return room for what candidates of a task are checked on.

    Args:
        problems: of all its workloads, loaded.
    """
    if problems[0].device == "cpu":
        return Room(host_bytes())
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(problems[0].device)
    return Room(gpu_bytes(free, total, max(map(needed_bytes, problems))))


def gpu_bytes(free: int, total: int, needed: int) -> int:
    """Return how much of a GPU's memory may be taken by data for the next candidates.

    Args:
        free: bytes that nobody has.
        total: bytes that there are.
        needed: bytes that judging one candidate takes.
    """
    return max(0, min(int(_GPU_SHARE * total), (free - needed) // 2))


def timed_bytes(problem: Problem) -> int:
    """Return how much data for timed calls is made before they begin."""
    return host_bytes() if problem.device == "cpu" else _TIMED_ON_GPU


def host_bytes() -> int:
    """Return how much of a host's memory one kind of data may take."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST_ON_HOST, memory_bytes // _HOST_ONE_IN)
