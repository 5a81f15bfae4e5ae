"""One real nats-server for all tests of a session, emptied before each; kept in a thread of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import nats
import pytest
from anyio.from_thread import BlockingPortal

from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats


class Server:
    """The server, as tests on another event loop may treat it."""

    def __init__(self, portal: BlockingPortal, server: NatsServer) -> None:
        self._portal = portal
        self._server = server

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def store(self) -> Path:
        return self._server.store

    async def kill(self) -> None:
        await anyio.to_thread.run_sync(self._portal.call, self._server.kill)

    async def start_again(self) -> None:
        await anyio.to_thread.run_sync(self._portal.call, self._server.restart)

    async def crash(self) -> None:
        await self.kill()
        await self.start_again()

    def options(self, **changed: object) -> NatsOptions:
        return NatsOptions(servers=(self.url,), **changed)  # type: ignore[arg-type]  # fields by name


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = ServerSettings(store=tmp_path_factory.mktemp("nats"), sync="never")
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve_nats(settings)) as server,
    ):
        yield Server(portal, server)


@pytest.fixture
async def server(nats_server: Server) -> Server:
    """The session's server, without what other tests have left."""
    client = await nats.connect(nats_server.url, allow_reconnect=False)
    manager = client.jsm()
    for stream in await manager.streams_info():
        await manager.delete_stream(stream.config.name or "")
    await client.close()
    return nats_server


@pytest.fixture
async def bus(server: Server) -> AsyncIterator[NatsBus]:
    async with open_nats(server.options()) as bus:
        await bus.prepare()
        yield bus


@pytest.fixture
async def restart(server: Server, bus: NatsBus) -> Callable[[], Awaitable[NatsBus]]:
    """Ends the server as a crash does, and starts it again; the same bus goes on."""

    async def restart() -> NatsBus:
        await server.crash()
        return bus

    return restart
