"""Real nats-servers with a team's users, for tests of who may do what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from ksearch_async.fleet.access import TeamRole, inbox, options_for
from ksearch_async.fleet.server_config import SignIn, TlsFiles, server_config

PATIENCE_S = 20.0


class Team(msgspec.Struct, frozen=True):
    """Users of a server, and the folder with a file for each."""

    users: dict[TeamRole, SignIn]
    folder: Path


class TeamServer(msgspec.Struct, frozen=True):
    """A running server with a team's users."""

    server: NatsServer
    team: Team
    environment: dict[str, str] = {}
    """What clients are told about certificates."""

    def options(self, role: TeamRole) -> NatsOptions:
        """Return how a role signs in."""
        return options_for(self.server.url, self.environment, role=role, credentials=self.team.folder / role)

    @asynccontextmanager
    async def bus(self, role: TeamRole) -> AsyncIterator[NatsBus]:
        """Open the bus as somebody."""
        async with open_nats(self.options(role)) as bus:
            yield bus

    @asynccontextmanager
    async def intruder(self, role: TeamRole) -> AsyncIterator[Intruder]:
        """Sign in with a role's credentials, and with a client that knows no manners."""
        options = self.options(role)
        intruder = Intruder()

        async def note(error: Exception) -> None:
            intruder.violations.append(str(error))

        await intruder.client.connect(
            list(options.servers),
            user=options.user,
            password=options.password,
            inbox_prefix=inbox(role),
            allow_reconnect=False,
            error_cb=note,
        )
        try:
            yield intruder
        finally:
            await intruder.client.close()

    async def contents(self) -> dict[str, tuple[int, int, int]]:
        """Return stream → messages, first and last number: what an intruder must not change."""
        options = self.options("admin")
        client = Client()
        await client.connect(list(options.servers), user=options.user, password=options.password)
        try:
            streams = await client.jetstream().streams_info()
        except NotFoundError:
            return {}
        finally:
            await client.close()
        return {
            str(stream.config.name): (stream.state.messages, stream.state.first_seq, stream.state.last_seq)
            for stream in streams
        }


class Intruder:
    """A raw client that has a role's credentials."""

    def __init__(self) -> None:
        self.client = Client()
        self.violations: list[str] = []
        self._asked = 0

    async def tries(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> bool:
        """Publish; say whether the server let it pass."""
        await self.client.publish(subject, payload, reply=reply, headers=headers)
        return not await self._is_refused(subject)

    async def listens(self, subject: str) -> bool:
        """Subscribe; say whether the server let it pass."""
        await self.client.subscribe(subject)
        return not await self._is_refused(subject)

    async def _is_refused(self, subject: str) -> bool:
        """Say whether the server complained of a subject. Complaints come in order: wait for one that is certain."""
        self._asked += 1
        certain = f"forbidden.{self._asked}"
        await self.client.publish(certain)
        with anyio.fail_after(PATIENCE_S):
            while not self._complained_of(certain):  # noqa: ASYNC110 - the client sets no event
                await anyio.sleep(0.001)
        return self._complained_of(subject)

    def _complained_of(self, subject: str) -> bool:
        return any("permissions violation" in said and f'"{subject.lower()}"' in said for said in self.violations)


@asynccontextmanager
async def serve_team(
    store: Path, team: Team, *, tls: TlsFiles | None = None, environment: dict[str, str] | None = None
) -> AsyncIterator[TeamServer]:
    """Run a prepared server with these users."""
    settings = ServerSettings(store=store, config=server_config(team.users, tls=tls), sync="never")
    async with serve_nats(settings) as server:
        running = TeamServer(server, team, environment or {})
        async with running.bus("admin") as bus:
            await bus.prepare()
        yield running
