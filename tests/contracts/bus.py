"""What every bus promises, as tests; an implementation's test file is a fixture or two and an empty subclass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio
import pytest

from actors.bus.base import (
    MAX_EVENT_BYTES,
    MAX_JOB_BYTES,
    Bus,
    CancelledRunError,
    ConflictError,
    DeadLetter,
    Delivery,
    Posted,
    QueueFullError,
    QueueSpec,
    UnknownQueueError,
)
from messages.codec import decode_body, encode
from messages.errors import BusError
from messages.events import ClockTicked
from messages.facts import Decided

RUN = "r1"
QUEUE = "ks.job.write.default.any.r1"


def event(number: int) -> bytes:
    return encode(ClockTicked(elapsed_s=float(number)))


def number_of(posted: Posted) -> float:
    body = decode_body(posted.payload)
    assert isinstance(body, ClockTicked)
    return body.elapsed_s


def decision(cause: int) -> bytes:
    return encode(Decided(cause=cause, facts=()))


async def read(bus: Bus, count: int, *, after: int = 0) -> list[Posted]:
    found: list[Posted] = []
    with anyio.fail_after(5):
        async with aclosing(bus.events(RUN, after=after)) as events:
            async for posted in events:
                found.append(posted)
                if len(found) == count:
                    break
    return found


class BusContract:
    """Promises of `actors.bus.base.Bus`. Needs the fixtures `bus`, `restart` and `ack_wait_s`."""

    @pytest.fixture
    def spec(self, ack_wait_s: float) -> QueueSpec:
        return QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=ack_wait_s, max_deliver=3, max_jobs=4)

    async def pull(self, bus: Bus, ack_wait_s: float, queue: str = QUEUE) -> Delivery:
        with anyio.fail_after(3 * ack_wait_s):
            return await bus.pull(queue)

    async def assert_idle(self, bus: Bus, wait_s: float, queue: str = QUEUE) -> None:
        with anyio.move_on_after(wait_s):
            delivery = await bus.pull(queue)
            pytest.fail(f"{delivery.msg_id} was delivered (attempt {delivery.attempt})")

    async def dead_letter(self, bus: Bus, ack_wait_s: float) -> DeadLetter:
        with anyio.fail_after(5 * ack_wait_s):
            return await bus.next_dead_letter(RUN)

    # -- work queues

    async def test_a_job_arrives_as_it_was_submitted(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        assert await bus.submit(QUEUE, b"\x00one", msg_id="j1")
        delivery = await self.pull(bus, spec.ack_wait_s)
        assert (delivery.payload, delivery.msg_id, delivery.attempt) == (b"\x00one", "j1", 1)

    async def test_jobs_come_in_the_order_of_submission(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        for number in range(4):
            await bus.submit(QUEUE, b"", msg_id=f"j{number}")
        assert [(await self.pull(bus, spec.ack_wait_s)).msg_id for _ in range(4)] == ["j0", "j1", "j2", "j3"]

    async def test_a_waiting_worker_gets_the_job_that_is_submitted_later(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        pulled: list[str] = []

        async def work() -> None:
            pulled.append((await self.pull(bus, spec.ack_wait_s)).msg_id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
        assert pulled == ["j1"]

    async def test_an_acknowledged_job_never_comes_back(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await self.pull(bus, spec.ack_wait_s)).ack()
        await self.assert_idle(bus, 3 * spec.ack_wait_s)

    async def test_a_held_job_is_given_to_nobody_else(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await self.pull(bus, spec.ack_wait_s)
        await self.assert_idle(bus, spec.ack_wait_s * 0.6)

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
        await self.pull(bus, spec.ack_wait_s)
        began = anyio.current_time()
        again = await self.pull(bus, spec.ack_wait_s)
        assert (again.msg_id, again.payload, again.attempt) == ("j1", b"one", 2)
        assert anyio.current_time() - began == pytest.approx(spec.ack_wait_s, rel=0.5)

    async def test_an_idle_worker_hears_of_a_time_out_that_began_after_it_went_to_wait(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        attempts: list[int] = []

        async def work() -> None:
            attempts.append((await self.pull(bus, spec.ack_wait_s)).attempt)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(work)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
        assert attempts == [1, 2]

    async def test_heartbeats_keep_a_job_past_its_time_out(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        delivery = await self.pull(bus, spec.ack_wait_s)
        for _ in range(6):
            await self.assert_idle(bus, spec.ack_wait_s / 2)
            await delivery.in_progress()
        assert (await self.pull(bus, spec.ack_wait_s)).attempt == 2

    async def test_a_job_handed_back_is_delivered_again_at_once(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await self.pull(bus, spec.ack_wait_s)).nak()
        with anyio.fail_after(spec.ack_wait_s / 2):
            assert (await bus.pull(QUEUE)).attempt == 2

    async def test_a_job_handed_back_with_a_delay_waits_that_long(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await self.pull(bus, spec.ack_wait_s)).nak(delay_s=2 * spec.ack_wait_s)
        await self.assert_idle(bus, 1.7 * spec.ack_wait_s)
        assert (await self.pull(bus, spec.ack_wait_s)).attempt == 2

    async def test_a_job_that_comes_back_does_not_wait_behind_new_ones(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        for name in ("j1", "j2", "j3"):
            await bus.submit(QUEUE, b"", msg_id=name)
        await (await self.pull(bus, spec.ack_wait_s)).nak()
        assert [(await self.pull(bus, spec.ack_wait_s)).msg_id for _ in range(3)] == ["j1", "j2", "j3"]

    async def test_a_late_acknowledgement_counts_though_another_worker_has_the_job(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        slow = await self.pull(bus, spec.ack_wait_s)
        second = await self.pull(bus, spec.ack_wait_s)
        await slow.ack()
        await second.ack()
        await self.assert_idle(bus, 3 * spec.ack_wait_s)

    async def test_a_late_word_about_a_finished_job_does_not_touch_its_namesake(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"old", msg_id="j1")
        old = await self.pull(bus, spec.ack_wait_s)
        await old.ack()
        assert await bus.submit(QUEUE, b"new", msg_id="j1")
        await old.ack()
        await old.nak()
        await old.term("late")
        new = await self.pull(bus, spec.ack_wait_s)
        assert (new.payload, new.attempt) == (b"new", 1)

    async def test_who_lost_a_job_can_neither_hand_it_back_nor_end_it(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        slow = await self.pull(bus, spec.ack_wait_s)
        await self.pull(bus, spec.ack_wait_s)
        await slow.nak()
        await slow.term("late")
        await self.assert_idle(bus, spec.ack_wait_s * 0.6)
        assert (await self.pull(bus, spec.ack_wait_s)).attempt == 3

    async def test_a_cancelled_pull_strands_no_job(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(bus.pull, QUEUE)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
            tasks.cancel_scope.cancel()
        assert (await self.pull(bus, spec.ack_wait_s)).msg_id == "j1"

    async def test_a_job_is_there_once_however_often_it_is_submitted(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        assert await bus.submit(QUEUE, b"", msg_id="j1")
        assert not await bus.submit(QUEUE, b"", msg_id="j1")
        held = await self.pull(bus, spec.ack_wait_s)
        assert not await bus.submit(QUEUE, b"", msg_id="j1")
        await self.assert_idle(bus, spec.ack_wait_s * 0.5)
        await held.ack()

    async def test_a_full_queue_refuses_until_a_job_is_done(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        for number in range(spec.max_jobs):
            await bus.submit(QUEUE, b"", msg_id=f"j{number}")
        held = await self.pull(bus, spec.ack_wait_s)
        with pytest.raises(QueueFullError):
            await bus.submit(QUEUE, b"", msg_id="one-more")
        await held.ack()
        assert await bus.submit(QUEUE, b"", msg_id="one-more")

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
        assert (await self.pull(bus, spec.ack_wait_s)).msg_id == "j1"
        with pytest.raises(ConflictError):
            await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=spec.ack_wait_s * 2))

    async def test_queues_do_not_mix(self, bus: Bus, spec: QueueSpec) -> None:
        other = QueueSpec(name="ks.job.build.x86-64.cpp.r1", run_id=RUN, ack_wait_s=spec.ack_wait_s)
        await bus.declare_queue(spec)
        await bus.declare_queue(other)
        await bus.submit(other.name, b"", msg_id="j1")
        await self.assert_idle(bus, spec.ack_wait_s * 0.5)
        assert (await self.pull(bus, spec.ack_wait_s, other.name)).msg_id == "j1"

    # -- dead letters

    async def test_a_job_that_kills_its_workers_becomes_a_dead_letter(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"poison", msg_id="j1")
        for attempt in range(1, spec.max_deliver + 1):
            assert (await self.pull(bus, spec.ack_wait_s)).attempt == attempt
        letter = await self.dead_letter(bus, spec.ack_wait_s)
        assert letter == DeadLetter(queue=QUEUE, msg_id="j1", payload=b"poison", deliveries=3, reason="max_deliver")
        await self.assert_idle(bus, 2 * spec.ack_wait_s)

    async def test_a_janitor_that_waits_hears_of_a_death_though_nobody_pulls(self, bus: Bus, ack_wait_s: float) -> None:
        await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=ack_wait_s, max_deliver=1))
        letters: list[DeadLetter] = []

        async def janitor() -> None:
            letters.append(await self.dead_letter(bus, ack_wait_s))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(janitor)
            await anyio.sleep(ack_wait_s / 10)
            await bus.submit(QUEUE, b"", msg_id="j1")
            await self.pull(bus, ack_wait_s)
        assert [letter.msg_id for letter in letters] == ["j1"]

    async def test_a_job_handed_back_too_often_becomes_a_dead_letter(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        for _ in range(spec.max_deliver):
            await (await self.pull(bus, spec.ack_wait_s)).nak()
        letter = await self.dead_letter(bus, spec.ack_wait_s)
        assert (letter.msg_id, letter.deliveries, letter.reason) == ("j1", 3, "max_deliver")

    async def test_a_terminated_job_becomes_a_dead_letter_with_its_reason_once(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"junk", msg_id="j1")
        delivery = await self.pull(bus, spec.ack_wait_s)
        await delivery.term("cannot be parsed")
        await delivery.term("again")
        letter = await self.dead_letter(bus, spec.ack_wait_s)
        assert (letter.payload, letter.deliveries, letter.reason) == (b"junk", 1, "cannot be parsed")
        await self.assert_idle(bus, 2 * spec.ack_wait_s)
        with anyio.move_on_after(spec.ack_wait_s):
            pytest.fail(f"given twice: {await bus.next_dead_letter(RUN)}")

    async def test_a_dead_letter_makes_room_for_another_job(self, bus: Bus, ack_wait_s: float) -> None:
        await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=ack_wait_s, max_deliver=1, max_jobs=1))
        await bus.submit(QUEUE, b"", msg_id="j1")
        await (await self.pull(bus, ack_wait_s)).term("no")
        await self.dead_letter(bus, ack_wait_s)
        assert await bus.submit(QUEUE, b"", msg_id="j2")

    # -- event stream

    async def test_events_are_read_in_order_from_the_first(self, bus: Bus) -> None:
        assert await bus.open_stream(RUN) == 0
        seqs = [await bus.publish(RUN, event(number), msg_id=f"m{number}") for number in range(300)]
        assert seqs == sorted(set(seqs))
        found = await read(bus, 300)
        assert [number_of(posted) for posted in found] == [float(number) for number in range(300)]
        assert [(posted.seq, posted.msg_id) for posted in found] == [(seq, f"m{n}") for n, seq in enumerate(seqs)]
        assert all(posted.at for posted in found)

    async def test_a_reader_may_begin_anywhere_and_as_often_as_it_likes(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        seqs = [await bus.publish(RUN, event(number), msg_id=f"m{number}") for number in range(300)]
        for place in (0, 1, 150, 298):
            found = await read(bus, 299 - place, after=seqs[place])
            assert [posted.seq for posted in found] == seqs[place + 1 :]

    async def test_readers_follow_what_is_published_later_each_at_its_own_pace(
        self, bus: Bus, ack_wait_s: float
    ) -> None:
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(0), msg_id="m0")
        found: dict[float, list[str]] = {}

        async def reader(pause_s: float) -> None:
            seen = found.setdefault(pause_s, [])
            async with aclosing(bus.events(RUN)) as events:
                async for posted in events:
                    seen.append(posted.msg_id)
                    await anyio.sleep(pause_s)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader, 0.0)
            tasks.start_soon(reader, ack_wait_s / 20)
            await anyio.sleep(ack_wait_s / 10)
            for number in range(1, 10):
                await bus.publish(RUN, event(number), msg_id=f"m{number}")
            await anyio.sleep(ack_wait_s)
            tasks.cancel_scope.cancel()
        assert found == {pause_s: [f"m{number}" for number in range(10)] for pause_s in (0.0, ack_wait_s / 20)}

    async def test_concurrent_publishers_get_distinct_places_and_lose_nothing(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        seqs: dict[str, int] = {}

        async def publisher(name: str) -> None:
            for number in range(20):
                seqs[f"{name}{number}"] = await bus.publish(RUN, event(number), msg_id=f"{name}{number}")

        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(publisher, name)
        assert {posted.msg_id: posted.seq for posted in await read(bus, 80)} == seqs
        assert len(set(seqs.values())) == 80

    async def test_an_event_is_stored_once_under_its_id(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, event(1), msg_id="m1")
        await bus.publish(RUN, event(2), msg_id="m2")
        assert await bus.publish(RUN, event(9), msg_id="m1") == first
        assert [number_of(posted) for posted in await read(bus, 2)] == [1.0, 2.0]
        assert await bus.publish(RUN, event(3), msg_id="m3") > first + 1

    async def test_a_published_event_survives_a_restart_with_its_place_and_stamp(
        self, bus: Bus, restart: Callable[[], Bus]
    ) -> None:
        await bus.open_stream(RUN)
        for number in range(5):
            await bus.publish(RUN, event(number), msg_id=f"m{number}")
        before = await read(bus, 5)
        bus = restart()
        assert await bus.open_stream(RUN) == before[-1].seq
        assert await read(bus, 5) == before

    async def test_an_id_is_known_after_a_restart(self, bus: Bus, restart: Callable[[], Bus]) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, event(1), msg_id="m1")
        last = await bus.publish(RUN, event(2), msg_id="m2")
        bus = restart()
        await bus.open_stream(RUN)
        assert await bus.publish(RUN, event(1), msg_id="m1") == first
        assert await bus.publish(RUN, event(3), msg_id="m3") > last

    async def test_a_second_planner_cannot_decide(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        cause = await bus.publish(RUN, event(1), msg_id="m1")
        first = await bus.publish(RUN, decision(cause), msg_id="d1", expected_last_decision=0)
        with pytest.raises(ConflictError):
            await bus.publish(RUN, decision(cause), msg_id="d2", expected_last_decision=0)
        await bus.publish(RUN, event(2), msg_id="m2")
        second = await bus.publish(RUN, decision(cause), msg_id="d3", expected_last_decision=first)
        assert [posted.msg_id for posted in await read(bus, 4)] == ["m1", "d1", "m2", "d3"]
        assert second > first

    async def test_a_decision_published_again_is_the_same_decision(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0)
        assert await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0) == first

    async def test_the_last_decision_is_known_after_a_restart(self, bus: Bus, restart: Callable[[], Bus]) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0)
        await bus.publish(RUN, event(1), msg_id="m1")
        bus = restart()
        await bus.open_stream(RUN)
        with pytest.raises(ConflictError):
            await bus.publish(RUN, decision(2), msg_id="d2", expected_last_decision=0)
        assert await bus.publish(RUN, decision(2), msg_id="d2", expected_last_decision=first) > first

    async def test_an_event_that_is_too_large_is_refused_and_leaves_nothing(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        with pytest.raises(BusError, match="bytes"):
            await bus.publish(RUN, bytes(MAX_EVENT_BYTES + 1), msg_id="m1")
        await bus.publish(RUN, event(1), msg_id="m1")
        assert [number_of(posted) for posted in await read(bus, 1)] == [1.0]

    async def test_a_stream_that_was_not_opened_is_an_error(self, bus: Bus) -> None:
        with pytest.raises(UnknownQueueError):
            await bus.publish(RUN, event(1), msg_id="m1")

    # -- cancelling a run

    async def test_a_cancelled_run_has_no_jobs_and_takes_none(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await bus.submit(QUEUE, b"", msg_id="j2")
        await (await self.pull(bus, spec.ack_wait_s)).nak(spec.ack_wait_s / 2)
        await bus.cancel_run(RUN)
        await self.assert_idle(bus, 2 * spec.ack_wait_s)
        with pytest.raises(CancelledRunError):
            await bus.submit(QUEUE, b"", msg_id="j3")

    async def test_who_works_for_a_cancelled_run_is_told_and_may_still_acknowledge(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        held = await self.pull(bus, spec.ack_wait_s)
        await held.in_progress()
        await bus.cancel_run(RUN)
        with pytest.raises(CancelledRunError):
            await held.in_progress()
        await held.ack()
        await self.assert_idle(bus, 3 * spec.ack_wait_s)

    async def test_cancelling_a_run_leaves_other_runs_and_all_events(self, bus: Bus, spec: QueueSpec) -> None:
        other = QueueSpec(name="ks.job.write.default.any.r2", run_id="r2", ack_wait_s=spec.ack_wait_s)
        await bus.declare_queue(spec)
        await bus.declare_queue(other)
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(1), msg_id="m1")
        await bus.submit(other.name, b"", msg_id="j1")
        await bus.cancel_run(RUN)
        assert (await self.pull(bus, spec.ack_wait_s, other.name)).msg_id == "j1"
        await bus.publish(RUN, event(2), msg_id="m2")
        assert len(await read(bus, 2)) == 2

    # -- key-value entries

    async def test_an_entry_is_read_as_it_was_written(self, bus: Bus) -> None:
        assert await bus.get("r1.lease") is None
        revision = await bus.put("r1.lease", b"\x00me", revision=0)
        entry = await bus.get("r1.lease")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"\x00me", revision)

    async def test_only_who_knows_the_revision_may_change_an_entry(self, bus: Bus) -> None:
        first = await bus.put("k", b"1", revision=0)
        second = await bus.put("k", b"2", revision=first)
        assert second > first
        for stale in (0, first):
            with pytest.raises(ConflictError):
                await bus.put("k", b"3", revision=stale)
            with pytest.raises(ConflictError):
                await bus.delete("k", revision=stale)
        entry = await bus.get("k")
        assert entry is not None
        assert entry.value == b"2"

    async def test_a_removed_entry_can_be_made_anew_under_a_new_revision(self, bus: Bus) -> None:
        first = await bus.put("k", b"1", revision=0)
        await bus.delete("k", revision=first)
        assert await bus.get("k") is None
        with pytest.raises(ConflictError):
            await bus.put("k", b"2", revision=first)
        assert await bus.put("k", b"2", revision=0) > first
