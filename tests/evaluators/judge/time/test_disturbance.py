"""What keeps a process from running is seen from outside: real processes that take a core from each other."""

from __future__ import annotations

import os
import time

from evaluators.judge.time.disturbance import WAITING_NS, Usual, Watch
from tests.evaluators.judge.running import running

CORE = max(os.sched_getaffinity(0))
BUSY = f"import os; os.sched_setaffinity(0, {{{CORE}}}); print(flush=True)\nwhile True: pass"
MANY = f"import os, threading; os.sched_setaffinity(0, {{{CORE}}})\ndef spin():\n    while True: pass\n"
MANY += "for _ in range(3): threading.Thread(target=spin, daemon=True).start()\nprint(flush=True); spin()"
WAIT = "print(flush=True); input()"


def seen(pid: int, until_s: float = 0.2) -> str:
    """Return what a look of a fifth of a second says."""
    watch = Watch(pid, {CORE}, Usual(WAITING_NS))
    watch.begin()
    begun = time.perf_counter_ns()
    time.sleep(until_s)
    return watch.end(time.perf_counter_ns() - begun)


def test_a_process_whose_core_somebody_else_has_as_well_is_seen_waiting() -> None:
    with running(BUSY) as pid, running(BUSY):
        assert "waited" in seen(pid)


def test_a_process_that_waits_for_input_is_not_disturbed() -> None:
    with running(WAIT) as pid:
        assert "waited" not in seen(pid)  # a hypervisor may take the core meanwhile, and that is said


def test_threads_that_wait_for_each_other_are_no_evidence() -> None:
    with running(MANY) as pid:
        assert "waited" not in seen(pid)


def test_threads_that_only_wait_do_not_hide_that_another_one_is_kept_from_running() -> None:
    idle = "import threading\nfor _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    with running(idle + BUSY) as pid, running(BUSY):
        assert "waited" in seen(pid)


def test_threads_that_hardly_compute_do_not_hide_it_either() -> None:
    ticking = "import threading, time\ndef tick():\n    while True: time.sleep(0.001)\n"
    ticking += "for _ in range(3): threading.Thread(target=tick, daemon=True).start()\n"
    with running(ticking + BUSY) as pid, running(BUSY), running(BUSY):
        assert "waited" in seen(pid, 0.5)


def test_a_process_that_is_gone_says_nothing() -> None:
    with running(WAIT) as pid:
        watch = Watch(pid, {CORE}, Usual(WAITING_NS))
        watch.begin()
    assert watch.end(1000) == ""


def test_what_is_usual_follows_the_references_calls_within_bounds() -> None:
    usual = Usual(200)
    assert usual.most_ns == 200
    for _ in range(15):
        usual.add(100)
    assert usual.most_ns == 200
    usual.add(10_000)
    assert usual.most_ns == 200
    for _ in range(15):
        usual.add(220)
    assert usual.most_ns == 330
    for _ in range(15):
        usual.add(10_000)
    assert usual.most_ns == 500
