"""What every bus promises of its work queues and dead letters."""

from __future__ import annotations

import anyio
import pytest

from actors.bus.base import (
    MAX_JOB_BYTES,
    Bus,
    ConflictError,
    DeadLetter,
    QueueFullError,
    QueueSpec,
    UnknownQueueError,
)
from messages.base import BusError
from tests.contracts.bus_words import QUEUE, RUN, assert_idle, dead_letter, pull


class QueueContract:
    """Needs the fixtures `bus`, `spec` and `ack_wait_s`."""

    async def test_a_job_arrives_as_it_was_submitted(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        assert await bus.submit(QUEUE, b"\x00one", msg_id="j1")
        delivery = await pull(bus, spec.ack_wait_s)
        assert (delivery.payload, delivery.msg_id, delivery.attempt) == (b"\x00one", "j1", 1)

    async def test_what_travels_beside_a_job_arrives_with_each_of_its_deliveries(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1", headers={"traceparent": "00-a-b-01", "tracestate": "x=1"})
        await bus.submit(QUEUE, b"", msg_id="j2")
        for _ in range(2):
            delivery = await pull(bus, spec.ack_wait_s)
            assert dict(delivery.headers) == {"traceparent": "00-a-b-01", "tracestate": "x=1"}
            if delivery.attempt == 1:
                await delivery.nak()
        assert dict((await pull(bus, spec.ack_wait_s)).headers) == {}

    async def test_jobs_come_in_the_order_of_submission(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        for number in range(4):
            await bus.submit(QUEUE, b"", msg_id=f"j{number}")
        assert [(await pull(bus, spec.ack_wait_s)).msg_id for _ in range(4)] == ["j0", "j1", "j2", "j3"]

    async def test_a_waiting_worker_gets_the_job_that_is_submitted_later(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        pulled: list[str] = []

        async def work() -> None:
            pulled.append((await pull(bus, spec.ack_wait_s)).msg_id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
        assert pulled == ["j1"]

    async def test_an_acknowledged_job_never_comes_back(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await pull(bus, spec.ack_wait_s)).ack()
        await assert_idle(bus, 3 * spec.ack_wait_s)

    async def test_a_held_job_is_given_to_nobody_else(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await pull(bus, spec.ack_wait_s)
        await assert_idle(bus, spec.ack_wait_s * 0.6)

    async def test_many_workers_do_each_job_once(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=spec.ack_wait_s, max_jobs=100))
        done: list[str] = []

        async def work() -> None:
            while True:
                delivery = await bus.pull(QUEUE)
                done.append(delivery.msg_id)
                await anyio.sleep(spec.ack_wait_s / 50)
                await delivery.ack()

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(work)
            for number in range(60):
                await bus.submit(QUEUE, b"", msg_id=f"j{number}")
            await anyio.sleep(2 * spec.ack_wait_s)
            tasks.cancel_scope.cancel()
        assert sorted(done) == sorted(f"j{number}" for number in range(60))

    async def test_a_job_whose_worker_fell_silent_comes_back(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"one", msg_id="j1")
        await pull(bus, spec.ack_wait_s)
        began = anyio.current_time()
        again = await pull(bus, spec.ack_wait_s)
        assert (again.msg_id, again.payload, again.attempt) == ("j1", b"one", 2)
        assert anyio.current_time() - began == pytest.approx(spec.ack_wait_s, rel=0.5)

    async def test_an_idle_worker_hears_of_a_time_out_that_began_after_it_went_to_wait(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        attempts: list[int] = []

        async def work() -> None:
            attempts.append((await pull(bus, spec.ack_wait_s)).attempt)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(work)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
        assert attempts == [1, 2]

    async def test_heartbeats_keep_a_job_past_its_time_out(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        delivery = await pull(bus, spec.ack_wait_s)
        for _ in range(6):
            await assert_idle(bus, spec.ack_wait_s / 2)
            await delivery.in_progress()
        assert (await pull(bus, spec.ack_wait_s)).attempt == 2

    async def test_a_job_handed_back_is_delivered_again_at_once(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await pull(bus, spec.ack_wait_s)).nak()
        with anyio.fail_after(spec.ack_wait_s / 2):
            assert (await bus.pull(QUEUE)).attempt == 2

    async def test_a_job_handed_back_with_a_delay_waits_that_long(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await pull(bus, spec.ack_wait_s)).nak(delay_s=2 * spec.ack_wait_s)
        await assert_idle(bus, 1.7 * spec.ack_wait_s)
        assert (await pull(bus, spec.ack_wait_s)).attempt == 2

    async def test_a_job_that_comes_back_does_not_wait_behind_new_ones(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        for name in ("j1", "j2", "j3"):
            await bus.submit(QUEUE, b"", msg_id=name)
        await (await pull(bus, spec.ack_wait_s)).nak()
        assert [(await pull(bus, spec.ack_wait_s)).msg_id for _ in range(3)] == ["j1", "j2", "j3"]

    async def test_a_late_acknowledgement_counts_though_another_worker_has_the_job(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        slow = await pull(bus, spec.ack_wait_s)
        second = await pull(bus, spec.ack_wait_s)
        await slow.ack()
        await second.ack()
        await assert_idle(bus, 3 * spec.ack_wait_s)

    async def test_a_late_word_about_a_finished_job_does_not_touch_its_namesake(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"old", msg_id="j1")
        old = await pull(bus, spec.ack_wait_s)
        await old.ack()
        assert await bus.submit(QUEUE, b"new", msg_id="j1")
        await old.ack()
        await old.nak()
        await old.term("late")
        new = await pull(bus, spec.ack_wait_s)
        assert (new.payload, new.attempt) == (b"new", 1)

    async def test_who_lost_a_job_can_neither_hand_it_back_nor_end_it(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        slow = await pull(bus, spec.ack_wait_s)
        await pull(bus, spec.ack_wait_s)
        await slow.nak()
        await slow.term("late")
        await assert_idle(bus, spec.ack_wait_s * 0.6)
        assert (await pull(bus, spec.ack_wait_s)).attempt == 3

    async def test_a_cancelled_pull_strands_no_job(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(bus.pull, QUEUE)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
            tasks.cancel_scope.cancel()
        assert (await pull(bus, spec.ack_wait_s)).msg_id == "j1"

    async def test_a_job_is_there_once_however_often_it_is_submitted(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        assert await bus.submit(QUEUE, b"", msg_id="j1")
        assert not await bus.submit(QUEUE, b"", msg_id="j1")
        held = await pull(bus, spec.ack_wait_s)
        assert not await bus.submit(QUEUE, b"", msg_id="j1")
        await assert_idle(bus, spec.ack_wait_s * 0.5)
        await held.ack()

    async def test_a_full_queue_refuses_until_a_job_is_done(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        for number in range(spec.max_jobs):
            await bus.submit(QUEUE, b"", msg_id=f"j{number}")
        held = await pull(bus, spec.ack_wait_s)
        with pytest.raises(QueueFullError):
            await bus.submit(QUEUE, b"", msg_id="one-more")
        await held.ack()
        assert await bus.submit(QUEUE, b"", msg_id="one-more")

    async def test_the_largest_job_arrives_as_it_was_submitted_and_as_a_dead_letter(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.open_stream(RUN)
        await bus.declare_queue(spec)
        payload = bytes(range(256)) * (MAX_JOB_BYTES // 256)
        await bus.submit(QUEUE, payload, msg_id="j1")
        delivery = await pull(bus, spec.ack_wait_s)
        assert delivery.payload == payload
        await delivery.term("no")
        assert (await dead_letter(bus, spec.ack_wait_s)).payload == payload

    async def test_a_job_that_is_too_large_is_refused_and_leaves_nothing(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        with pytest.raises(BusError, match="bytes"):
            await bus.submit(QUEUE, bytes(MAX_JOB_BYTES + 1), msg_id="j1")
        assert await bus.submit(QUEUE, b"", msg_id="j1")

    async def test_an_undeclared_queue_is_an_error(self, bus: Bus) -> None:
        with pytest.raises(UnknownQueueError):
            await bus.submit(QUEUE, b"", msg_id="j1")
        with pytest.raises(UnknownQueueError):
            await bus.pull(QUEUE)

    async def test_a_queue_may_be_declared_again_but_not_otherwise(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await bus.declare_queue(spec)
        assert (await pull(bus, spec.ack_wait_s)).msg_id == "j1"
        with pytest.raises(ConflictError):
            await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=spec.ack_wait_s * 2))

    async def test_who_pulls_from_several_queues_gets_from_the_first_that_has_a_job(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        other = QueueSpec(name="ks.job.write.default.any.r2", run_id="r2", ack_wait_s=spec.ack_wait_s)
        await bus.declare_queue(spec)
        await bus.declare_queue(other)
        for name in ("j1", "j2"):
            await bus.submit(QUEUE, b"", msg_id=name)
            await bus.submit(other.name, b"", msg_id=f"{name}-other")
        order = []
        for queues in ((QUEUE, other.name), (other.name, QUEUE), (other.name, QUEUE), (other.name, QUEUE)):
            with anyio.fail_after(spec.ack_wait_s):
                delivery = await bus.pull(*queues)
            order.append((delivery.queue, delivery.msg_id))
            await delivery.ack()
        assert order == [(QUEUE, "j1"), (other.name, "j1-other"), (other.name, "j2-other"), (QUEUE, "j2")]

    async def test_who_waits_for_several_queues_hears_of_each_and_takes_one_job(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        other = QueueSpec(name="ks.job.write.default.any.r2", run_id="r2", ack_wait_s=spec.ack_wait_s)
        await bus.declare_queue(spec)
        await bus.declare_queue(other)
        for queue, idle in ((QUEUE, other.name), (other.name, QUEUE)):
            got: list[str] = []

            async def work(got: list[str] = got) -> None:
                delivery = await bus.pull(QUEUE, other.name)
                got.append(delivery.queue)
                await delivery.ack()

            with anyio.fail_after(spec.ack_wait_s * 2 / 3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(work)
                    await anyio.sleep(spec.ack_wait_s / 10)
                    await bus.submit(queue, b"", msg_id="j1")
            assert got == [queue]
            await bus.submit(idle, b"", msg_id="j2")
            left = await pull(bus, spec.ack_wait_s, idle)
            assert (left.msg_id, left.attempt) == ("j2", 1)
            await left.ack()

    async def test_queues_do_not_mix(self, bus: Bus, spec: QueueSpec) -> None:
        other = QueueSpec(name="ks.job.build.x86-64.cpp.r1", run_id=RUN, ack_wait_s=spec.ack_wait_s)
        await bus.declare_queue(spec)
        await bus.declare_queue(other)
        await bus.submit(other.name, b"", msg_id="j1")
        await assert_idle(bus, spec.ack_wait_s * 0.5)
        assert (await pull(bus, spec.ack_wait_s, other.name)).msg_id == "j1"

    async def test_a_job_that_kills_its_workers_becomes_a_dead_letter(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"poison", msg_id="j1")
        for attempt in range(1, spec.max_deliver + 1):
            assert (await pull(bus, spec.ack_wait_s)).attempt == attempt
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.pull, QUEUE)
            letter = await dead_letter(bus, spec.ack_wait_s)
            tasks.cancel_scope.cancel()
        assert letter == DeadLetter(queue=QUEUE, msg_id="j1", payload=b"poison", deliveries=3, reason="max_deliver")
        await assert_idle(bus, 2 * spec.ack_wait_s)

    async def test_who_waits_for_dead_letters_hears_of_a_death_once_somebody_pulls(
        self, bus: Bus, ack_wait_s: float
    ) -> None:
        await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=ack_wait_s, max_deliver=1))
        letters: list[DeadLetter] = []

        async def janitor() -> None:
            letters.append(await dead_letter(bus, ack_wait_s))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(janitor)
            await anyio.sleep(ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
            await pull(bus, ack_wait_s)
            await assert_idle(bus, 3 * ack_wait_s)
        assert [letter.msg_id for letter in letters] == ["j1"]

    async def test_a_job_handed_back_too_often_becomes_a_dead_letter(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        for _ in range(spec.max_deliver):
            await (await pull(bus, spec.ack_wait_s)).nak()
        letter = await dead_letter(bus, spec.ack_wait_s)
        assert (letter.msg_id, letter.deliveries, letter.reason) == ("j1", 3, "max_deliver")

    async def test_a_terminated_job_becomes_a_dead_letter_with_its_reason_once(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"junk", msg_id="j1")
        delivery = await pull(bus, spec.ack_wait_s)
        await delivery.term("cannot be parsed")
        await delivery.term("again")
        letter = await dead_letter(bus, spec.ack_wait_s)
        assert (letter.payload, letter.deliveries, letter.reason) == (b"junk", 1, "cannot be parsed")
        await assert_idle(bus, 2 * spec.ack_wait_s)
        with anyio.move_on_after(spec.ack_wait_s):
            pytest.fail(f"given twice: {await bus.next_dead_letter(RUN)}")

    async def test_a_dead_letter_makes_room_for_another_job(self, bus: Bus, ack_wait_s: float) -> None:
        await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=ack_wait_s, max_deliver=1, max_jobs=1))
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await pull(bus, ack_wait_s)).term("no")
        await dead_letter(bus, ack_wait_s)
        assert await bus.submit(QUEUE, b"", msg_id="j2")
