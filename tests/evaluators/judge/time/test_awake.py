"""The loops that keep cores awake: they run inside the context, and end with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil  # type: ignore[import-untyped]

from tests.orphans import still_running

PATIENCE_S = 20.0
"""On a busy host what gives way to others takes its time, to die as well."""
PROGRAM = """
import os, sys
from evaluators.judge.time.cores import AwakeCores

cores = AwakeCores(close_fds=())
print(*cores.pids, flush=True)
sys.stdin.readline()
with cores:
    print("awake", flush=True)
    sys.stdin.readline()
print("asleep", flush=True)
sys.stdin.readline()
"""


def states(pids: list[int]) -> set[str]:
    return {psutil.Process(pid).status() for pid in pids}


def comes_true(claim: object) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not claim():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
    return True


def test_cores_are_kept_awake_only_while_asked_and_by_the_lowest_priority() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == len(os.sched_getaffinity(0))
        assert comes_true(lambda: states(pids) == {psutil.STATUS_STOPPED})
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "awake\n"
        assert comes_true(lambda: states(pids) == {psutil.STATUS_RUNNING})
        assert {os.sched_getscheduler(pid) for pid in pids} == {os.SCHED_IDLE}
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "asleep\n"
        assert comes_true(lambda: states(pids) == {psutil.STATUS_STOPPED})
        keepers = [psutil.Process(pid) for pid in pids]
        parent.kill()
    assert still_running(keepers) == []
