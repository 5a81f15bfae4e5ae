"""Two releases side by side: what an older worker does with a newer job, and an older planner with a newer answer."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from actors.bus.base import QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.worker.member import Member
from actors.worker.taking import FixedQueues
from actors.worker.work import serve
from messages.codec import encode
from messages.commands import BuildCandidate
from messages.events import CandidateBuilt
from messages.presence import Presence
from tests.actors.worker.test_work import QUEUE, RUN, built, job

AT = "2026-01-31T12:00:00+00:00"


def newer(message: BuildCandidate) -> bytes:
    """Return a job as a later release might write it: another version of its tag, another shape."""
    fields = msgspec.msgpack.decode(encode(message))
    return msgspec.msgpack.encode({"type": "build_candidate.v9", "job": fields["job_id"]})


def with_more(message: BuildCandidate) -> bytes:
    """Return a job as a later release might write it: the same version with a field more."""
    return msgspec.msgpack.encode({**msgspec.msgpack.decode(encode(message)), "cache": {"ttl_s": 5}})


async def handle(command: BuildCandidate) -> CandidateBuilt:
    await anyio.sleep(1)
    return built(command)


def member(bus: MemoryBus) -> Member:
    presence = Presence(
        name="builder-a", role="builder", host="h", pid=1, version="0", state="ready", started_at=AT, seen_at=AT
    )
    return Member(bus, presence)


@pytest.fixture
async def bus() -> MemoryBus:
    bus = MemoryBus(lambda _: MemoryStore())
    await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=30, max_deliver=4))
    await bus.open_stream(RUN)
    return bus


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_a_worker_leaves_a_job_of_a_newer_release_to_others_and_keeps_away(bus: MemoryBus) -> None:
    older = member(bus)
    async with anyio.create_task_group() as tasks:

        async def start(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve(
                bus, FixedQueues(QUEUE), handle, expects=BuildCandidate, role="builder", member=older,
                task_status=task_status,
            )  # fmt: skip

        await tasks.start(start)
        await bus.submit(QUEUE, newer(job(1)), msg_id="j1")
        await bus.submit(QUEUE, newer(job(2)), msg_id="j2")
        await anyio.sleep(5)
        left = [await bus.pull(QUEUE) for _ in range(2)]
        assert sorted((delivery.msg_id, delivery.attempt) for delivery in left) == [("j1", 2), ("j2", 1)]
        assert "'build_candidate.v9' is not known to this release" in older.presence.detail
        with anyio.move_on_after(20):
            pytest.fail(f"a dead letter: {await bus.next_dead_letter(RUN)}")
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_a_worker_does_a_job_with_a_field_that_it_does_not_know(bus: MemoryBus) -> None:
    older = member(bus)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: serve(bus, FixedQueues(QUEUE), handle, expects=BuildCandidate, role="builder", member=older)
        )
        await bus.submit(QUEUE, with_more(job(1)), msg_id="j1")
        await anyio.sleep(5)
        assert await bus.find(RUN, "j1.r") is not None
        assert older.presence.tally.done == 1
        tasks.cancel_scope.cancel()
