"""Workers that are members serve many runs at once, each its share, and leave in order."""

from __future__ import annotations

from collections import Counter

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from actors.bus.base import QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from messages.codec import encode
from tests.actors.builders import Timed, said, waiting, working
from tests.actors.words import build_job, builds, built, card, memory_bus, open_build_run, put_card, shown, submit_build

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_jobs_of_all_runs_are_done_and_told_on_their_own_runs_streams_with_the_workers_name() -> None:
    bus = memory_bus()
    for run_id in ("r1", "r2"):
        await open_build_run(bus, run_id)
        await submit_build(bus, 1, run_id)
    async with working(bus, Timed()):
        for run_id in ("r1", "r2"):
            told = await said(bus, run_id, 1)
            answer = msgspec.structs.replace(built(build_job(1, run_id)), worker="builder-1")
            assert told == {f"{run_id}-x1.r": answer}


async def test_a_run_that_begins_while_workers_wait_is_served_within_two_seconds() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    async with working(bus, handle):
        await anyio.sleep(50)
        await open_build_run(bus, "r2")
        await submit_build(bus, 1, "r2")
        await anyio.sleep(2)
        await submit_build(bus, 1, "r1")
        await anyio.sleep(2)
    assert handle.jobs == ["r2-x1", "r1-x1"]


async def test_a_run_without_its_queue_yet_stops_nobody_and_is_served_when_it_has_one() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await put_card(bus, card("r0"))
    async with working(bus, handle, slots=2):
        await submit_build(bus, 1, "r1")
        await anyio.sleep(5)
        assert handle.jobs == ["r1-x1"]
        await open_build_run(bus, "r0")
        await submit_build(bus, 1, "r0")
        await anyio.sleep(3)
    assert handle.jobs == ["r1-x1", "r0-x1"]


async def test_a_worker_with_nothing_but_an_absent_queue_does_not_spin() -> None:
    bus = CountingPulls(lambda _: MemoryStore())
    await put_card(bus, card("r0"))
    async with working(bus, Timed(), slots=4):
        await anyio.sleep(100)
    assert bus.pulls <= 100 * 4 * 4


class CountingPulls(MemoryBus):
    pulls = 0

    async def pull(self, *queues: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.pulls += 1
        return await super().pull(*queues)


async def test_a_run_whose_queues_are_dropped_in_the_middle_costs_nobody_else_anything() -> None:
    bus, handle = memory_bus(), Timed(takes_s=40.0)
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle) as worker:
        await anyio.sleep(5)
        await bus.delete_run("r1")
        await open_build_run(bus, "r2")
        await submit_build(bus, 1, "r2")
        await said(bus, "r2", 1)
        worker.member.leave()
        await worker.returned.wait()
        assert worker.member.presence.tally.done == 1
    assert handle.jobs == ["r1-x1", "r2-x1"]
    assert handle.begun[1][1] == pytest.approx(10.0, abs=1.0), "dropped at the first heartbeat"


async def test_a_job_of_another_run_than_its_queues_is_dead_lettered_with_the_reason() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await bus.submit(builds("r1"), encode(build_job(1, "r2")), msg_id="r2-x1")
    async with working(bus, handle):
        with anyio.fail_after(10):
            letter = await bus.next_dead_letter("r1")
    assert letter.reason == "it is of run 'r2', in the queue of run 'r1'"
    assert handle.jobs == []


async def test_a_job_under_another_id_than_its_own_is_dead_lettered() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await bus.submit(builds("r1"), encode(build_job(1, "r1")), msg_id="r1-x2")
    async with working(bus, handle):
        with anyio.fail_after(10):
            letter = await bus.next_dead_letter("r1")
    assert letter.reason == "it is job 'r1-x1', submitted as 'r1-x2'"


async def test_a_job_that_was_answered_before_its_worker_died_is_not_done_again() -> None:
    bus, handle = memory_bus(), Timed()
    queue = await open_build_run(bus, "r1")
    job_id = await submit_build(bus, 1, "r1")
    await bus.pull(queue)
    await bus.publish("r1", encode(built(build_job(1, "r1"))), msg_id=f"{job_id}.r")
    async with working(bus, handle) as worker:
        await anyio.sleep(100)
        assert worker.member.presence.tally.redelivered == 1
    assert handle.jobs == []
    assert await waiting(bus, "r1") == []


async def test_a_process_that_proves_itself_takes_nothing_until_it_is_ready() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle, state="proving") as worker:
        await anyio.sleep(60)
        assert handle.jobs == []
        worker.member.ready()
        await anyio.sleep(0.5)
        assert handle.jobs == ["r1-x1"]
        worker.member.unfit("times nothing")
        await submit_build(bus, 2, "r1")
        await anyio.sleep(60)
        assert handle.jobs == ["r1-x1"]


