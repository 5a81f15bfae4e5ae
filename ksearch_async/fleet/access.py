"""Signing in at a NATS server: the rights of each role, credentials, and opening the bus.

Jobs are programs that run on other people's machines, so the server decides who may publish them.

Two facts about nats-server determine the design. First, it checks the publishes and subscriptions of a client, but not
the *reply subject of a request*: any client that may read one message could have it delivered as a job or a decision.
So every role but `admin` and `planner` has an account of its own and reaches the bus through exports; answers stay in
that account. Second, subjects match whole tokens, so the names of streams and consumers contain the kind of job or the
role as a token (`$JS.ACK.*.evaluate.>`), and no right needs a run's name.

Not covered: attacks among holders of one role's credentials. They can take each other's jobs, answer in each other's
name, and read each other's answers. Nodes that must not trust each other need separate servers.

Secrets come from files or the environment. They are never part of an address, which is saved, shown and logged.

| where | content |
|---|---|
| `--credentials FILE`, else `KSEARCH_NATS_CREDENTIALS` | as `ksearch nats init` writes it |
| `KSEARCH_NATS_USER` with `KSEARCH_NATS_PASSWORD_FILE` or `KSEARCH_NATS_PASSWORD` | user and password |
| `KSEARCH_NATS_NKEY_FILE` | a file that holds an nkey's seed |
| `KSEARCH_NATS_CA` | certificates that the server's must be signed by |
| `KSEARCH_NATS_CERT`, `KSEARCH_NATS_KEY` | this client's own certificate and its key, for servers that ask for one |
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog

from actors.bus.nats.local_server import is_loopback
from actors.bus.nats.names import NatsOptions
from ksearch_async.errors import refusal
from ksearch_async.follow.logs import keep_secret

if TYPE_CHECKING:
    from actors.bus.nats import NatsBus


TeamRole: TypeAlias = Literal["admin", "planner", "coder", "builder", "evaluator", "watcher"]
"""A user of the bus. `admin` prepares it and may do anything; `watcher` reads."""

TEAM: Final[tuple[TeamRole, ...]] = ("admin", "planner", "coder", "builder", "evaluator", "watcher")
BUCKET: Final = "ks"
"""Name of the key-value bucket that holds the entries."""


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Rights of a role; NATS subjects with wildcards."""

    requests: tuple[str, ...] = ()
    """Subjects to which it may publish requests with at most one answer."""
    questions: tuple[str, ...] = ()
    """Subjects to which it may publish requests with any number of answers."""
    hears: tuple[str, ...] = ()
    """Subjects that it may subscribe to, besides its own inbox."""
    never: tuple[str, ...] = ()
    """Exceptions from what it may publish."""
    apart: bool = True
    """True if it has an account of its own."""


_ENTRIES = (f"$JS.API.DIRECT.GET.KV_{BUCKET}", f"$JS.API.DIRECT.GET.KV_{BUCKET}.>")
"""Subjects for reading presence, run cards and tombstones."""
_JETSTREAM = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*")
"""Subjects for asking whether a stream exists. The first also tells the server that this account uses another one's
JetStream: without it the second is answered with `JetStream not enabled for account` (10039)."""
_BLOBS = ("$JS.API.DIRECT.GET.*.ks.blob.>",)
"""Subject for reading blobs by their digest."""


def inbox(role: str) -> str:
    """Return the prefix of the subjects at which a role receives answers."""
    return f"_INBOX_{role}"


def _worker(role: str, kind: str, *also: str) -> Rights:
    """Return the rights of workers of one kind: take its jobs, answer in their role, announce their presence."""
    return Rights(
        requests=(
            f"$JS.ACK.*.{kind}.>",
            f"ks.evt.*.{role}.*",
            f"ks.dead.*.{kind}.>",
            f"$KV.{BUCKET}.node.{role}.*",
            f"$JS.API.CONSUMER.INFO.*.{kind}",
            *_JETSTREAM,
            *also,
        ),
        questions=(
            f"$JS.API.CONSUMER.MSG.NEXT.*.{kind}",
            f"$JS.API.DIRECT.GET.*.ks.evt.*.{role}.*",
            *_ENTRIES,
            *_BLOBS,
        ),
        hears=(f"ks.bell.{kind}",),
    )


