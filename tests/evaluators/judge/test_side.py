"""Whether a side that does not answer works, waits, or is kept from working."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from evaluators.judge.side import cpu_s, is_starved

BUSY = "import os; print(flush=True); os.sched_setaffinity(0, {core})\nwhile True: pass"
IDLE = BUSY.replace("\n", "; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n")
LIMIT_S = 0.3


@contextmanager
def program(code: str) -> Iterator[int]:
    """Run a program that says when it has begun."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-S", "-c", code.replace("{core}", f"{{{core}}}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()


def starved_after_the_limit(pid: int) -> bool:
    used_s, until = cpu_s(pid), time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        os.sched_yield()
    return is_starved(pid, used_s, LIMIT_S)


def test_a_process_that_waits_is_not_starved() -> None:
    with program("print(flush=True); input()") as pid:
        assert not starved_after_the_limit(pid)


def test_a_process_that_gives_way_to_another_on_its_core_is_starved_and_the_other_is_not() -> None:
    with program(IDLE) as modest, program(BUSY) as greedy:
        assert starved_after_the_limit(modest)
        assert not starved_after_the_limit(greedy)


def test_a_process_that_is_gone_is_not_starved() -> None:
    with program("print(flush=True); input()") as pid:
        pass
    assert not is_starved(pid, 0.0, LIMIT_S)
