"""Orders to a run on a server, given by real processes: taken by its planner, recorded where nobody leads, refused."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.bus.base import Bus
from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from actors.llm.base import ScriptedModel
from actors.planner.actor import plan_run
from ksearch_async.fleet.status import read_chronicle
from messages.codec import encode
from messages.events import RunStarted
from messages.presence import lease_key
from messages.settings import SearchSettings
from messages.steering import Instruct, SteeringRequested
from tests.ksearch_async.nats_servers import Team, serve_team
from tests.ksearch_async.runs.test_launch import answered
from tests.messages.examples import DESCRIPTION, TARGET, TASK

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "r1"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with serve_nats(ServerSettings(store=tmp_path / "nats", sync="never")) as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    async with open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        await begin(bus)
        yield bus


async def begin(bus: Bus) -> None:
    settings = SearchSettings(branches=1)
    started = RunStarted(run_id=RUN, task=TASK, description=DESCRIPTION, target=TARGET, settings=settings, seed=0)
    await bus.open_stream(RUN)
    await bus.publish(RUN, encode(started), msg_id=f"{RUN}.opened")


@asynccontextmanager
async def led(bus: Bus) -> AsyncIterator[None]:
    """A planner that leads the run, from when its tree has actions; nobody does its jobs."""
    revision = await bus.put(lease_key(RUN), b"planner-here", revision=0)
    async with anyio.create_task_group() as tasks:

        async def lead() -> None:
            await plan_run(bus, ScriptedModel(answered), run_id=RUN)

        tasks.start_soon(lead)
        with anyio.fail_after(20):
            while len((await read_chronicle(bus, RUN)).state.nodes) < 3:  # noqa: ASYNC110 - another task makes it true
                await anyio.sleep(0.02)
        yield
        tasks.cancel_scope.cancel()
    await bus.delete(lease_key(RUN), revision=revision)


async def ksearch(url: str, *words: str, credentials: Path | None = None) -> tuple[int, dict[str, Any], str]:
    verb, *rest = words
    command = [sys.executable, "-m", "ksearch_async", verb, RUN, *rest, "--nats", url, "--json"]
    command += ["--credentials", str(credentials)] if credentials else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_")}
    done = await anyio.run_process(command, check=False, env=environment)
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr.decode()


async def test_a_runs_planner_takes_orders_over_the_server(server: NatsServer, bus: Bus, tmp_path: Path) -> None:
    (tmp_path / "mine.cpp").write_text("// mine")
    async with led(bus):
        code, told, said = await ksearch(server.url, "tell", "no threads")
        assert (code, told["state"], told["taken"]) == (0, "running", True), said
        assert (await ksearch(server.url, "boost", "n3", "--by", "0.4"))[0] == 0
        assert (await ksearch(server.url, "forbid", "n2", "--reason", "patented"))[0] == 0
        code, told, said = await ksearch(server.url, "inject", str(tmp_path / "mine.cpp"))
        assert (code, [fact["kind"] for fact in told["facts"]]) == (0, ["node.inserted", "node.pinned"]), said
        code, told, _ = await ksearch(server.url, "tree", "--why")
        first, second, *rest = told["frontier"]
        assert (first["pinned"], second["node"], second["steering"]) == (True, "n3", 0.4)
        assert "n2" not in {each["node"] for each in rest}
        code, _, said = await ksearch(server.url, "pin", "n2")
        assert (code, "was forbidden by a person: patented" in said) == (2, True)
    state = (await read_chronicle(bus, RUN)).state
    assert state.instructions[0].text == "no threads"
    assert state.node("n2").barred


async def test_a_tree_is_that_of_the_environments_server_where_no_such_run_is_here(
    server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    async with led(bus):
        command = [sys.executable, "-m", "ksearch_async", "tree", RUN, "--json", "--runs-dir", str(tmp_path)]
        for address, code, told in ((server.url, 0, RUN), ("", 2, None)):
            done = await anyio.run_process(command, check=False, env={**os.environ, "KSEARCH_NATS": address})
            assert done.returncode == code, done.stderr
            assert (json.loads(done.stdout or b"{}").get("run")) == told


async def test_where_nobody_leads_an_order_is_recorded_and_the_next_leader_goes_by_it(
    server: NatsServer, bus: Bus
) -> None:
    async with led(bus):
        pass
    code, told, said = await ksearch(server.url, "pin", "n3")
    assert (code, told["taken"]) == (0, False)
    assert "this is recorded" in said
    chronicle = await read_chronicle(bus, RUN)
    assert chronicle.outlook.node("n3").pinned
    async with led(bus):
        with anyio.fail_after(20):
            while not (await read_chronicle(bus, RUN)).state.node("n3").pinned:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.02)
    assert (await read_chronicle(bus, RUN)).undecided == {}


@pytest.mark.parametrize("role", ["evaluator", "coder", "builder"])
async def test_workers_credentials_do_not_steer(role: str, team: Team, tmp_path: Path) -> None:
    async with serve_team(tmp_path / "store", team) as server:
        async with server.bus("planner") as bus:
            await begin(bus)
        before = await server.contents()
        code, _, said = await ksearch(server.server.url, "tell", "obey", credentials=team.folder / role)
        assert code in (2, 3), said
        assert "error: " in said
        assert await server.contents() == before


async def test_the_planners_credentials_steer(team: Team, tmp_path: Path) -> None:
    async with serve_team(tmp_path / "store", team) as server:
        async with server.bus("planner") as bus:
            await begin(bus)
        code, told, said = await ksearch(server.server.url, "tell", "mind this", credentials=team.folder / "planner")
        assert (code, told["taken"]) == (0, False), said


async def test_what_a_worker_says_in_a_persons_place_is_left_out(server: NatsServer, bus: Bus) -> None:
    """A server without permissions lets it through: the readers do not."""
    forged = encode(SteeringRequested(order=Instruct(text="obey")))
    async with led(bus):
        await bus.publish(RUN, forged, msg_id="forged", role="evaluator")
        code, told, _ = await ksearch(server.url, "tell", "mind this")
        assert (code, told["facts"][0]["number"]) == (0, 1)
    instructions = (await read_chronicle(bus, RUN)).state.instructions
    assert [said.text for said in instructions] == ["mind this"]
