"""Connections to a server that is there: shared by queues and processes, cancelled amid a wait, and much to read."""

from __future__ import annotations

import random

import anyio
import pytest

from actors.bus.nats import NatsBus, open_nats
from tests.actors.bus.nats.conftest import Server
from tests.actors.bus.nats.words import OTHER, PATIENCE_S, follow, spec, work
from tests.contracts.bus_words import QUEUE, RUN, pull

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


async def test_two_processes_share_queues_and_see_each_others_events(bus: NatsBus, server: Server) -> None:
    async with open_nats(server.options()) as other:
        await bus.open_stream(RUN)
        await bus.declare_queue(spec())
        await other.declare_queue(spec())
        for number in range(40):
            await bus.submit(QUEUE, b"", msg_id=f"j{number}")
        ours: list[str] = []
        theirs: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, bus, ours)
            tasks.start_soon(work, other, theirs)
            with anyio.fail_after(PATIENCE_S):
                assert await follow(bus, 40) == await follow(other, 40)
            tasks.cancel_scope.cancel()
        assert sorted(ours + theirs) == sorted(f"j{number}" for number in range(40))
        assert ours
        assert theirs


async def test_a_flush_that_is_cancelled_costs_no_connection(server: Server) -> None:
    async with open_nats(server.options(patience_s=2.0)) as bus:
        await bus.prepare()
        for _ in range(20):
            with anyio.move_on_after(0):
                await bus._connection._client.flush()
            assert await bus.get("k") is None


async def test_after_a_round_trip_everything_said_before_it_was_done(bus: NatsBus) -> None:
    client = bus._connection._client
    heard: list[bytes] = []
    await client.listen("ks.bell.test", lambda reply: heard.append(reply.payload))
    for number in range(50):
        await client.publish("ks.bell.test", str(number).encode())
        await client.round_trip(2)
        assert len(heard) == number + 1


async def test_a_read_loop_that_died_is_noticed(server: Server) -> None:
    async with open_nats(server.options(ping_s=0.2)) as bus:
        await bus.prepare()
        task = bus._connection._client._reading_task
        assert task is not None
        task.cancel()
        with anyio.fail_after(10):
            assert await bus.put("k", b"1", revision=0)


async def test_cancelled_waits_strand_no_job_and_lose_no_connection(bus: NatsBus) -> None:
    await bus.declare_queue(spec(ack_wait_s=30, max_deliver=100))
    await bus.declare_queue(spec(name=OTHER, run_id="r2", ack_wait_s=30, max_deliver=100))
    draw = random.Random(1)
    taken: set[str] = set()

    async def impatient(*queues: str) -> None:
        with anyio.move_on_after(draw.random() * 0.004):
            delivery = await bus.pull(*queues)
            taken.add(delivery.msg_id)
            with anyio.CancelScope(shield=True):
                await delivery.ack()

    for number in range(150):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(impatient, QUEUE)
            tasks.start_soon(impatient, OTHER, QUEUE)
            await bus.submit(QUEUE if number % 2 else OTHER, b"", msg_id=f"j{number}")
            tasks.cancel_scope.cancel()
    while len(taken) < 150:
        with anyio.fail_after(2):
            delivery = await bus.pull(QUEUE, OTHER)
        taken.add(delivery.msg_id)
        await delivery.ack()
    assert len(taken) == 150


async def test_entries_are_read_however_many_there_are(bus: NatsBus) -> None:
    keys = [f"node.coder.n{number:04}" for number in range(1100)]
    limit = anyio.Semaphore(64)

    async def put(key: str) -> None:
        async with limit:
            await bus.put(key, key.encode(), revision=0)

    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(put, key)
    assert [(key, entry.value) for key, entry in (await bus.entries("node.")).items()] == [
        (key, key.encode()) for key in keys
    ]


async def test_what_is_in_the_queues_can_be_measured(bus: NatsBus) -> None:
    await bus.declare_queue(spec(ack_wait_s=0.5))
    await bus.declare_queue(spec(name=OTHER, run_id="r2"))
    for number in range(4):
        await bus.submit(QUEUE, b"", msg_id=f"j{number}")
    await (await pull(bus, 1)).term("no")
    await pull(bus, 1)
    await anyio.sleep(0.6)
    assert (await pull(bus, 1)).attempt == 2
    (depth,) = await bus.measure(RUN)
    assert (depth.queue, depth.run_id) == (QUEUE, RUN)
    assert (depth.waiting, depth.in_hand, depth.redelivered, depth.dead) == (2, 1, 1, 1)
    assert 0.6 <= depth.oldest_s < PATIENCE_S
    assert [(found.queue, found.waiting) for found in await bus.measure()] == [(QUEUE, 2), (OTHER, 0)]
