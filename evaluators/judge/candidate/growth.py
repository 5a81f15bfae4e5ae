"""Memory and descriptors of a candidate's process that grow with every call: a leak, which ends a long-lived user."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SKIPPED_ONE_IN, _BLOCKS = 4, 4
"""A first quarter of the calls counts as warm-up; of the rest, each quarter must end with more than it began with."""
_FEWEST = 2 * _BLOCKS


class Growth:
    """Memory and descriptors of a process after each of its calls."""

    def __init__(self, pid: int, device_bytes: Callable[[], int] | None = None) -> None:
        self._pid, self._device_bytes = pid, device_bytes
        self._calls: list[int] = []
        self._memory: list[int] = []
        self._descriptors: list[int] = []
        self._on_device: list[int] = []

    def look(self, calls: int) -> None:
        """Look after a timed call, the process's latest of so many, while it is stopped."""
        process = Path(f"/proc/{self._pid}")
        try:
            _, resident, shared, *_ = (process / "statm").read_text(encoding="ascii").split()
            count = os.stat(process / "fd").st_size or len(os.listdir(process / "fd"))  # noqa: PTH116, PTH208
        except OSError:  # it has ended, or hides: whoever calls it next will see
            return
        self._calls.append(calls)
        self._memory.append((int(resident) - int(shared)) * _PAGE_BYTES)
        self._descriptors.append(count)
        if self._device_bytes is not None:
            self._on_device.append(self._device_bytes())

    def notes(self) -> Iterator[str]:
        """Say what grows."""
        for what, values in (("memory", self._memory), ("memory of the GPU", self._on_device)):
            if per_call := steady_growth(values, self._calls):
                yield f"leak: its {what} grows by {per_call / 1024:.0f} KiB per call"
        if per_call := steady_growth(self._descriptors, self._calls):
            yield f"leak: its open file descriptors grow by {per_call:.1f} per call"


def steady_growth(values: Sequence[int], calls: Sequence[int]) -> float:
    """Return by how much values grow per call, if they go on growing to the end; else 0."""
    later = values[len(values) // _SKIPPED_ONE_IN :]
    if len(later) < _FEWEST:
        return 0.0
    last = len(later) - 1
    marks = [later[last * block // _BLOCKS] for block in range(_BLOCKS + 1)]
    if any(end <= begin for begin, end in itertools.pairwise(marks)):
        return 0.0
    return (later[-1] - later[0]) / (calls[-1] - calls[-len(later)])
