from __future__ import annotations

import anyio
import pytest

from actors.bus.base import CancelledRunError, Delivery, QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.worker.work import Heartbeats
from tests.contracts.bus_words import QUEUE, RUN

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@pytest.fixture
async def jobs() -> list[Delivery]:
    bus = MemoryBus(lambda _: MemoryStore())
    await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN))
    for number in range(3):
        await bus.submit(QUEUE, b"", msg_id=f"j{number}")
    return [await bus.pull(QUEUE) for _ in range(3)]


async def test_each_job_beats_in_its_own_time_until_it_ends(jobs: list[Delivery]) -> None:
    beats: list[tuple[str, float]] = []

    async def beat(delivery: Delivery) -> None:
        beats.append((delivery.msg_id, anyio.current_time()))

    async def work(job: Delivery, begins: float, takes: float) -> None:
        await anyio.sleep_until(start + begins)
        with heartbeats.keeping(job, anyio.CancelScope()):
            await anyio.sleep(takes)

    async with anyio.create_task_group() as tasks:
        start = anyio.current_time()
        heartbeats = Heartbeats(tasks, 10, beat)
        async with anyio.create_task_group() as working:
            working.start_soon(work, jobs[0], 0, 35)
            working.start_soon(work, jobs[1], 3, 12)
            working.start_soon(work, jobs[2], 4, 9)
        await anyio.sleep(100)
        tasks.cancel_scope.cancel()
    assert [(job, at - start) for job, at in beats] == [("j0", 10), ("j1", 13), ("j0", 20), ("j0", 30)]


async def test_a_beat_that_takes_long_holds_up_no_other_job(jobs: list[Delivery]) -> None:
    beats: list[str] = []

    async def beat(delivery: Delivery) -> None:
        if delivery.msg_id == "j0":
            await anyio.sleep(60)
        beats.append(delivery.msg_id)

    async with anyio.create_task_group() as tasks:
        heartbeats = Heartbeats(tasks, 10, beat)
        scopes = anyio.CancelScope(), anyio.CancelScope()
        with heartbeats.keeping(jobs[0], scopes[0]), heartbeats.keeping(jobs[1], scopes[1]):
            await anyio.sleep(45)
        tasks.cancel_scope.cancel()
    assert beats == ["j1"] * 4


async def test_only_the_job_that_nobody_wants_any_more_is_stopped(jobs: list[Delivery]) -> None:
    async def beat(delivery: Delivery) -> None:
        if delivery.msg_id == "j1":
            raise CancelledRunError("stopped")

    ended: list[str] = []

    async def work(job: Delivery) -> None:
        attempt = anyio.CancelScope()
        with heartbeats.keeping(job, attempt):
            with attempt:
                await anyio.sleep(25)
            ended.append(f"{job.msg_id} {attempt.cancelled_caught}")

    async with anyio.create_task_group() as tasks:
        heartbeats = Heartbeats(tasks, 10, beat)
        async with anyio.create_task_group() as working:
            for job in jobs:
                working.start_soon(work, job)
        tasks.cancel_scope.cancel()
    assert ended[0] == "j1 True"
    assert sorted(ended[1:]) == ["j0 False", "j2 False"]
