"""What is left of processes whose parent died: whoever inherits them also reaps them, sooner or later."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil  # type: ignore[import-untyped]

_PATIENCE_S = 30.0


def still_running(orphans: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Wait for orphans to end, and return those that do not. One that waits to be reaped has ended, and holds nothing.

    Hosts differ in how soon they reap: the first process of a container may take its time, or never do it.
    """
    ends, left = time.monotonic() + _PATIENCE_S, list(orphans)
    while left := [process for process in left if not _has_ended(process)]:
        if time.monotonic() > ends:
            break
        psutil.wait_procs(left, timeout=0.05)
    return left


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
