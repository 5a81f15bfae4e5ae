"""A link between a process and the server that can be stalled and cut: a TCP proxy, one per process."""

from __future__ import annotations

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup, TaskStatus

HOST = "127.0.0.1"
_BYTES = 1 << 16


class Link:
    """Forwards connections to the server's port, while it is whole."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._is_open = anyio.Event()
        self._is_open.set()
        self._refuses = False
        self._ends: set[SocketStream] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Where a client of the server is to connect."""
        return f"nats://{HOST}:{self.port}"

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take connections until cancelled."""
        async with await anyio.create_tcp_listener(local_host=HOST, local_port=0) as listener:
            port = listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - a socket, not a query
            self.port = int(port)
            task_status.started()
            await listener.serve(self._forward)

    def stall(self) -> None:
        """Let nothing through in either direction; connections stay, and new ones are taken and go unanswered."""
        self._is_open = anyio.Event()

    async def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._refuses = True
        for end in list(self._ends):
            await anyio.aclose_forcefully(end)

    def heal(self) -> None:
        """Be whole again. What a stalled link holds goes through late."""
        self._refuses = False
        self._is_open.set()

    async def _forward(self, client: SocketStream) -> None:
        async with client:
            await self._is_open.wait()
            if self._refuses:
                return
            try:
                server = await anyio.connect_tcp(HOST, self._server_port)
            except OSError:
                return
            async with server:
                self._ends |= {client, server}
                try:
                    async with anyio.create_task_group() as both:
                        both.start_soon(self._copy, client, server, both)
                        both.start_soon(self._copy, server, client, both)
                finally:
                    self._ends -= {client, server}

    async def _copy(self, source: SocketStream, sink: SocketStream, both: TaskGroup) -> None:
        try:
            while True:
                received = await source.receive(_BYTES)
                await self._is_open.wait()
                await sink.send(received)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            both.cancel_scope.cancel()
