"""What a timing judge leaves of itself on the cores of the sides. Each case is a process of its own."""

from __future__ import annotations

import subprocess
import sys

TELLING = """
import os, threading
from pathlib import Path

import torch

from evaluators.judge.time.cpu import Ground

torch.set_num_threads(2)
ground = Ground(0)

def others():
    own = threading.get_native_id()
    return [int(path.name) for path in Path("/proc/self/task").iterdir() if int(path.name) != own]

def at_work():
    stats = [Path(f"/proc/self/task/{other}/stat").read_text() for other in others()]
    return any(stat.rpartition(")")[2].split()[0] == "R" for stat in stats)
"""


def told(program: str) -> str:
    """Return what a process says that has a ground on which OpenMP has two threads."""
    return subprocess.run(
        [sys.executable, "-c", TELLING + program], check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()


def test_where_sides_have_no_priority_the_threads_that_swept_are_at_rest_when_one_is_called() -> None:
    """On a busy host a thread may want a core for long, so that one sweep of several has to do."""
    said = told("rests = 0\nfor _ in range(8):\n    ground.sweep()\n    rests += not at_work()\nprint(rests)")
    assert int(said) > 0, "OpenMP's threads still spin"


def test_caches_that_are_larger_than_what_is_read_are_not_called_cold() -> None:
    said = told("ground._sweeper.cache_bytes = 480 << 20\nprint(ground.swept)")
    assert "of 480 MiB of last-level caches: what lies in the rest may be warm" in said
    assert "cold" not in said