_PUT_BLOBS = "ks.blob.*.*.*"
_PLANNER = Rights(
    requests=(
        "ks.job.>",
        "ks.evt.*.planner.*",
        "ks.evt.*.decision",
        "ks.dead.>",
        "ks.bell.*",
        _PUT_BLOBS,
        f"$KV.{BUCKET}.node.planner.*",
        f"$KV.{BUCKET}.run.*",
        f"$KV.{BUCKET}.lease.*",
        f"$KV.{BUCKET}.cancel.*",
        "$JS.ACK.>",
    ),
    questions=("$JS.API.>",),
    never=tuple(
        f"$JS.API.{call}.KV_{BUCKET}"
        for call in ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE")
    ),
    apart=False,
)
_WATCHER = Rights(
    requests=(
        *_JETSTREAM,
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.CONSUMER.INFO.*.*",
        "$JS.API.CONSUMER.NAMES.*",
        "$JS.API.CONSUMER.LIST.*",
    ),
    questions=("$JS.API.DIRECT.GET.*", "$JS.API.DIRECT.GET.*.>"),
)

RIGHTS: Final[dict[TeamRole, Rights]] = {
    "admin": Rights(requests=(">",), hears=(">",), apart=False),
    "planner": _PLANNER,
    "coder": _worker("coder", "write", _PUT_BLOBS),
    "builder": _worker("builder", "build", _PUT_BLOBS),
    "evaluator": _worker("evaluator", "evaluate"),
    "watcher": _WATCHER,
}


log = structlog.get_logger(__name__)

AccessRole: TypeAlias = TeamRole

_PREFIX = "KSEARCH_NATS_"
_DEFAULT_PORT = 4222
_SCHEMES = ("nats", "tls")
_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
_MAX_SECRET_BYTES = 4096
_NO_URL_SECRETS = (
    "--credentials FILE, or KSEARCH_NATS_USER and KSEARCH_NATS_PASSWORD_FILE: addresses are saved and shown"
)


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Contents of a credentials file (TOML). Its `repr` shows no secret."""

    role: str = ""
    """Role that it gives the rights of; answers arrive in this role's inbox."""
    user: str = ""
    password: str = ""
    seed: str = ""
    """Seed of an nkey, instead of user and password."""

    def __repr__(self) -> str:
        """Leave the secrets out."""
        return f"Credentials(role={self.role!r}, user={self.user!r})"


def options_for(
    url: str,
    environment: Mapping[str, str],
    *,
    role: AccessRole,
    name: str = "",
    credentials: Path | None = None,
    replicas: int | None = None,
) -> NatsOptions:
    """Return the options for connecting to the servers at `url`.

    Args:
        url: `nats://HOST[:PORT]` or `tls://HOST[:PORT]`, several with commas between them.
        environment: variables, see above; an empty one counts as not set.
        role: the role of this process; a credentials file that names another one takes precedence.
        name: the server's name for this client.
        credentials: a credentials file; takes precedence over the environment.
        replicas: copies of each stream.
    """
    given = {key.removeprefix(_PREFIX).lower(): value for key, value in environment.items() if key.startswith(_PREFIX)}
    given = {key: value for key, value in given.items() if value}
    servers = tuple(_server(part) for part in url.split(",") if part.strip())
    if not servers:
        raise refusal(f"{url!r} names no server", "expected nats://HOST:PORT")
    who = _credentials(given, credentials)
    keep_secret(who.password, who.seed)
    ca, cert, key = (_file(given, name) for name in ("ca", "cert", "key"))
    if (cert is None) != (key is None):
        raise refusal("a client certificate and its key go together", "set KSEARCH_NATS_CERT and KSEARCH_NATS_KEY")
    encrypted = ca is not None or cert is not None or all(server.startswith("tls://") for server in servers)
    _warn_of_plain_passwords(servers, who, encrypted=encrypted)
    return NatsOptions(
        servers=servers,
        name=name or "ksearch",
        role=who.role or role,
        user=who.user or None,
        password=who.password or None,
        nkey_seed=who.seed or None,
        ca=ca,
        cert=cert,
        key=key,
        # Without it a client waits for the server's first line, and sends its password in the clear to any server.
        tls_first=encrypted,
        replicas=replicas,
    )


def read_credentials(path: Path) -> Credentials:
    """Read a credentials file, and warn if other users can read it too."""
    text = _secret_text(path, "the credentials")
    try:
        held = msgspec.convert(tomllib.loads(text), Credentials)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError):
        # The reason might quote the line, and with it the secret.
        raise refusal(
            f"{str(path)!r} is no credentials file",
            'two lines: user = "…" and password = "…", or one: seed = "…"; `ksearch nats init` writes such files',
        ) from None
    if not (held.seed or (held.user and held.password)):
        raise refusal(f"{str(path)!r} holds neither user and password nor a seed")
    return held


