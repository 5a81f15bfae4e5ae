"""The heap of a process that computes with eager operators. Stdlib only."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Have malloc reuse freed memory instead of giving it back to the kernel.

    By default it depends on the heap's chance layout whether each result of an eager operation costs thousands of page
    faults (seen: 1.0 or 6.6 ms for the same call). Reference and candidates get the good case, always.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    libc.mallopt(_M_MMAP_MAX, 0)