async def test_a_process_that_leaves_finishes_what_it_has_takes_nothing_more_and_returns() -> None:
    bus, handle = memory_bus(), Timed(takes_s=20.0)
    await open_build_run(bus, "r1")
    async with working(bus, handle, slots=3) as worker:
        for number in range(2):
            await submit_build(bus, number, "r1")
        await anyio.sleep(1)
        worker.member.leave()
        await submit_build(bus, 2, "r1")
        await anyio.sleep(5)
        told = await shown(bus)
        assert told is not None
        assert (told.state, len(told.busy)) == ("leaving", 2)
        with anyio.fail_after(15):
            await worker.returned.wait()
        assert worker.member.presence.tally.done == 2
    assert await waiting(bus, "r1") == [("r1-x2", 1)]


async def test_a_job_in_hand_is_shown() -> None:
    bus = memory_bus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, Timed(takes_s=10.0)):
        await anyio.sleep(2)
        told = await shown(bus)
        assert told is not None
        assert [(busy.job_id, busy.run_id) for busy in told.busy] == [("r1-x1", "r1")]


async def test_lines_in_the_log_say_run_job_and_worker() -> None:
    bus = memory_bus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    from structlog.contextvars import merge_contextvars  # noqa: PLC0415

    with capture_logs(processors=[merge_contextvars]) as logs:
        async with working(bus, Timed()):
            await said(bus, "r1", 1)
    (taken,) = [line for line in logs if line["event"] == "job taken"]
    assert (taken["run"], taken["job"], taken["worker"]) == ("r1", "r1-x1", "builder-1")


@pytest.mark.parametrize("weights", [(1, 1), (3, 1)])
@pytest.mark.parametrize("slots", [1, 4])
async def test_a_small_run_beside_one_with_ten_times_the_work_gets_its_share_of_two_evaluators(
    weights: tuple[int, int], slots: int
) -> None:
    bus, handle = memory_bus(), Timed(takes_s=2.0)
    for run_id, weight, jobs in (("small", weights[0], 200), ("large", weights[1], 2000)):
        await open_build_run(bus, run_id, weight=weight)
        for number in range(jobs):
            await submit_build(bus, number, run_id)
    async with working(bus, handle, name="b1", slots=slots), working(bus, handle, name="b2", slots=slots):
        await anyio.sleep(200 / slots)
    done = Counter(job_id.split("-")[0] for job_id in handle.jobs)
    fair = sum(done.values()) * weights[0] / sum(weights)
    assert done["small"] == pytest.approx(fair, rel=0.1)
    assert sum(done.values()) == pytest.approx(200, abs=2 * slots), "no slot was idle"


@pytest.mark.parametrize(("weights", "expected"), [((1, 1), 32), ((3, 1), 48)])
async def test_slots_that_are_free_at_once_are_shared_at_once(weights: tuple[int, int], expected: int) -> None:
    bus, handle = memory_bus(), Timed(takes_s=10.0)
    for run_id, weight in zip(("r1", "r2"), weights, strict=True):
        await open_build_run(bus, run_id, weight=weight)
        for number in range(400):
            await submit_build(bus, number, run_id)
    async with working(bus, handle, slots=64):
        for taken in (64, 128, 192):
            await anyio.sleep(5)
            assert len(handle.jobs) == taken
            latest = Counter(job_id.split("-")[0] for job_id in handle.jobs[-64:])
            assert latest["r1"] == pytest.approx(expected, abs=2)
            await anyio.sleep(5)


async def test_a_run_alone_has_all_workers_and_one_that_comes_its_share_at_once() -> None:
    bus, handle = memory_bus(), Timed(takes_s=2.0)
    await open_build_run(bus, "r1")
    for number in range(400):
        await submit_build(bus, number, "r1")
    async with working(bus, handle, slots=4):
        await anyio.sleep(50)
        assert len(handle.jobs) == pytest.approx(100, abs=8)
        await open_build_run(bus, "r2")
        for number in range(400):
            await submit_build(bus, number, "r2")
        began = len(handle.jobs)
        await anyio.sleep(50)
    since = Counter(job_id.split("-")[0] for job_id in handle.jobs[began:])
    assert since["r2"] == pytest.approx(since["r1"], rel=0.1)


async def test_a_queue_that_was_declared_but_has_no_card_is_not_served() -> None:
    bus, handle = memory_bus(), Timed()
    await bus.open_stream("r1")
    await bus.declare_queue(QueueSpec(name=builds("r1"), run_id="r1"))
    await submit_build(bus, 1, "r1")
    async with working(bus, handle):
        await anyio.sleep(20)
    assert handle.jobs == []
