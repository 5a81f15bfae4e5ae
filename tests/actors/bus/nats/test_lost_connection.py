"""A link whose other end breaks it is let go like any other."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

import anyio
import pytest
import trustme
from anyio.abc import SocketAttribute, SocketStream
from anyio.lowlevel import checkpoint
from anyio.streams.tls import TLSStream

from actors.bus.nats.connection import Connection
from actors.bus.nats.names import NatsOptions

pytestmark = pytest.mark.anyio

_INFO = b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true,"tls_required":%s}\r\n'
_RESET = struct.pack("ii", 1, 0)


async def _serve_one(end: SocketStream, context: ssl.SSLContext | None) -> None:
    await end.send(_INFO % (b"true" if context else b"false"))
    stream = await TLSStream.wrap(end, server_side=True, ssl_context=context) if context else end
    try:
        while heard := await stream.receive():
            await stream.send(b"PONG\r\n" * heard.count(b"PING\r\n"))
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
        return


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_link_that_the_server_reset_can_be_closed_with_words_unsaid(
    is_encrypted: bool,
    tmp_path: Path,
) -> None:
    ends: list[SocketStream] = []
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def answer(end: SocketStream) -> None:
        ends.append(end)
        if len(ends) == 1:
            await _serve_one(end, context if is_encrypted else None)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - a socket, not a query
        server = f"tls://127.0.0.1:{port}" if is_encrypted else f"nats://127.0.0.1:{port}"
        link = Connection(NatsOptions(servers=(server,), ca=tmp_path / "ca.pem" if is_encrypted else None))
        await link.open()
        ends[0].extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # noqa: S610
        await anyio.aclose_forcefully(ends[0])
        while link.is_up:
            await checkpoint()
        link._client._pending, link._client._pending_data_size = [b"PING\r\n"], 6
        await link.close()
        tasks.cancel_scope.cancel()
