"""Key-value entries: one JetStream bucket for all entries, read without watchers.

The module uses raw messages: nats-py's bucket can neither renew a time to live nor tell an expired entry's marker from
an entry.

After a kill, nats-server 2.15 restores a replaced entry once its replacement has expired. So the mark of a removed
entry lives as long as the entry, and an entry without a time to live is never put again with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from actors.bus.base import ConflictError, Entry, UnknownQueueError, check_entry
from actors.bus.nats import names
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection, NoAnswerError, Patience
from actors.bus.nats.wire import WRONG_LAST_SEQUENCE, RefusedError, StreamConfig, StreamInfo, proves_nothing
from messages.base import BusError

GHOST_S = 60.0
"""Seconds past its time to live after which an entry counts as restored by a killed server. Host clocks must differ by
less."""


class Bucket:
    """All entries."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._replicas = 0

    async def prepare(self, replicas: int) -> None:
        """Create the bucket, or change its number of replicas."""
        config = StreamConfig(
            name=names.BUCKET,
            subjects=(f"{names.ENTRIES}>",),
            discard="new",
            num_replicas=replicas,
            max_msgs_per_subject=1,
            duplicate_window=120_000_000_000,
            allow_direct=True,
            allow_msg_ttl=True,
        )
        what = "making the bucket"
        found = await self._connection.info(names.BUCKET, what=what)
        if found is None:
            await self._connection.make_stream(config, what=what)
        elif found.replicas != replicas:
            changed = {**found.config, "num_replicas": replicas}
            await self._connection.call(f"STREAM.UPDATE.{names.BUCKET}", changed, StreamInfo, what=what)
        self._replicas = replicas

    async def replicas(self) -> int:
        """Return the number of replicas per stream. Raises `BusError` if this server was not prepared."""
        if self._connection.options.replicas is not None:
            return self._connection.options.replicas
        if not self._replicas:
            found = await self._connection.info(names.BUCKET, what="looking for the bucket")
            if found is None:
                raise not_prepared(self._connection.where)
            self._replicas = found.replicas
        return self._replicas

    async def get(self, key: str) -> Entry | None:
        """See `Bus.get`."""
        reply = await self._last(key)
        gone = reply is None or is_gone(reply, datetime.now(UTC))
        return None if reply is None or gone else Entry(value=reply.payload, revision=reply.sequence)

    async def under(self, prefix: str) -> Mapping[str, Entry]:
        """See `Bus.entries`."""
        what = f"reading entries {prefix!r}"
        patience = Patience(self._connection, what)
        while True:
            try:
                found = await self._stored(f"{names.ENTRIES}{prefix}>")
                break
            except NoAnswerError as error:
                if await self._connection.info(names.BUCKET, what=what) is None:
                    raise not_prepared(self._connection.where) from error
                await patience.take(str(error))
        now = datetime.now(UTC)
        there = {reply.headers["Nats-Subject"]: reply for reply in found}
        return {
            subject.removeprefix(names.ENTRIES): Entry(value=reply.payload, revision=reply.sequence)
            for subject, reply in sorted(there.items())
            if not is_gone(reply, now)
        }

    async def _stored(self, subject: str) -> list[Reply]:
        found: list[Reply] = []
        inbox = await self._connection.open_inbox()
        try:
            while True:
                after = found[-1].sequence if found else 0
                batch = await inbox.stored(names.BUCKET, after=after, subject=subject)
                if not batch:
                    return found
                found += batch  # an entry that is put meanwhile comes again
        finally:
            await inbox.drop()

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        """See `Bus.put`."""
        check_entry(key, value, ttl_s)
        headers = {} if ttl_s is None else {names.TTL: f"{ttl_s}s"}
        return await self._write(key, value, headers, revision)

    async def delete(self, key: str, *, revision: int) -> None:
        """See `Bus.delete`."""
        last = await self._last(key)
        lives = {} if last is None or names.TTL not in last.headers else {names.TTL: last.headers[names.TTL]}
        await self._write(key, b"", {names.OPERATION: "DEL", **lives}, revision)

    async def mark(self, key: str) -> None:
        """Put an entry at any revision."""
        await self._store(key, b"1", {})

    async def clear(self, key: str) -> None:
        """Remove an entry at any revision."""
        await self._store(key, b"", {names.OPERATION: "DEL"})

    async def _write(self, key: str, value: bytes, headers: dict[str, str], revision: int) -> int:
        expected, patience = revision, Patience(self._connection, f"writing entry {key!r}")
        attempt = uuid4().hex
        while True:
            try:
                return await self._store(
                    key, value, {**headers, names.EXPECTED: str(expected), names.MESSAGE_ID: attempt}
                )
            except RefusedError as error:
                if error.code not in WRONG_LAST_SEQUENCE:
                    raise
                last = await self._last(key)
                if last is not None and last.headers.get(names.MESSAGE_ID) == attempt:
                    return last.sequence  # an earlier try of ours was kept, and its answer lost
                has_gone = last is None or is_gone(last, datetime.now(UTC))
                there = 0 if last is None else last.sequence
                if revision == 0 and has_gone and there != expected:
                    expected = there
                    continue
                if proves_nothing(there, expected):
                    await patience.take(str(error))
                    continue
                now = 0 if has_gone else there
                raise ConflictError(
                    f"entry {key!r} has revision {now}, not {revision}: somebody else wrote first"
                ) from error

    async def _store(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        what = f"writing entry {key!r}"
        try:
            kept = await self._connection.store(names.ENTRIES + key, value, headers, stream=names.BUCKET, what=what)
        except UnknownQueueError as error:
            raise not_prepared(self._connection.where) from error
        return kept.seq

    async def _last(self, key: str) -> Reply | None:
        try:
            return await self._connection.read(names.BUCKET, names.ENTRIES + key, what=f"reading entry {key!r}")
        except UnknownQueueError as error:
            raise not_prepared(self._connection.where) from error


def not_prepared(where: str) -> BusError:
    """Return the error for a server without a bucket."""
    error = BusError(f"{where} is not prepared for ksearch: it has no bucket {names.BUCKET.removeprefix('KV_')!r}")
    error.add_note("run: ksearch nats init")
    return error


def is_gone(reply: Reply, now: datetime) -> bool:
    """Return True for a removal mark, or for an entry that should have expired."""
    if names.OPERATION in reply.headers or "Nats-Marker-Reason" in reply.headers:
        return True
    lives_s = reply.headers.get(names.TTL, "").removesuffix("s")
    if not lives_s.isdecimal():
        return False
    return now - datetime.fromisoformat(reply.headers["Nats-Time-Stamp"]) > timedelta(seconds=int(lives_s) + GHOST_S)
