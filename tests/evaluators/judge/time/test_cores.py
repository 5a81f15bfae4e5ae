"""Where a measurement on few threads runs: real processes, real cores."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from evaluators.judge.time.cores import CoresError, CoreShare, choose, cpu_ns, pin, quietest_cores
from tests.evaluators.judge.running import running

TWO_THREADS = "import threading; e = threading.Event(); threading.Thread(target=e.wait, daemon=True).start()\n"
WAIT = "print(flush=True); input()"


def test_the_quietest_cores_are_taken_and_of_equals_the_last() -> None:
    assert choose(1, {0: 3, 1: 0, 2: 9, 3: 0}, lambda _: ()) == {3}
    assert choose(2, {0: 3, 1: 0, 2: 9, 3: 1}, lambda _: ()) == {1, 3}


def test_a_core_whose_sibling_is_busy_is_not_quiet() -> None:
    assert choose(1, {0: 1, 1: 1, 2: 9, 3: 0}, lambda core: (core ^ 1,)) == {1}


def test_cores_of_this_host_are_found() -> None:
    cores = os.sched_getaffinity(0)
    assert quietest_cores(1, among=cores) < cores | {-1}
    assert quietest_cores(len(cores), among=cores) == cores


def test_more_threads_than_there_are_cores_cannot_be_placed() -> None:
    cores = os.sched_getaffinity(0)
    with pytest.raises(CoresError, match=f"gives {len(cores)} cores"):
        quietest_cores(len(cores) + 1, among=cores)


def test_every_thread_of_a_process_is_bound_from_outside() -> None:
    core = min(os.sched_getaffinity(0))
    with running(TWO_THREADS + WAIT) as pid:
        assert pin(pid, {core})
        threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        assert len(threads) == 2
        assert [os.sched_getaffinity(thread) for thread in threads] == [{core}] * 2


def test_a_process_that_is_gone_cannot_be_bound_and_has_computed_nothing() -> None:
    with running(WAIT) as pid:
        pass
    assert not pin(pid, os.sched_getaffinity(0))
    assert cpu_ns(pid) == 0


def test_cpu_time_counts_all_threads_also_those_that_ended() -> None:
    ended = "import threading, time\ndef work():\n    until = time.thread_time() + 0.1\n"
    ended += "    while time.thread_time() < until: pass\n"
    ended += "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    with running(ended + WAIT) as pid:
        assert 0.1e9 < cpu_ns(pid) < 5e9
        before = cpu_ns(pid)
        time.sleep(0)
        assert cpu_ns(pid) - before < 0.1e9


SPINNING = "import threading, time\ndef spin():\n    while True: pass\n"


def test_a_process_on_its_one_core_uses_no_more_than_that_has() -> None:
    core = min(os.sched_getaffinity(0))
    program = SPINNING + f"import os; os.sched_setaffinity(0, {{{core}}})\nprint(flush=True); spin()"
    with running(program) as pid:
        assert used_for_a_tenth_of_a_second(pid, cores=1) == ""


def test_a_process_that_computes_beside_its_calls_has_used_too_much() -> None:
    with running(SPINNING + "print(flush=True); spin()") as pid:
        share = CoreShare(pid, 1)
        share.begin()
        time.sleep(0.2)
        share.end(1_000_000)
        assert "more than the core it is bound to" in share.excess()


def used_for_a_tenth_of_a_second(pid: int, *, cores: int) -> str:
    share = CoreShare(pid, cores)
    share.begin()
    begun = time.perf_counter_ns()
    time.sleep(0.1)
    share.end(time.perf_counter_ns() - begun)
    return share.excess()
