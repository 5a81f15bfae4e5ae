"""What a client of the NATS bus is given: where the servers are, and who it is."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from messages.errors import BusError


class NatsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to connect. Its `repr` shows neither password nor seed."""

    servers: tuple[str, ...]
    """`nats://host:port` or `tls://host:port`, without credentials."""
    name: str = "ksearch"
    """What the server's monitoring calls this client."""
    role: str = "admin"
    """Answers arrive under `_INBOX_<role>`, so that no role can read another's."""
    user: str | None = None
    password: str | None = None
    nkey_seed: str | None = None
    ca: Path | None = None
    """Certificates (PEM) that the server's must be signed by; None: those of the system, if the URL says `tls`."""
    cert: Path | None = None
    """The client's own certificate (PEM), for servers that ask for one."""
    key: Path | None = None
    tls_first: bool = False
    """TLS before the server says anything, as `handshake_first` of its configuration wants it."""
    replicas: int | None = None
    """Copies of each stream; None: as many as the bucket has that `prepare` made."""
    connect_s: float = 5.0
    """Longest time for the first connection."""
    patience_s: float = 60.0
    """How long a call is tried again while the server does not answer; then it is a `BusError`."""
    ping_s: float = 3.0
    """A link on which nothing was heard for three times this long counts as dead."""
    sweep_s: float = 5.0
    """How often whoever waits for dead letters looks for those that the server did not tell of."""

    def __repr__(self) -> str:
        return f"NatsOptions(servers={self.servers!r}, name={self.name!r}, role={self.role!r}, user={self.user!r})"


def tls_context(options: NatsOptions) -> ssl.SSLContext | None:
    """Return what TLS needs, or None for a connection without.

    Raises:
        BusError: a certificate or key cannot be read.
    """
    wanted = options.ca is not None or options.tls_first or any(url.startswith("tls://") for url in options.servers)
    if not wanted:
        return None
    try:
        context = ssl.create_default_context(cafile=None if options.ca is None else str(options.ca))
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
    except OSError as error:
        given = ", ".join(repr(str(path)) for path in (options.ca, options.cert, options.key) if path is not None)
        raise BusError(f"cannot use the certificates {given}: {error}") from error
    return context
