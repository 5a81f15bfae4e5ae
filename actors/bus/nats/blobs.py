"""Blobs: content stored under its hash, split into message-sized parts, in a stream of its run.

The first part is written last, so a blob is either complete or absent. Payloads too large for a message are also sent
as blobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import anyio
import structlog
from anyio import to_thread

from actors.bus.base import MAX_BLOB_BYTES, UnknownBlobError, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import PAUSE_S, Connection, message_bytes
from messages.base import BusError

log = structlog.get_logger(__name__)

PART_BYTES = 512 << 10
_AT_ONCE = 4
_SMALLEST_PART = 1 << 10
_PATIENCE_S = 5.0
"""Seconds to keep looking for a named blob, since other servers of a cluster may receive it later."""
_HASHED_HERE = 1 << 20
"""Larger contents are hashed in a thread."""


class Blobs:
    """The blobs of all runs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, run_id: str, content: bytes) -> str:
        """See `Bus.put_blob`."""
        if len(content) > MAX_BLOB_BYTES:
            raise BusError(f"a blob of {len(content)} bytes; at most {MAX_BLOB_BYTES} may be kept")
        digest = await _digest_of(content)
        what = f"blob {digest[:12]} of run {run_id!r}"
        stream = names.blob_stream(run_id)
        if await self._connection.read(stream, names.blob_part(run_id, digest, 0), what=what) is not None:
            return digest
        part_bytes = min(PART_BYTES, self._connection.max_payload // 2)
        parts = [content[start : start + part_bytes] for start in range(0, len(content), part_bytes)] or [b""]
        limit = anyio.Semaphore(_AT_ONCE)

        async def send(number: int) -> None:
            headers = {names.SIZE: f"{len(content)} {len(parts)}"}
            async with limit:
                subject = names.blob_part(run_id, digest, number)
                await self._connection.store(subject, parts[number], headers, stream=stream, what=what)

        async with anyio.create_task_group() as tasks:
            for number in range(1, len(parts)):
                tasks.start_soon(send, number)
        await send(0)
        return digest

    async def get(self, run_id: str, digest: str) -> bytes:
        """See `Bus.get_blob`."""
        what = f"blob {digest[:12]} of run {run_id!r}"
        try:
            first = await self._part(run_id, digest, 0, what)
        except UnknownQueueError as error:
            raise UnknownBlobError(f"run {run_id!r} has no blob {digest!r}: {error}") from error
        size, count = _plan(first, what)
        parts = [first.payload] + [b""] * (count - 1)
        limit = anyio.Semaphore(_AT_ONCE)

        async def fetch(number: int) -> None:
            async with limit:
                parts[number] = (await self._part(run_id, digest, number, what)).payload

        async with anyio.create_task_group() as tasks:
            for number in range(1, count):
                tasks.start_soon(fetch, number)
        content = b"".join(parts)
        if len(content) != size or await _digest_of(content) != digest:
            raise UnknownBlobError(f"{what} is damaged: its content has another hash")
        return content

    async def spill(self, run_id: str, payload: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        """Return the payload and headers to send; store a large payload as a blob named in a header."""
        if message_bytes(payload, headers) <= self._connection.max_payload:
            return payload, headers
        digest = await self.put(run_id, payload)
        return b"", headers | {names.BLOB: digest}

    async def restore(self, run_id: str, payload: bytes, headers: Mapping[str, str]) -> bytes:
        """Return the original payload; empty, which no reader can parse, if its blob is missing or damaged."""
        digest = headers.get(names.BLOB)
        if digest is None:
            return payload
        error = ""
        with anyio.move_on_after(_PATIENCE_S):
            while True:
                try:
                    return await self.get(run_id, digest)
                except UnknownBlobError as missing:
                    error = str(missing)
                await anyio.sleep(PAUSE_S)
        log.warning("the blob that a message names cannot be had", run=run_id, blob=digest, error=error)
        return b""

    async def _part(self, run_id: str, digest: str, number: int, what: str) -> Reply:
        subject = names.blob_part(run_id, digest, number)
        reply = await self._connection.read(names.blob_stream(run_id), subject, what=what)
        if reply is None:
            raise UnknownBlobError(f"run {run_id!r} has no blob {digest!r} (part {number})")
        return reply


def _plan(first: Reply, what: str) -> tuple[int, int]:
    """Read the size and number of parts from the first part. Raises `UnknownBlobError` if they are invalid."""
    words = first.headers.get(names.SIZE, "").split()
    if len(words) == 2 and all(word.isdigit() for word in words):
        size, count = map(int, words)
        if size <= MAX_BLOB_BYTES and 1 <= count <= 1 + size // _SMALLEST_PART:
            return size, count
    raise UnknownBlobError(f"{what} is damaged: it does not say how large it is")


async def _digest_of(content: bytes) -> str:
    if len(content) <= _HASHED_HERE:
        return sha256(content).hexdigest()
    return await to_thread.run_sync(lambda: sha256(content).hexdigest())
