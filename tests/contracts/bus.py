"""What every bus promises, as tests; an implementation's test file is a few fixtures and an empty subclass."""

from __future__ import annotations

from hashlib import sha256

import anyio
import pytest

from actors.bus.base import (
    MAX_JOB_BYTES,
    Bus,
    CancelledRunError,
    ConflictError,
    QueueSpec,
    UnknownBlobError,
    UnknownQueueError,
)
from messages.base import BusError
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

    async def test_a_cancelled_run_goes_on_once_its_queues_were_dropped_and_declared_anew(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        held = await pull(bus, spec.ack_wait_s)
        await bus.cancel_run(RUN)
        await bus.drop_queues(RUN)
        await bus.declare_queue(spec)
        with pytest.raises(CancelledRunError):
            await held.in_progress()
        await bus.submit(QUEUE, b"", msg_id="j2")
        again = await pull(bus, spec.ack_wait_s)
        await again.in_progress()
        assert again.msg_id == "j2"

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

    async def test_dropped_queues_are_gone_until_they_are_declared_anew_and_then_empty(
        self, bus: Bus, spec: QueueSpec
    ) -> None:
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(1), msg_id="m1")
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        await bus.submit(QUEUE, b"", msg_id="j2")
        held = await pull(bus, spec.ack_wait_s)
        await bus.drop_queues(RUN)
        with pytest.raises(UnknownQueueError):
            await bus.submit(QUEUE, b"", msg_id="j3")
        with pytest.raises(UnknownQueueError), anyio.fail_after(2 * spec.ack_wait_s):
            await bus.pull(QUEUE)
        with pytest.raises(CancelledRunError):
            await held.in_progress()
        await held.ack()
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j4")
        assert (await pull(bus, spec.ack_wait_s)).msg_id == "j4"
        await assert_idle(bus, 0.6 * spec.ack_wait_s)
        assert len(await read(bus, 1)) == 1

    async def test_who_waits_for_a_queue_that_is_dropped_is_told(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.declare_queue(spec)
        told: list[str] = []

        async def work() -> None:
            try:
                await pull(bus, 3 * spec.ack_wait_s)
            except UnknownQueueError:
                told.append("dropped")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await anyio.sleep(spec.ack_wait_s / 10)
            await bus.drop_queues(RUN)
        assert told == ["dropped"]

    async def test_a_deleted_run_leaves_nothing(self, bus: Bus, spec: QueueSpec) -> None:
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(1), msg_id="m1")
        await bus.declare_queue(spec)
        await bus.submit(QUEUE, b"", msg_id="j1")
        digest = await bus.put_blob(RUN, b"artifact")
        await bus.delete_run(RUN)
        await bus.delete_run(RUN)
        with pytest.raises(UnknownQueueError):
            await bus.publish(RUN, event(2), msg_id="m2")
        with pytest.raises(UnknownBlobError):
            await bus.get_blob(RUN, digest)
        with pytest.raises(UnknownQueueError):
            await bus.pull(QUEUE)

    async def test_a_blob_is_kept_under_the_hash_of_its_content(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        for content in (b"", b"\x00small", bytes(range(256)) * 8192 + b"end"):
            digest = await bus.put_blob(RUN, content)
            assert digest == sha256(content).hexdigest()
            assert await bus.put_blob(RUN, content) == digest
            assert await bus.get_blob(RUN, digest) == content
        with pytest.raises(UnknownBlobError):
            await bus.get_blob(RUN, "0" * 64)
        with pytest.raises(UnknownQueueError):
            await bus.put_blob("r2", b"no such run")

    async def test_entries_are_found_by_whole_tokens_of_their_keys(self, bus: Bus) -> None:
        for key in ("node.coder.a", "node.coder.b", "node.builder.a", "nodes.x", "run.r1"):
            await bus.put(key, key.encode(), revision=0)
        assert [(key, entry.value) for key, entry in (await bus.entries("node.coder.")).items()] == [
            ("node.coder.a", b"node.coder.a"),
            ("node.coder.b", b"node.coder.b"),
        ]
        assert sorted(await bus.entries("node.")) == ["node.builder.a", "node.coder.a", "node.coder.b"]
        assert await bus.entries("lease.") == {}
        found = (await bus.entries("run."))["run.r1"]
        assert await bus.put("run.r1", b"2", revision=found.revision) > found.revision

    async def test_an_entry_with_a_time_to_live_goes_unless_it_is_written_again(self, bus: Bus) -> None:
        first = await bus.put("lease.r1", b"a", revision=0, ttl_s=2)
        await anyio.sleep(1.2)
        second = await bus.put("lease.r1", b"a", revision=first, ttl_s=2)
        await anyio.sleep(1.2)
        assert await bus.get("lease.r1") is not None
        with pytest.raises(ConflictError):
            await bus.put("lease.r1", b"b", revision=0, ttl_s=2)
        await anyio.sleep(2)
        assert await bus.get("lease.r1") is None
        assert await bus.entries("lease.") == {}
        with pytest.raises(ConflictError):
            await bus.put("lease.r1", b"a", revision=second, ttl_s=2)
        assert await bus.put("lease.r1", b"b", revision=0, ttl_s=2) > second

    async def test_what_no_bus_can_keep_is_refused(self, bus: Bus) -> None:
        for key in ("", "a b", "a*", ".a", "a.", "a..b"):
            with pytest.raises(BusError, match="key"):
                await bus.put(key, b"", revision=0)
        with pytest.raises(BusError, match="bytes"):
            await bus.put("k", bytes(MAX_JOB_BYTES + 1), revision=0)
        assert await bus.get("k") is None

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
