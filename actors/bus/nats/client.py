"""The socket: nats-py's client with overrides for cancellation, frozen servers and kills.

Everything that depends on nats-py internals is in this file; each override states its reason.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping

import anyio
import msgspec
import structlog
from nats.aio.client import Client, Srv
from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError

from actors.bus.nats.names import NatsOptions, tls_context
from messages.base import BusError

log = structlog.get_logger(__name__)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    return "eof_received()" not in record.getMessage()


logging.getLogger("asyncio").addFilter(_is_worth_saying)

_PARTING_S = 1.0
_LONGEST_TRY_S = 30.0
"""Upper bound for one nats-py reconnection attempt: four steps of `connect_timeout` and a flush of 10 s."""
_STATUS, _DESCRIPTION = "Status", "Description"
_INLINE_STATUS = re.compile(rb"NATS/1\.0 (\d{3})(.*)")
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')

_SCHEMES = "a server that encrypts is reached by tls://HOST:PORT, one that does not by nats://HOST:PORT"
_HINTS = {
    "CERTIFICATE_VERIFY_FAILED": "KSEARCH_NATS_CA names the file with the certificates that sign the server's",
    "CERTIFICATE_REQUIRED": "KSEARCH_NATS_CERT and KSEARCH_NATS_KEY name the certificate that the server asks for",
    "UNKNOWN_CA": "the server does not know the authority that signed the certificate in KSEARCH_NATS_CERT",
    "TimeoutError": _SCHEMES,
    "expecting INFO": _SCHEMES,
}


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A message from the server."""

    subject: str
    reply_to: str
    """Acknowledgement subject, if this is a job."""
    payload: bytes
    headers: Mapping[str, str]

    @property
    def status(self) -> str:
        """`404`, `408`, `409`, `503`…; empty for a message with content."""
        return self.headers.get(_STATUS, "")

    @property
    def description(self) -> str:
        """The server's description of its status."""
        return self.headers.get(_DESCRIPTION, "")

    @property
    def sequence(self) -> int:
        """Sequence number of a stored message in its stream."""
        return int(self.headers["Nats-Sequence"])


Handler = Callable[[Reply], None]
_NONE: Mapping[str, str] = {}


class WireClient(Client):
    """A connection that passes each message directly to a synchronous handler, which must not raise."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Handler] = {}
        self._has_given_up = False
        self._tried_at = 0.0

    async def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe a handler to a subject. Returns the subscription's number."""
        sub = await self.subscribe(subject)
        number: int = sub._id  # noqa: SLF001
        self._handlers[number] = handler
        return number

    async def hush(self, number: int) -> None:
        """Ask the server to stop sending; messages in flight still reach the handler until `forget`."""
        await self._send_unsubscribe(number)

    async def round_trip(self, within_s: int) -> None:
        """Wait until the server has run all earlier commands and its messages are handled. Raises `NatsError`."""
        # nats-py writes its ping immediately, ahead of commands that are still buffered.
        if self._transport is not None and self._pending:
            self._transport.writelines(self._pending[:])
            self._pending, self._pending_data_size = [], 0
        await self.flush(within_s)

    def forget(self, number: int) -> None:
        """Remove a subscription locally."""
        self._handlers.pop(number, None)
        self._remove_sub(number)

    @property
    def is_trying(self) -> bool:
        """True while the client's own reconnect loop runs and its last try is recent."""
        task = self._reconnection_task
        return task is not None and not task.done() and time.monotonic() - self._tried_at < _LONGEST_TRY_S

    def start_over(self) -> str:
        """Start a new reconnect loop and transport, keeping subscriptions. Returns how the old loop ended."""
        old = self._reconnection_task
        ending = "it stood still"
        if old is not None and old.done():
            failure = None if old.cancelled() else old.exception()
            ending = "it ended" if failure is None else f"{type(failure).__name__}: {failure}"
        elif old is not None:
            old.cancel()
        self._abort()
        self._transport = None
        self._status = Client.RECONNECTING
        self._ps.reset()
        self._tried_at = time.monotonic()
        self._reconnection_task = asyncio.get_running_loop().create_task(self._attempt_reconnect())
        return ending

    async def give_up(self) -> None:
        """Close from any state."""
        self._has_given_up = True
        if not self.is_connected:  # nats-py would write what waits to the connection that it closed, which TLS cannot
            self._pending, self._pending_data_size = [], 0
        try:
            with anyio.fail_after(_PARTING_S):
                await self._close(Client.CLOSED, do_cbs=False)
        except OSError:  # TimeoutError too: where TLS could not be agreed on, asyncio waits for the end for ever;
            self._abort()  # and what is still to be written cannot be, where the server is gone

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        # nats-py queues each message for the subscription's task, drops messages above a limit, and creates a task for
        # each message that is awaited.
        handler = self._handlers.get(sid)
        if handler is not None:
            known = parsed_headers(headers) if headers else _NONE
            handler(Reply(subject.decode(errors="replace"), reply.decode(errors="replace"), data, known))

    async def _process_pong(self) -> None:
        # A pong for an abandoned flush would set a result on a cancelled future, which ends nats-py's read loop.
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    async def _attempt_reconnect(self) -> None:
        # nats-py closes the old socket and waits for buffered data to be sent; with a frozen server it waits for ever.
        self._tried_at = time.monotonic()
        self._abort()
        await super()._attempt_reconnect()

    async def _connect_to_server(self, s: Srv) -> None:
        # A cancellation that coincides with a refused connection is lost (asyncio.wait_for before Python 3.12).
        # nats-py's loop then runs for ever and asyncio.run never returns.
        is_replaced = self._reconnection_task not in (None, asyncio.current_task())
        if self._has_given_up or is_replaced:
            raise asyncio.CancelledError
        self._tried_at = time.monotonic()
        # If the server does not send its INFO in time, nats-py drops the socket without closing it.
        self._abort()
        await super()._connect_to_server(s)

    def _abort(self) -> None:
        # Aborting a TLS connection that was closed twice raises AttributeError (CPython 3.11.2); the underlying socket
        # can be aborted any number of times.
        if not isinstance(self._transport, TcpTransport):
            return
        encrypted, bare = self._transport._io_writer, self._transport._bare_io_writer  # noqa: SLF001
        if encrypted is not None and not encrypted.is_closing():
            encrypted.transport.abort()
        if bare is not None:
            bare.transport.abort()

    @property
    def pool(self) -> list[Srv]:
        """Servers that the client tries."""
        return self._server_pool

    def know(self, servers: list[Srv]) -> None:
        """Add servers that were unreachable at first to the pool."""
        known = {server.uri.netloc for server in self._server_pool}
        self._server_pool += [server for server in servers if server.uri.netloc not in known]


