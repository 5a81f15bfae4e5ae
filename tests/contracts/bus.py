"""What every bus promises, as tests; an implementation's test file is a few fixtures and an empty subclass."""

from __future__ import annotations

import pytest

from actors.bus.base import Bus, CancelledRunError, ConflictError, QueueSpec
from tests.contracts.bus_queues import QueueContract
from tests.contracts.bus_streams import StreamContract, event, read
from tests.contracts.bus_words import QUEUE, RUN, assert_idle, pull


class BusContract(QueueContract, StreamContract):
    """All promises of `actors.bus.base.Bus`. Needs the fixtures `bus`, `restart` and `ack_wait_s`.

    `restart` ends the bus and gives another one over the same streams; `ack_wait_s` is how long the tests may take a
    time-out to be, so that a bus on the real clock is not kept waiting.
    """

    @pytest.fixture
    def spec(self, ack_wait_s: float) -> QueueSpec:
        return QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=ack_wait_s, max_deliver=3, max_jobs=4)

    async def test_a_cancelled_run_has_no_jobs_and_takes_none(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await bus.submit(QUEUE, b"", msg_id="j2")
        await (await pull(bus, spec.ack_wait_s)).nak(spec.ack_wait_s / 2)
        await bus.cancel_run(RUN)
        await assert_idle(bus, 2 * spec.ack_wait_s)
        with pytest.raises(CancelledRunError):
            await bus.submit(QUEUE, b"", msg_id="j3")

    async def test_who_works_for_a_cancelled_run_is_told_and_may_still_acknowledge(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        held = await pull(bus, spec.ack_wait_s)
        await held.in_progress()
        await bus.cancel_run(RUN)
        with pytest.raises(CancelledRunError):
            await held.in_progress()
        await held.ack()
        await assert_idle(bus, 3 * spec.ack_wait_s)

    async def test_cancelling_a_run_leaves_other_runs_and_all_events(self, bus: Bus, spec: QueueSpec) -> None:
        other = QueueSpec(name="ks.job.write.default.any.r2", run_id="r2", ack_wait_s=spec.ack_wait_s)
        await bus.declare_queue(spec)
        await bus.declare_queue(other)
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(1), msg_id="m1")
        await bus.submit(other.name, b"", msg_id="j1")
        await bus.cancel_run(RUN)
        assert (await pull(bus, spec.ack_wait_s, other.name)).msg_id == "j1"
        await bus.publish(RUN, event(2), msg_id="m2")
        assert len(await read(bus, 2)) == 2

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
