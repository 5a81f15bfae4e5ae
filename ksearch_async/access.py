"""How this process signs in at a NATS server: from an address, files and the environment to `NatsOptions`.

Secrets come from files or the environment. They are never part of an address, which is saved, shown and logged.

| where | what |
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
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog

from actors.bus.nats.options import NatsOptions
from actors.bus.nats.server_setup import is_loopback
from ksearch_async.nats_rights import TEAM, TeamRole
from ksearch_async.refusals import refusal
from ksearch_async.secrets import keep_secret

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
    """What a credentials file holds (TOML). Its `repr` shows no secret."""

    role: str = ""
    """Whose rights it gives; answers arrive in this role's inbox."""
    user: str = ""
    password: str = ""
    seed: str = ""
    """Of an nkey, instead of user and password."""

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
    """Return how to connect to the servers at `url`.

    Args:
        url: `nats://HOST[:PORT]` or `tls://HOST[:PORT]`, several with commas between them.
        environment: variables, see above; one that is empty counts as not set.
        role: as what this process takes part; a credentials file that names another one counts more.
        name: what the server calls this client.
        credentials: a credentials file; counts more than the environment.
        replicas: copies of each stream.

    Raises:
        ConfigError: the address cannot be used, something is missing, or a file cannot be read.
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
        # Without it a client waits for the server's first line, and sends its password to whoever answers in the clear.
        tls_first=encrypted,
        replicas=replicas,
    )


def read_credentials(path: Path) -> Credentials:
    """Read a credentials file; say so if others can read it too.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
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
    """Return who signs in; nobody if nothing was said.

    Raises:
        ConfigError: half of it is missing, or several are given.
    """
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
    """Return one address in its plain form.

    Raises:
        ConfigError: it is none, or holds credentials (which are not repeated).
    """
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
    """Read a small file that only its owner should be able to read.

    Raises:
        ConfigError: it cannot be read.
    """
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
