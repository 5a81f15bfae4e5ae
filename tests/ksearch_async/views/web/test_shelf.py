"""What the dashboard keeps of runs, and for how long; runs on a server beside those in folders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from ksearch_async.views.web.runs import KEPT_RUNS, FolderPlace, ServerPlace, Shelf, UnknownRunError
from messages.presence import Presence, RunCard, encode_entry, lease_key, node_key, run_key
from tests.ksearch_async.runs.test_reading import StreamRun
from tests.ksearch_async.stories import KERNEL, RUN_ID, TARGET, on_disk, sequel, story
from tests.ksearch_async.views.web.dashboards import BEARER, dashboard_of, events, until

pytestmark = pytest.mark.anyio
NOW = "2026-11-20T14:23:00+00:00"


@asynccontextmanager
async def kept(runs_dir: Path, *, idle_s: float, kept_updates: int = 1000) -> AsyncIterator[Shelf]:
    shelf = Shelf([FolderPlace(runs_dir)], idle_s=idle_s, kept_updates=kept_updates, look_s=0.01)
    async with anyio.create_task_group() as tasks:
        await tasks.start(shelf.keep)
        yield shelf
        tasks.cancel_scope.cancel()


async def test_a_run_is_folded_once_however_many_look_at_it(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with kept(tmp_path, idle_s=1000.0) as shelf, shelf.run(RUN_ID) as one:
        async with shelf.run(RUN_ID) as other:
            assert other is one
        async with shelf.run(RUN_ID) as later:
            assert later is one


async def test_a_run_that_nobody_looks_at_is_dropped_and_opened_again_when_somebody_does(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with kept(tmp_path, idle_s=0.0) as shelf:
        async with shelf.run(RUN_ID) as one:
            assert shelf.open_runs == [RUN_ID]

        async def is_dropped() -> bool:
            return not shelf.open_runs

        await until(is_dropped)
        async with shelf.run(RUN_ID) as another:
            assert another is not one
            assert another.updates == one.updates


async def test_the_list_keeps_runs_of_the_past_open_as_far_as_there_is_room(tmp_path: Path) -> None:
    for number in range(5):
        on_disk(tmp_path, story(), f"r{number}")
    async with kept(tmp_path, idle_s=1000.0, kept_updates=2 * len(story())) as shelf:

        async def are_read() -> bool:
            return [row.standing for row in shelf.rows()] == ["finished"] * 5

        await until(are_read)
        assert len(shelf.open_runs) == 2
        (closed, *_) = {f"r{number}" for number in range(5)} - set(shelf.open_runs)
        async with shelf.run(closed):
            assert closed in shelf.open_runs

        async def has_room() -> bool:
            return len(shelf.open_runs) == 2

        await until(has_room)
        assert closed in shelf.open_runs


async def test_only_so_many_runs_of_the_past_are_kept_however_short_they_are(tmp_path: Path) -> None:
    many = KEPT_RUNS + 5
    for number in range(many):
        on_disk(tmp_path, story(), f"r{number}")
    async with kept(tmp_path, idle_s=1000.0, kept_updates=1000 * many) as shelf:

        async def are_read() -> bool:
            return [row.standing for row in shelf.rows()] == ["finished"] * many

        await until(are_read)
        assert len(shelf.open_runs) == KEPT_RUNS


async def test_a_run_that_is_removed_leaves_the_list(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, story())
    async with kept(tmp_path, idle_s=1000.0) as shelf:

        async def is_listed() -> bool:
            return bool(shelf.rows())

        async def is_gone() -> bool:
            return not shelf.rows()

        await until(is_listed)
        folder.journal.unlink()
        await until(is_gone)
        with pytest.raises(UnknownRunError, match=RUN_ID):
            async with shelf.run(RUN_ID):
                pass


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with serve_nats(ServerSettings(store=tmp_path / "nats", sync="never")) as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    async with open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        yield bus


async def show(bus: NatsBus) -> int:
    """Show a run and a coder, as they do themselves; return the revision of the run's lease."""
    card = RunCard(
        run_id=RUN_ID, task_name="relu", language="cpp", target=TARGET, submitted_at=NOW, updated_at=NOW, rounds=2
    )
    coder = Presence(
        name="coder-1",
        role="coder",
        host="h",
        pid=7,
        version="0",
        state="ready",
        started_at=NOW,
        seen_at=NOW,
    )
    await bus.put(run_key(RUN_ID), encode_entry(card), revision=0)
    await bus.put(node_key("coder", "coder-1"), encode_entry(coder), revision=0)
    return await bus.put(lease_key(RUN_ID), b"planner-1", revision=0)


@pytest.mark.nats
async def test_runs_of_a_server_are_shown_beside_those_in_folders(
    server: NatsServer, bus: NatsBus, tmp_path: Path
) -> None:
    on_disk(tmp_path / "runs", story(), "here")
    await bus.open_stream(RUN_ID)
    run = StreamRun(bus)
    for record in story(None):
        await run.append(record)
    lease = await show(bus)
    known = len(story(None))
    async with dashboard_of([ServerPlace(bus, server.url), FolderPlace(tmp_path / "runs")]) as (client, shelf):

        async def are_read() -> bool:
            return len(shelf.rows()) == 2 and all(row.standing != "unread" for row in shelf.rows())

        await until(are_read)
        rows = {row.run_id: row for row in shelf.rows()}
        assert (rows["here"].place, rows["here"].standing) == ("folder", "finished")
        assert (rows[RUN_ID].place, rows[RUN_ID].standing, rows[RUN_ID].speedup) == ("server", "running", 2.0)
        for record in sequel()[known:]:
            await run.append(record)
        told = await events(client, f"/api/runs/{RUN_ID}/updates?after={known}", 2)
        assert [event.number for event in told] == [known + 1, known + 2]
        node = (await client.get(f"/api/runs/{RUN_ID}/nodes/n1")).json()
        assert [attempt["candidate_id"] for attempt in node["attempts"]][1] == KERNEL.candidate_id
        nodes = (await client.get("/api/nodes")).json()
        assert [each["presence"]["name"] for each in nodes["nodes"]] == ["coder-1"]
        assert (await client.get("/api/server")).json()["place"] == "server"
        assert (await client.get("/api/runs/nobody/history")).status_code == 404
        assert (await client.get("/api/runs/NO.BODY/history")).status_code == 404
        await bus.delete(lease_key(RUN_ID), revision=lease)
        given = await client.post(
            f"/api/runs/{RUN_ID}/orders", json={"order": "tell", "text": "Keep to one launch."}, headers=BEARER
        )
        assert "instruction 1, to planner and coders: Keep to one launch." in given.json()["said"]
