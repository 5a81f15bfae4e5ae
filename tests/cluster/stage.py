"""A cluster of three servers on this host, a run of real processes on it, and the loss of one server in the middle.

Every process signs in with its own role's credentials, so this is also a whole run under the rights of a team.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import msgspec

from actors.bus.journal import read_journal
from actors.bus.nats import NatsBus, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from ksearch_async.fleet.access import TeamRole, options_for
from ksearch_async.fleet.server_config import make_team, server_config
from messages.codec import Record
from tests.chaos.checks import differences, problems_of_run
from tests.chaos.fleet import MARKER, Worker, gone
from tests.chaos.remains import records_of
from tests.cluster.fleet import Fleet

SIZE = 3
RUN = "cluster"
_HOST = "127.0.0.1"
_READY_S = 60.0
_ORPHANS_S = 10.0


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What is played."""

    rounds: int = 120
    branches: int = 4
    latency_s: float = 0.5
    """Of the built-in rules' answers."""
    evaluation_s: float = 0.2
    lost_after: float = 0.3
    """Part of the rounds after which a server is killed."""
    stream: str = f"KS_EVT_{RUN}"
    """The server that leads this stream is killed."""
    grace_s: float = 120.0
    returns: bool = True
    """Start it again once the run is over, and wait until it has caught up."""


class Outcome(msgspec.Struct, kw_only=True):
    """How it ended."""

    problems: list[str] = []
    rounds: int = 0
    usual_gap_s: float = 0.0
    """Longest time between two events before the loss."""
    gap_s: float = 0.0
    """Longest time between two events since."""
    stalled_s: float = 0.0
    """From the loss to the next finished evaluation."""
    led: list[str] = []
    """The streams that the lost server led."""
    caught_up_s: float | None = None
    """How long the server took to be current again, once it was started."""
    wall_s: float = 0.0


class Cluster(msgspec.Struct, frozen=True):
    """Servers that keep copies of each other's streams, and the credentials of a team."""

    servers: tuple[NatsServer, ...]
    credentials: Path

    @property
    def url(self) -> str:
        """Addresses of all servers."""
        return ",".join(server.url for server in self.servers)

    @asynccontextmanager
    async def bus(self, role: TeamRole) -> AsyncIterator[NatsBus]:
        """Open the bus as somebody."""
        options = options_for(self.url, {}, role=role, credentials=self.credentials / role)
        async with open_nats(options) as bus:
            yield bus

    async def leaders(self) -> dict[str, int]:
        """Return stream → which server leads it."""
        found: dict[str, int] = {}
        for number, server in enumerate(self.servers):
            if server.pid:
                streams = await _streams(server)
                found |= {name: number for name, leader in streams.items() if leader == _name(number)}
        return found


@asynccontextmanager
async def serve_cluster(folder: Path, *, size: int = SIZE) -> AsyncIterator[Cluster]:
    """Run a prepared cluster whose bucket, and so all streams, have a copy on each server."""
    users = await anyio.to_thread.run_sync(make_team, folder / "credentials")
    ports, password = _free_ports(size), secrets.token_hex(16)
    routes = ", ".join(f'"nats-route://ksearch:{password}@{_HOST}:{port}"' for port in ports)
    async with AsyncExitStack() as stack:
        servers = []
        for number, port in enumerate(ports):
            place = (  # as docs/guides/distributed.md says
                f'server_name: "{_name(number)}"\ncluster {{\n  name: ksearch\n  listen: "{_HOST}:{port}"\n'
                f'  authorization {{ user: ksearch, password: "{password}" }}\n  routes: [{routes}]\n}}\n'
            )
            settings = ServerSettings(store=folder / _name(number), config=place + server_config(users))
            servers.append(await stack.enter_async_context(serve_nats(settings)))
        cluster = Cluster(tuple(servers), folder / "credentials")
        async with cluster.bus("admin") as bus:
            await bus.prepare(replicas=size)
        yield cluster


