"""Timing on one thread: both sides on one core, and no candidate on more."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from messages.tasks import TaskRules
from messages.verdicts import Measured, Outpaced, Rejected
from tests.evaluators.judging import Judging
from tests.evaluators.patience import patiently
from tests.evaluators.words import SLEEPY_TASK, before

pytestmark = pytest.mark.anyio

ONE_THREAD = replace(SLEEPY_TASK, rules=TaskRules(threads=1))
ESCAPE = r"""
    auto burn = [] {
        cpu_set_t all;
        CPU_ZERO(&all);
        for (int core = 0; core < 64; ++core) CPU_SET(core, &all);
        sched_setaffinity(0, sizeof all, &all);
        timespec now, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        end.tv_sec += (end.tv_nsec + 10000000) / 1000000000;
        end.tv_nsec = (end.tv_nsec + 10000000) % 1000000000;
        do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    };
    std::thread one(burn), other(burn);
    one.join();
    other.join();
"""


def test_a_task_on_one_thread_is_another_task() -> None:
    assert ONE_THREAD.task_id != SLEEPY_TASK.task_id
    assert replace(SLEEPY_TASK, rules=TaskRules(threads=0)).task_id == SLEEPY_TASK.task_id


async def test_a_candidate_on_one_thread_says_where_it_ran(judge: Judging) -> None:
    verdict = await judge.measured(before("usleep(2000);"), ONE_THREAD)
    assert any("1 thread, bound to core" in note for note in verdict.notes)
    assert any("control: the reference against itself" in note for note in verdict.notes)


needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is no other core")
ESCAPING = "#include <sched.h>\n#include <time.h>\n" + before(ESCAPE)


@pytest.mark.long
@needs_two_cores
async def test_a_candidate_has_the_time_of_its_core_alone_or_is_rejected(judge: Judging) -> None:
    """On its core it takes two times 10 ms, for which it may as well be given up; on two it would take 10 ms."""
    verdict = await patiently(lambda: judge(ESCAPING, ONE_THREAD))
    if isinstance(verdict, Rejected):
        assert verdict.rule == "threads"
    else:
        assert isinstance(verdict, Measured | Outpaced)
        assert isinstance(verdict, Outpaced) or (verdict.latency_us or 0) > 18_000
        assert verdict.speedup_interval is not None
        assert verdict.speedup_interval.high < 0.5, "SLEEPY_TASK takes 6 ms"
