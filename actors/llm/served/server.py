"""Serves an ASGI application on this host's loopback address, until cancelled; then shuts down in order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

HOST = "127.0.0.1"
_PARTING_S = 1
"""Seconds for requests in flight at the end."""


def listening_socket(port: int) -> socket.socket:
    """Return a socket on the loopback address; port 0: a free one. Raises `OSError` if the port is taken."""
    return socket.create_server((HOST, port), backlog=1024)


async def serve_app(
    app: ASGIApp, listener: socket.socket, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; reports `started` once requests are answered. The listener is closed at the end."""
    config = uvicorn.Config(
        app,
        access_log=False,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="critical",  # answers that break off on purpose are no errors
        timeout_graceful_shutdown=_PARTING_S,
        ws="none",
    )
    server = _Server(config, task_status)

    async def serve() -> None:
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listener])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            await anyio.sleep_forever()
        finally:
            server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves signals to the caller, and reports when it is ready."""

    def __init__(self, config: uvicorn.Config, task_status: TaskStatus[None]) -> None:
        super().__init__(config)
        self._task_status = task_status

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._task_status.started()