async def lose_a_server(told: Loss, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Play it.

    Args:
        told: what is played.
        folder: an empty folder for logs, stores and the run.
        tell: is told what happens.
    """
    began, outcome, mark = anyio.current_time(), Outcome(), secrets.token_hex(8)
    with _marked(mark):
        async with serve_cluster(folder) as cluster, cluster.bus("admin") as bus, anyio.create_task_group() as tasks:
            tell(f"{len(cluster.servers)} servers are ready")
            team = Fleet(cluster.url, cluster.credentials, folder)
            workers = await team.start_workers(
                tasks, evaluation_s=told.evaluation_s, coder=("--latency", f"{told.latency_s:g}")
            )
            run = await team.start_run(tasks, RUN, rounds=told.rounds, branches=told.branches, more=("--view", "plain"))
            with anyio.move_on_after(told.grace_s) as waiting:
                lost, at = await _lose(bus, run, cluster, told, outcome)
                tell(f"{_name(lost)} was killed; it led {', '.join(outcome.led)}")
                await run.wait()
            if waiting.cancelled_caught:
                outcome.problems.append(f"the run did not end within {told.grace_s:g} s")
            else:
                tell("the run is over")
                await _look(bus, folder, told, outcome, at)
            if told.returns:
                outcome.caught_up_s = await _bring_back(cluster, lost, outcome)
            for worker in (run, *workers):
                await worker.stop()
                outcome.problems += [worker.complaint] if worker.complaint else []
                outcome.problems += [f"{worker.name} ended by itself with {code}" for code in worker.exits]
            tasks.cancel_scope.cancel()
    outcome.problems += [f"left behind: {what}" for what in await gone(mark, within_s=_ORPHANS_S)]
    outcome.wall_s = round(anyio.current_time() - began, 1)
    return outcome


async def _lose(bus: NatsBus, run: Worker, cluster: Cluster, told: Loss, outcome: Outcome) -> tuple[int, datetime]:
    """Kill the server that leads the run's stream once it has some rounds. Returns which, and when."""
    wanted = int(told.rounds * told.lost_after)
    with anyio.fail_after(_READY_S):
        while await _rounds_of(bus) < wanted:
            if run.pid is None:
                raise RuntimeError(f"the run did not go on: {await anyio.Path(run.log).read_text()}")
            await anyio.sleep(0.1)
    leaders = await cluster.leaders()
    lost = leaders[told.stream]
    outcome.led = sorted(stream for stream, number in leaders.items() if number == lost)
    at = datetime.now().astimezone()
    await cluster.servers[lost].kill()
    return lost, at


async def _rounds_of(bus: NatsBus) -> int:
    entries = await bus.entries("run.")
    return sum(int(msgspec.json.decode(entry.value)["rounds"]) for entry in entries.values())


async def _look(bus: NatsBus, folder: Path, told: Loss, outcome: Outcome, at: datetime) -> None:
    """Check what the run left, and measure how long it stood still."""
    records = await records_of(bus, RUN)
    copy = await anyio.to_thread.run_sync(lambda: list(read_journal(folder / "runs" / RUN / "journal.jsonl")))
    outcome.problems += [*problems_of_run(records, rounds=told.rounds), *differences(records, copy)]
    stamps = [datetime.fromisoformat(record.at) for record in records]
    before = [later - earlier for earlier, later in pairwise(stamps) if later < at]
    since = [later - earlier for earlier, later in pairwise(stamps) if later >= at]
    outcome.usual_gap_s = round(max(before).total_seconds(), 2)
    outcome.gap_s = round(max(since).total_seconds(), 2)
    outcome.stalled_s = round(min((_end(record) - at).total_seconds() for record in records if _end(record) > at), 2)
    outcome.rounds = told.rounds


def _end(record: Record) -> datetime:
    """Return when an evaluation was finished; for other events a time long ago."""
    is_evaluation = type(record.body).__name__ == "CandidateEvaluated"
    return datetime.fromisoformat(record.at if is_evaluation else "2000-01-01T00:00:00+00:00")


async def _bring_back(cluster: Cluster, lost: int, outcome: Outcome) -> float | None:
    """Start the server again, and wait until its copies are those of the others."""
    server = cluster.servers[lost]
    began = anyio.current_time()
    await server.restart()
    with anyio.move_on_after(_READY_S):
        async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
            while (await client.get(f"{server.monitoring_url}/healthz")).status_code != httpx.codes.OK:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        return round(anyio.current_time() - began, 1)
    outcome.problems.append(f"{_name(lost)} did not catch up within {_READY_S:g} s")
    return None


class _Raft(msgspec.Struct, frozen=True):
    leader: str = ""


class _Stream(msgspec.Struct, frozen=True):
    name: str
    cluster: _Raft = _Raft()


class _Account(msgspec.Struct, frozen=True):
    stream_detail: list[_Stream] = []


class _Jetstream(msgspec.Struct, frozen=True):
    account_details: list[_Account] = []


async def _streams(server: NatsServer) -> dict[str, str]:
    """Return stream → the name of its leader, as one server knows it."""
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        answer = await client.get(f"{server.monitoring_url}/jsz?accounts=1&streams=1")
    told = msgspec.json.decode(answer.content, type=_Jetstream)
    return {stream.name: stream.cluster.leader for account in told.account_details for stream in account.stream_detail}


@contextmanager
def _marked(mark: str) -> Iterator[None]:
    """Have every process that is started meanwhile carry the mark."""
    os.environ[MARKER] = mark
    try:
        yield
    finally:
        del os.environ[MARKER]


def _name(number: int) -> str:
    return f"server-{number + 1}"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((_HOST, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
