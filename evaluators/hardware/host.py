"""What this host says of its CPU. Linux only; what it does not tell is 0."""

from __future__ import annotations

import os
import re
from pathlib import Path

from messages.tasks import CpuFacts

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_facts() -> CpuFacts:
    """Return how many cores this process may run on, and the caches of the first."""
    sizes = dict.fromkeys(("1", "2", "3"), 0)
    for folder in sorted(_CACHES.glob("index*")):
        if _told(folder / "type") in ("Data", "Unified"):
            sizes[_told(folder / "level")] = _size(_told(folder / "size"))
    return CpuFacts(cores=len(os.sched_getaffinity(0)), l1_bytes=sizes["1"], l2_bytes=sizes["2"], l3_bytes=sizes["3"])


def _told(path: Path) -> str:
    """Return a line of the system's; empty where a virtual machine hides it."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _UNITS.get(match[2], 1) if match else 0
