"""A run that nobody leads is forgotten by its server; one that is led is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from actors.bus.base import QueueSpec, UnknownBlobError, UnknownQueueError
from actors.bus.memory import MemoryBus
from actors.bus.nats import NatsBus
from actors.bus.stream import MemoryStore
from actors.planner.leadership import Lease, LeaseTerms
from ksearch_async.fleet.status import find_run_id, forget_run, has_stream
from messages.base import BusError, ConfigError
from messages.presence import RunCard, encode_entry, lease_key, run_key
from messages.subjects import write_jobs
from tests.ksearch_async.nats_servers import Team, TeamServer, serve_team
from tests.ksearch_async.stories import TARGET

pytestmark = pytest.mark.anyio
RUN = "r1"
QUEUE = write_jobs(RUN)


@pytest.fixture
def bus() -> MemoryBus:
    stores: dict[str, MemoryStore] = {}
    return MemoryBus(lambda run_id: stores.setdefault(run_id, MemoryStore()))


async def has_run(bus: MemoryBus | NatsBus) -> str:
    """Make a run with all that a run has, and return the digest of its blob."""
    await bus.open_stream(RUN)
    await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN))
    await bus.submit(QUEUE, b"job", msg_id="j1")
    await bus.publish(RUN, b"event", msg_id="e1")
    card = RunCard(
        run_id=RUN, task_name="relu", language="cpp", target=TARGET, state="finished", submitted_at="", updated_at=""
    )
    await bus.put(run_key(RUN), encode_entry(card), revision=0)
    return await bus.put_blob(RUN, b"artifact")


async def is_whole(bus: MemoryBus | NatsBus) -> bool:
    return await has_stream(bus, RUN) and await bus.get(run_key(RUN)) is not None


@pytest.mark.virtual_time
async def test_a_run_that_somebody_leads_is_refused_and_stays(bus: MemoryBus) -> None:
    await has_run(bus)
    lease = Lease(bus, RUN, "planner-1", LeaseTerms())
    await lease.take()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lease.keep)
        with pytest.raises(ConfigError, match="planner-1 leads run 'r1'") as refused:
            await forget_run(bus, RUN)
        tasks.cancel_scope.cancel()
    assert "ksearch stop r1" in refused.value.__notes__[0]
    assert await is_whole(bus)


@pytest.mark.virtual_time
async def test_the_lease_of_a_planner_that_died_is_waited_for(bus: MemoryBus) -> None:
    await has_run(bus)
    await bus.put(lease_key(RUN), b"planner-1", revision=0, ttl_s=10)
    began = anyio.current_time()
    await forget_run(bus, RUN)
    assert anyio.current_time() - began >= 9
    assert not await has_stream(bus, RUN)


@pytest.mark.virtual_time
async def test_nobody_can_begin_to_lead_a_run_that_is_being_forgotten(
    bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await has_run(bus)
    delete_run, seen = bus.delete_run, []

    async def slowly(run_id: str) -> None:
        entry = await bus.get(lease_key(RUN))
        seen.append(entry is not None and entry.value.startswith(b"ksearch-nats-forget"))
        await delete_run(run_id)

    monkeypatch.setattr(bus, "delete_run", slowly)
    await forget_run(bus, RUN)
    assert seen == [True]
    assert await bus.get(lease_key(RUN)) is None


@pytest.mark.virtual_time
async def test_what_failed_half_way_is_still_found_and_can_be_forgotten_again(
    bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await has_run(bus)
    delete_run = bus.delete_run

    async def fails_behind(run_id: str) -> None:
        await delete_run(run_id)
        raise BusError("the server is away")

    monkeypatch.setattr(bus, "delete_run", fails_behind)
    with pytest.raises(BusError):
        await forget_run(bus, RUN)
    assert await find_run_id(bus, RUN) == RUN
    monkeypatch.undo()
    await forget_run(bus, RUN)
    with pytest.raises(ConfigError, match="no run 'r1' on this server"):
        await find_run_id(bus, RUN)


@pytest.fixture
async def server(tmp_path: Path, team: Team) -> AsyncIterator[TeamServer]:
    async with serve_team(tmp_path / "store", team) as running:
        yield running


@pytest.mark.nats
async def test_a_planners_rights_are_enough_to_forget_and_a_watchers_to_see_what_is_kept(server: TeamServer) -> None:
    async with server.bus("planner") as planner, server.bus("watcher") as watcher:
        digest = await has_run(planner)
        [kept] = await watcher.kept_runs()
        assert (kept.run_id, kept.events) == (RUN, 1)
        assert kept.size_bytes > len(b"event" + b"artifact")
        with pytest.raises(BusError, match="watcher"):
            await forget_run(watcher, RUN)
        assert await is_whole(planner)
        await forget_run(planner, RUN)
        assert await watcher.kept_runs() == ()
        assert await planner.get(run_key(RUN)) is None
        assert not await has_stream(planner, RUN)
        with pytest.raises(UnknownQueueError):
            await planner.submit(QUEUE, b"job", msg_id="j2")
        with pytest.raises(UnknownBlobError):
            await planner.get_blob(RUN, digest)
    assert set(await server.contents()) == {"KV_ks"}
