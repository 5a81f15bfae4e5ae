"""What a server that crashes, freezes or forgets costs a bus: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Awaitable, Callable

import anyio
import pytest
from nats.aio.client import Client

from actors.bus.base import ConflictError, Delivery
from actors.bus.nats import NatsBus, names, open_nats
from tests.actors.bus.nats.conftest import Server
from tests.actors.bus.nats.words import OTHER, PATIENCE_S, follow, spec, work
from tests.contracts.bus_streams import decision, event, read
from tests.contracts.bus_words import QUEUE, RUN, assert_idle, dead_letter, pull

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


async def test_crashes_lose_nothing_and_double_nothing(bus: NatsBus, server: Server) -> None:
    jobs = [f"j{number}" for number in range(200)]
    done: list[str] = []
    read_by: list[list[str]] = []
    await bus.open_stream(RUN)
    await bus.declare_queue(spec(max_deliver=10))

    async def reader() -> None:
        read_by.append(await follow(bus, len(jobs)))

    async def submit() -> None:
        for job in jobs:
            await bus.submit(QUEUE, b"x" * 4000, msg_id=job)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as workers:
            for _ in range(4):
                workers.start_soon(work, bus, done)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader)
                tasks.start_soon(reader)
                tasks.start_soon(submit)
                for share in (0.1, 0.4, 0.7):
                    while len(done) < share * len(jobs):  # noqa: ASYNC110 - it is counted elsewhere
                        await anyio.sleep(0.001)
                    await server.crash()
            while (await bus.measure(RUN))[0].in_hand:  # noqa: ASYNC110 - the server says
                await anyio.sleep(0.05)
            workers.cancel_scope.cancel()
    assert sorted(read_by[0]) == sorted(f"{job}.r" for job in jobs)
    assert read_by[0] == read_by[1]
    assert [posted.msg_id for posted in await read(bus, len(jobs))] == read_by[0]
    await assert_idle(bus, 1.5)


async def test_idle_workers_hear_of_new_jobs_at_once_after_a_crash(bus: NatsBus, server: Server) -> None:
    await bus.declare_queue(spec(ack_wait_s=30))
    await bus.declare_queue(spec(name=OTHER, run_id="r2", ack_wait_s=30))
    took: list[str] = []

    async def wait(*queues: str) -> None:
        took.append((await bus.pull(*queues)).queue)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, QUEUE)
        tasks.start_soon(wait, OTHER, "ks.job.write.default.any.r1")
        await anyio.sleep(0.2)
        await server.crash()
        await bus.submit(QUEUE, b"", msg_id="j1")
        await bus.submit(OTHER, b"", msg_id="j2")
        with anyio.fail_after(2):
            while len(took) < 2:  # noqa: ASYNC110 - the workers say
                await anyio.sleep(0.01)


async def _ends_with_an_error() -> None:
    raise AttributeError("nobody expects this")


@pytest.mark.long
@pytest.mark.parametrize("step", ["_select_next_server", "_process_connect_init", "flush"])
@pytest.mark.parametrize("fault", [_ends_with_an_error, anyio.sleep_forever])
async def test_a_bus_reconnects_after_the_loop_of_its_client_ended_or_stood_still(
    bus: NatsBus, server: Server, monkeypatch: pytest.MonkeyPatch, step: str, fault: Callable[[], Awaitable[None]]
) -> None:
    original = getattr(Client, step)
    faults = [fault, fault]
    took: list[Delivery] = []

    async def faulty(client: Client) -> None:
        await (faults.pop()() if faults else original(client))

    async def wait() -> None:
        took.append(await bus.pull(QUEUE))

    monkeypatch.setattr("actors.bus.nats.client._LONGEST_TRY_S", 0.5)
    await bus.declare_queue(spec(ack_wait_s=30))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.2)
        monkeypatch.setattr(Client, step, faulty)
        await server.crash()
        with anyio.fail_after(PATIENCE_S):
            await bus.submit(QUEUE, b"after", msg_id="j1")
            while not took:  # noqa: ASYNC110 - the worker says
                await anyio.sleep(0.01)
    assert not faults
    assert took[0].payload == b"after"


async def test_what_a_frozen_server_is_asked_meanwhile_is_done_once(server: Server) -> None:
    async with open_nats(server.options(ping_s=0.3)) as bus:
        await bus.prepare()
        await bus.open_stream(RUN)
        await bus.declare_queue(spec(ack_wait_s=30))
        seqs = []
        async with anyio.create_task_group() as tasks:
            os.kill(server.pid, signal.SIGSTOP)

            async def ask(number: int) -> None:
                seqs.append(await bus.publish(RUN, event(number), msg_id=f"m{number}"))
                await bus.submit(QUEUE, bytes(100_000), msg_id=f"j{number}")

            for number in range(20):
                tasks.start_soon(ask, number)
            await anyio.sleep(3)
            os.kill(server.pid, signal.SIGCONT)
        assert sorted(seqs) == [posted.seq for posted in await read(bus, 20)]
        assert sorted([(await pull(bus, 1)).msg_id for _ in range(20)]) == sorted(f"j{n}" for n in range(20))
        await assert_idle(bus, 0.2)


@pytest.mark.long
async def test_a_job_in_hand_outlives_a_crash_of_the_server(
    bus: NatsBus, restart: Callable[[], Awaitable[NatsBus]]
) -> None:
    await bus.declare_queue(spec(ack_wait_s=3))
    await bus.submit(QUEUE, b"one", msg_id="j1")
    held = await pull(bus, 1)
    await anyio.sleep(0.3)  # the server writes down what it delivered ten times a second
    await restart()
    await held.in_progress()
    await assert_idle(bus, 1.5)
    await held.ack()
    await assert_idle(bus, 2)


async def test_a_delivery_that_the_server_forgot_in_a_crash_comes_back_and_holds_nobody_up(
    bus: NatsBus, server: Server
) -> None:
    await bus.open_stream(RUN)
    await bus.declare_queue(spec(ack_wait_s=30))
    for number in range(8):
        await bus.submit(QUEUE, b"", msg_id=f"j{number}")
    held = [await pull(bus, 1) for _ in range(8)]
    await server.crash()

    async def finish(delivery: Delivery) -> None:
        await delivery.in_progress()
        await delivery.ack()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for delivery in held:
                tasks.start_soon(finish, delivery)
    with anyio.move_on_after(1):
        while True:
            await (await bus.pull(QUEUE)).ack()
    await assert_idle(bus, 0.5)


async def test_what_was_removed_or_has_expired_stays_so_when_the_server_is_killed(bus: NatsBus, server: Server) -> None:
    lease, card = 0, 0
    for _ in range(3):
        lease = await bus.put("lease.r1", b"planner", revision=lease, ttl_s=1)
        card = await bus.put("run.r1", b"card", revision=card)
    await bus.put("node.r1", b"here", revision=0, ttl_s=1)
    await bus.delete("lease.r1", revision=lease)
    await bus.delete("run.r1", revision=card)
    await bus.cancel_run(RUN)
    await bus.drop_queues(RUN)
    with anyio.fail_after(PATIENCE_S):
        while await bus.get("node.r1") is not None:  # noqa: ASYNC110 - the server tells nobody
            await anyio.sleep(0.1)
    await anyio.sleep(1.5)  # longer than anything that the server keeps for a second
    await server.crash()
    with anyio.fail_after(PATIENCE_S):
        while {*await bus.entries("lease."), *await bus.entries("node.")}:  # noqa: ASYNC110 - the server sweeps late
            await anyio.sleep(0.1)
    assert await bus.entries("run.") == {}
    assert await bus.get("cancel.r1") is None
    assert await bus.put("run.r1", b"card", revision=0) > card


async def test_a_planner_that_was_replaced_cannot_decide_though_the_server_was_restarted(
    bus: NatsBus, server: Server
) -> None:
    async with open_nats(server.options()) as stale:
        await bus.open_stream(RUN)
        first = await stale.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0)
        second = await bus.publish(RUN, decision(2), msg_id="d2", expected_last_decision=first)
        await server.crash()
        with pytest.raises(ConflictError):
            await stale.publish(RUN, decision(3), msg_id="d3", expected_last_decision=first)
        assert await bus.publish(RUN, decision(3), msg_id="d4", expected_last_decision=second) > second


async def test_a_dead_letter_that_was_not_settled_is_given_again_after_a_restart(bus: NatsBus, server: Server) -> None:
    await bus.declare_queue(spec())
    await bus.submit(QUEUE, b"x", msg_id="j1")
    await (await pull(bus, 1)).term("no")
    letter = await dead_letter(bus, 1)
    await server.crash()
    async with open_nats(server.options()) as other:
        assert await dead_letter(other, 1) == letter
        with anyio.move_on_after(0.5):
            pytest.fail(f"given twice: {await other.next_dead_letter(RUN)}")


async def test_a_job_given_out_too_often_is_dead_lettered_though_the_server_crashed_meanwhile(
    bus: NatsBus, server: Server
) -> None:
    await bus.declare_queue(spec(max_deliver=1))
    for name in ("dead", "new"):
        await bus.submit(QUEUE, name.encode(), msg_id=name)
    await pull(bus, 1)
    await server.crash()
    with anyio.fail_after(PATIENCE_S):
        new = await bus.pull(QUEUE)
        assert new.msg_id == "new"
        await new.ack()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.pull, QUEUE)
            assert (await bus.next_dead_letter(RUN)).msg_id == "dead"
            tasks.cancel_scope.cancel()


async def test_a_run_of_a_deleted_runs_name_begins_empty_though_the_server_kept_its_folder(
    bus: NatsBus, server: Server
) -> None:
    """It moves a stream's folder away in order to delete it, and fails while an earlier one is still there."""
    away = server.store / "jetstream" / "$G" / "streams" / f".{names.event_stream(RUN)}"
    await bus.open_stream(RUN)
    await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0)
    away.mkdir()
    (away / "left").touch()
    try:
        await bus.delete_run(RUN)
    finally:
        shutil.rmtree(away)
    assert await bus.open_stream(RUN) == 0
    await bus.publish(RUN, decision(2), msg_id="d2", expected_last_decision=0)
    await anyio.sleep(0.2)
    await server.crash()
    assert [posted.msg_id for posted in await read(bus, 1)] == ["d2"]
