"""Whether a process that does not answer works, waits, or is kept from working."""

from __future__ import annotations

import select

from evaluators.judge.time.disturbance import Starving, cpu_s
from tests.evaluators.judge.programs import program

BUSY = "import os; print(flush=True); os.sched_setaffinity(0, {core})\nwhile True: pass"
IDLE = BUSY.replace("\n", "; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n")
SLEEPS = """
import time
print(flush=True)
while True:
    time.sleep(0.1)
    end = time.monotonic() + 0.02
    while time.monotonic() < end: pass
"""
LIMIT_S = 0.5


def starved_after_the_limit(pid: int) -> bool:
    starving = Starving(pid)
    for pause_s in starving.pauses_s(LIMIT_S):
        select.poll().poll(pause_s * 1000)
        starving.look()
    return starving.is_starved(LIMIT_S)


def test_the_pauses_are_the_limit_together_and_nobody_knows_the_moments() -> None:
    with program("print(flush=True); input()") as pid:
        one, other = (Starving(pid).pauses_s(LIMIT_S) for _ in range(2))
    assert abs(sum(one) - LIMIT_S) < 1e-9
    assert one != other


def test_a_process_that_waits_is_not_starved() -> None:
    with program("print(flush=True); input()") as pid:
        assert not starved_after_the_limit(pid)


def test_a_process_that_gives_way_to_another_on_its_core_is_starved() -> None:
    with program(IDLE) as modest, program(BUSY):
        assert starved_after_the_limit(modest)


def test_a_process_that_has_had_half_of_a_core_is_not_starved() -> None:
    with program(BUSY) as greedy:
        starving = Starving(greedy)
        begun_s = cpu_s(greedy)
        while cpu_s(greedy) - begun_s < LIMIT_S / 2:
            starving.look()
        assert not starving.is_starved(LIMIT_S)


def test_a_process_that_sleeps_between_its_spells_of_work_is_not_starved() -> None:
    with program(SLEEPS) as sleeper:
        before_s = cpu_s(sleeper)
        assert not starved_after_the_limit(sleeper)
        assert cpu_s(sleeper) > before_s, "it is there, and works"


def test_a_process_that_is_gone_is_not_starved() -> None:
    with program("print(flush=True); input()") as pass_by:
        pass
    assert not starved_after_the_limit(pass_by)