def parsed_headers(block: bytes) -> Mapping[str, str]:
    """Parse an untrusted header block; unreadable parts are replaced or omitted.

    The status is in the first line, so a header named `Status` comes from the publisher and is ignored. The server
    appends its own headers, so the last of several equal names wins.
    """
    first, _, rest = block.partition(b"\r\n")
    found: dict[str, str] = {}
    for line in rest.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found[name.decode(errors="replace")] = value.strip().decode(errors="replace")
    found.pop(_STATUS, None)
    status = _INLINE_STATUS.match(first)
    if status is not None:
        found[_STATUS] = status[1].decode()
        found[_DESCRIPTION] = status[2].strip().decode(errors="replace")
    return found


_LOCKED_OUT = "does not let us in: wrong or missing credentials"


class Callbacks(msgspec.Struct, frozen=True):
    """Callbacks that run inside nats-py's loops; none may raise or wait."""

    denied: Callable[[str, str], None]
    """Called with `publish` or `subscription`, and the subject in lower case."""
    disconnected: Callable[[], None]
    reconnected: Callable[[], None]
    closed: Callable[[str], None]


async def connect(options: NatsOptions, told: Callbacks) -> WireClient:
    """Connect once; afterwards the client reconnects on its own, for ever.

    Raises:
        BusError: no server could be reached, or none granted access.
    """
    client = WireClient()
    where = ", ".join(options.servers)
    complaints: list[str] = []
    try:
        with anyio.fail_after(options.connect_s):
            servers = await _first_connection(client, options, told, complaints)
    except (OSError, NatsError, TimeoutError, ValueError) as error:
        with anyio.CancelScope(shield=True):
            await client.give_up()
        raise _no_connection(where, error, complaints) from error
    client.options["allow_reconnect"] = True
    client.options["max_reconnect_attempts"] = -1
    client.know(servers)
    return client


async def _first_connection(
    client: WireClient, options: NatsOptions, told: Callbacks, complaints: list[str]
) -> list[Srv]:
    """Connect without nats-py's own retries, which hide wrong credentials behind 'no servers available'."""
    servers: list[Srv] = []

    async def on_error(error: Exception) -> None:
        said = str(error) or type(error).__name__
        found = _DENIED.search(said)
        if found is not None:  # the caller learns of it, and reports it
            told.denied(found[1], found[2])
        elif client.options["allow_reconnect"] and said not in complaints:  # before that it is the caller's to say
            log.warning("the server or the way to it complains", error=_LOCKED_OUT if _is_locked_out(said) else said)
        complaints.append(said)
        del complaints[:-8]
        servers.extend(server for server in client.pool if server not in servers)

    await client.connect(
        list(options.servers),
        name=options.name,
        user=options.user,
        password=options.password,
        nkeys_seed_str=options.nkey_seed,
        tls=tls_context(options),
        tls_handshake_first=options.tls_first,
        inbox_prefix=f"_INBOX_{options.role}",
        allow_reconnect=False,
        max_reconnect_attempts=1,
        connect_timeout=2,
        reconnect_time_wait=0.2,  # type: ignore[arg-type]  # any number of seconds
        ping_interval=options.ping_s,  # type: ignore[arg-type]  # likewise
        max_outstanding_pings=2,
        pending_size=16 << 20,
        error_cb=on_error,
        disconnected_cb=_told(told.disconnected),
        reconnected_cb=_told(told.reconnected),
        closed_cb=_told(lambda: told.closed(complaints[-1] if complaints else "")),
    )
    return servers


def _told(function: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def tell() -> None:
        function()

    return tell


def _is_locked_out(words: str) -> bool:
    return "authorization violation" in words.lower()


def _no_connection(where: str, error: Exception, complaints: list[str]) -> BusError:
    words = "; ".join(dict.fromkeys(complaints)) or str(error) or type(error).__name__
    if _is_locked_out(f"{words} {error}"):
        return BusError(f"{where} {_LOCKED_OUT}")
    refused = BusError(f"cannot connect to {where}: {words.replace('TimeoutError', 'no answer')}")
    for sign, hint in _HINTS.items():
        if sign in words:
            refused.add_note(hint)
    return refused