def _credentials(given: Mapping[str, str], flag: Path | None) -> Credentials:
    """Return the user to sign in as; None if none is set."""
    path = flag or (Path(given["credentials"]) if "credentials" in given else None)
    if path is not None:
        return read_credentials(path)
    if "nkey_file" in given:
        seed = _secret_text(Path(given["nkey_file"]), "the nkey's seed").strip()
        return Credentials(seed=seed)
    password = given.get("password", "")
    if "password_file" in given:
        if password:
            raise refusal("KSEARCH_NATS_PASSWORD and KSEARCH_NATS_PASSWORD_FILE are both set", "unset one")
        password = _secret_text(Path(given["password_file"]), "the password").rstrip("\r\n")
    user = given.get("user", "")
    if bool(user) != bool(password):
        missing = "a user without a password" if user else "a password without a user"
        raise refusal(missing, "set KSEARCH_NATS_USER and KSEARCH_NATS_PASSWORD_FILE, or give --credentials FILE")
    return Credentials(user=user, password=password, role=user if user in TEAM else "")


def _server(text: str) -> str:
    address = text.strip()
    parts = _split(address if "://" in address else f"nats://{address}")
    if parts is None or "@" in parts.netloc:
        if "@" in address:
            raise refusal("an address must not hold credentials", _NO_URL_SECRETS)
        raise refusal(f"{address!r} is no address of a NATS server", "expected nats://HOST:PORT or tls://HOST:PORT")
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise refusal(f"{address!r} is no address of a NATS server", "expected nats://HOST:PORT or tls://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or _DEFAULT_PORT}"


def _split(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        _ = parts.port  # out of range: a ValueError only here
    except ValueError:
        return None
    return parts


def _file(given: Mapping[str, str], name: str) -> Path | None:
    if name not in given:
        return None
    path = Path(given[name])
    if not path.is_file():
        raise refusal(f"{_PREFIX}{name.upper()}={given[name]!r}: there is no such file")
    return path


def _secret_text(path: Path, what: str) -> str:
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            text = file.read(_MAX_SECRET_BYTES + 1).decode()
    except OSError as error:
        raise refusal(f"cannot read {what} in {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise refusal(f"cannot read {what} in {str(path)!r}: it is no text") from None
    if len(text) > _MAX_SECRET_BYTES or not text.strip():
        raise refusal(f"{str(path)!r} is {'empty' if not text.strip() else 'too long'}, expected {what}")
    if mode & _READABLE_BY_OTHERS:
        log.warning("credentials_readable_by_others", path=str(path), hint=f"chmod 600 {path}")
    return text


def _warn_of_plain_passwords(servers: tuple[str, ...], who: Credentials, *, encrypted: bool) -> None:
    far = [server for server in servers if not is_loopback(urlsplit(server).hostname or "")]
    if who.password and far and not encrypted:
        log.warning("password_sent_in_the_clear", servers=far, hint="use tls://, and KSEARCH_NATS_CA for an own CA")


EMBEDDED = "embedded"
"""Name in `--nats` of a server of the run's own."""


@asynccontextmanager
async def open_bus(
    nats: str | None,
    environment: Mapping[str, str],
    *,
    role: AccessRole,
    credentials: Path | None = None,
    name: str = "",
) -> AsyncIterator[NatsBus]:
    """Connect, and close the connection afterwards.

    Args:
        nats: addresses, separated by commas; null: those of `KSEARCH_NATS`.
        environment: gives what is not passed.
        role: the role of this process.
        credentials: file with this process's credentials; null: those of the environment.
        name: name of this process in the server's monitoring.

    Raises:
        ConfigError: no address is known, or it contains credentials.
        messages.base.BusError: it cannot connect, or is refused.
    """
    from actors.bus.nats import open_nats  # noqa: PLC0415 - commands that need no server need no client of it

    options = options_for(address_of(nats, environment), environment, role=role, credentials=credentials, name=name)
    async with open_nats(options) as bus:
        yield bus


def address_of(nats: str | None, environment: Mapping[str, str]) -> str:
    """Return the given addresses, or those of the environment."""
    address = nats or environment.get("KSEARCH_NATS") or ""
    if not address:
        raise refusal("no NATS server is named", "--nats nats://HOST:4222, or KSEARCH_NATS in the environment")
    if address == EMBEDDED:
        raise refusal(
            "'embedded' is the server of a run: it has an address of its own", "ksearch run prints it when it starts"
        )
    return address
