"""Orders to a run on a server, given by real processes: what is said, and with which exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from actors.bus.base import Bus
from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from messages.codec import encode
from messages.events import RunStarted
from messages.facts import Decided, Fact, RunFinished, RunPaused, RunStopping, SearchOpened
from messages.presence import lease_key
from messages.settings import SearchSettings
from tests.messages.examples import DESCRIPTION, TARGET, TASK

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "r1"
STOPPING = RunStopping(stopped_by="interrupted", detail="enough")
FINISHED = RunFinished(stopped_by="interrupted", rounds=0, best_id=None, credit=None, speedup=None)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with serve_nats(ServerSettings(store=tmp_path / "nats", sync="never")) as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    async with open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        yield bus


async def decide(bus: Bus, *facts: Fact, led: bool) -> None:
    """Have a run opened, and these facts decided; and somebody lead it, or nobody."""
    settings = SearchSettings()
    started = RunStarted(run_id=RUN, task=TASK, description=DESCRIPTION, target=TARGET, settings=settings, seed=0)
    opened = SearchOpened(run_id=RUN, task_id=TASK.task_id, target=TARGET, settings=settings, seed=0)
    await bus.open_stream(RUN)
    cause = await bus.publish(RUN, encode(started), msg_id=f"{RUN}.opened")
    decided = Decided(cause=cause, facts=(opened, *facts))
    await bus.publish(RUN, encode(decided), msg_id=f"{RUN}.d1", expected_last_decision=0)
    if led:
        await bus.put(lease_key(RUN), b"planner-elsewhere", revision=0)


async def ksearch(server: NatsServer, verb: str) -> tuple[int, dict[str, object], str]:
    command = [sys.executable, "-m", "ksearch_async", verb, RUN, "--nats", server.url, "--json"]
    done = await anyio.run_process(command, check=False)
    return done.returncode, json.loads(done.stdout or b"{}"), done.stderr.decode()


@pytest.mark.parametrize(
    ("verb", "facts", "state", "words"),
    [
        ("stop", (STOPPING,), "stopping", "is stopping already"),
        ("stop", (STOPPING, FINISHED), "finished", "is over already"),
        ("pause", (RunPaused(reason="lunch"),), "paused", "is paused already"),
        ("continue", (), "running", "is not paused"),
    ],
)
async def test_what_is_so_already_is_said_and_is_no_error(
    verb: str, facts: tuple[Fact, ...], state: str, words: str, server: NatsServer, bus: Bus
) -> None:
    await decide(bus, *facts, led=True)
    code, told, said = await ksearch(server, verb)
    assert (code, told) == (0, {"run": RUN, "state": state, "taken": False})
    assert words in said


async def test_a_run_that_stops_and_that_nobody_leads_is_an_error_that_names_the_way_out(
    server: NatsServer, bus: Bus
) -> None:
    await decide(bus, STOPPING, led=False)
    code, told, said = await ksearch(server, "stop")
    assert (code, told) == (3, {"run": RUN, "state": "stopping", "taken": False})
    assert "error: no planner leads run r1" in said
    assert "hint: ksearch planner r1" in said


async def test_a_run_that_is_over_cannot_be_paused(server: NatsServer, bus: Bus) -> None:
    await decide(bus, STOPPING, FINISHED, led=False)
    code, _, said = await ksearch(server, "pause")
    assert code == 2
    assert "run 'r1' is stopped: it cannot pause" in said
    assert "hint: ksearch resume r1 goes on with it" in said
