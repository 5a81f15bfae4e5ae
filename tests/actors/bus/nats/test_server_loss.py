"""What only a server can do to a bus: crash, freeze, fill up, forget, forbid."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from actors.bus.base import Bus, ConflictError, Delivery, QueueSpec
from actors.bus.nats import NatsBus, NatsOptions, names, open_nats
from actors.bus.nats.server import ServerSettings, serve_nats
from messages.errors import BusError
from tests.actors.bus.nats.conftest import Server
from tests.contracts.bus_streams import decision, event, read
from tests.contracts.bus_words import QUEUE, RUN, assert_idle, dead_letter, pull

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

OTHER = "ks.job.write.default.any.r2"
PATIENCE_S = 20.0


def spec(**changed: object) -> QueueSpec:
    fields: dict[str, object] = {"name": QUEUE, "run_id": RUN, "ack_wait_s": 1.0, "max_jobs": 500} | changed
    return QueueSpec(**fields)  # type: ignore[arg-type]  # fields by name


async def work(bus: Bus, done: list[str]) -> None:
    while True:
        delivery = await bus.pull(QUEUE)
        done.append(delivery.msg_id)
        await anyio.sleep(0.005)
        await bus.publish(RUN, event(len(done)), msg_id=f"{delivery.msg_id}.r", role="coder")
        await delivery.ack()


async def follow(bus: Bus, count: int) -> list[str]:
    found = []
    async with aclosing(bus.events(RUN)) as events:
        async for posted in events:
            found.append(posted.msg_id)
            if len(found) == count:
                break
    return found


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


@pytest.fixture
async def sweeping(bus: NatsBus, server: Server) -> AsyncIterator[NatsBus]:
    async with open_nats(server.options(sweep_s=1.0)) as sweeping:
        yield sweeping


async def test_a_dead_job_without_an_advisory_is_found_though_others_are_in_hand(
    bus: NatsBus, sweeping: NatsBus
) -> None:
    await bus.declare_queue(spec(max_deliver=1))
    for name in ("dead", "busy", "new"):
        await bus.submit(QUEUE, name.encode(), msg_id=name)
    await pull(bus, 1)
    busy = await pull(bus, 1)
    lost = await _lose_the_advisory(bus, busy)
    assert lost
    letters: list[str] = []

    async def janitor() -> None:
        letters.append((await sweeping.next_dead_letter(RUN)).msg_id)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(janitor)
            for _ in range(6):
                await anyio.sleep(0.5)
                await busy.in_progress()
            assert not letters, "which one is dead is not known while the other is in hand"
            await busy.ack()
    assert letters == ["dead"]
    assert (await pull(bus, 1)).msg_id == "new"


async def _lose_the_advisory(bus: NatsBus, busy: object) -> bool:
    """Have the server notice the death, and remove what it says about it."""
    connection = bus._connection
    stream = names.job_stream(QUEUE)
    with anyio.fail_after(PATIENCE_S):
        while True:
            await anyio.sleep(0.3)
            await busy.in_progress()  # type: ignore[attr-defined]
            await connection.ask(
                f"$JS.API.CONSUMER.MSG.NEXT.{stream}.write", b'{"batch":1,"no_wait":true,"max_bytes":1}'
            )
            info = await connection.info(names.dead_stream(RUN), what="the test")
            if info is not None and info.state.messages:
                await connection.ask(f"$JS.API.STREAM.PURGE.{names.dead_stream(RUN)}")
                return True


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


async def fill(bus: Bus, run_id: str) -> None:
    for number in range(1000):
        await bus.publish(run_id, bytes(500_000), msg_id=f"m{number}")


async def test_a_full_store_is_said_and_passes(tmp_path: Path) -> None:
    config = "accounts { A { jetstream { max_store: 6MB }, users: [{ user: a, password: b }] } }"
    async with serve_nats(ServerSettings(store=tmp_path, sync="never", config=config)) as server:
        options = NatsOptions(servers=(server.url,), user="a", password="b", patience_s=1.0)  # noqa: S106
        async with open_nats(options) as bus:
            await bus.prepare()
            await bus.open_stream(RUN)
            await bus.open_stream("r2")
            with pytest.raises(BusError, match="no room"):
                await fill(bus, "r2")
            with pytest.raises(BusError, match="no room"):
                await bus.publish(RUN, bytes(900_000), msg_id="m")
            await bus.delete_run("r2")
            assert await bus.publish(RUN, event(1), msg_id="m1")


async def test_what_is_not_allowed_is_said_at_once_with_its_subject(tmp_path: Path) -> None:
    config = """accounts { A { jetstream: enabled, users: [
      { user: admin, password: a },
      { user: evaluator, password: b, permissions: {
          publish: { allow: ["$JS.API.STREAM.INFO.*", "ks.evt.*.evaluator.>"] },
          subscribe: { allow: ["_INBOX_evaluator.>"] } } } ] } }"""
    async with serve_nats(ServerSettings(store=tmp_path, sync="never", config=config)) as server:

        def options(role: str, password: str, user: str) -> NatsOptions:
            return NatsOptions(servers=(server.url,), role=role, user=user, password=password)

        async with open_nats(options("admin", "a", "admin")) as bus:
            await bus.prepare()
            await bus.open_stream(RUN)
            await bus.declare_queue(spec())
        with anyio.fail_after(4):
            async with open_nats(options("evaluator", "b", "evaluator")) as bus:
                assert await bus.publish(RUN, event(1), msg_id="m1", role="evaluator")
                with pytest.raises(BusError, match=r"ks\.evt\.r1\.planner\.m2"):
                    await bus.publish(RUN, event(2), msg_id="m2")
                with pytest.raises(BusError, match=r"ks\.job\.write\.default\.any\.r1\.j1"):
                    await bus.submit(QUEUE, b"", msg_id="j1")
                with pytest.raises(BusError, match=r"msg\.next\.ks_job_write_default_any_r1"):
                    await bus.pull(QUEUE)
            with pytest.raises(BusError, match="credentials"):
                async with open_nats(options("admin", "wrong", "admin")):
                    pass
            with pytest.raises(BusError, match="_INBOX_planner"):
                async with open_nats(options("planner", "b", "evaluator")) as bus:
                    await bus.publish(RUN, event(1), msg_id="m3", role="evaluator")


async def test_nobody_there_is_said(server: Server) -> None:
    async with open_nats(server.options(patience_s=0.5)) as bus:
        with pytest.raises(BusError, match="not prepared"):
            await bus.put("k", b"", revision=0)
        await server.kill()
        try:
            with pytest.raises(BusError, match="tried for"):
                await bus.get("k")
            with pytest.raises(BusError, match="cannot connect"):
                async with open_nats(server.options()):
                    pass
        finally:
            await server.start_again()


async def test_a_client_that_the_server_throws_out_ends_all_waiting(bus: NatsBus) -> None:
    await bus.declare_queue(spec())
    await bus.open_stream(RUN)
    ended: list[str] = []

    async def ends(wait: Callable[[], Awaitable[object]]) -> None:
        try:
            await wait()
        except BusError as error:
            ended.append(str(error))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends, lambda: bus.pull(QUEUE))
            tasks.start_soon(ends, lambda: follow(bus, 1))
            tasks.start_soon(ends, lambda: bus.next_dead_letter(RUN))
            await anyio.sleep(0.3)
            transport = bus._connection._client._transport
            assert transport is not None
            transport.write(b"NONSENSE\r\n")
    assert len(ended) == 3
    assert all("is over" in words for words in ended)
    with pytest.raises(BusError, match="is over"):
        await bus.get("k")


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
