"""Configuration of a nats-server for a team: users, secrets and TLS."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import bcrypt
import msgspec

from ksearch_async.errors import refusal
from ksearch_async.fleet.access import RIGHTS, TEAM, Credentials, TeamRole, inbox, read_credentials
from ksearch_async.follow.logs import keep_secret
from messages.base import ConfigError

ACCOUNT: Final = "KSEARCH"
"""The account that holds streams and entries."""

_BCRYPT_ROUNDS = 10
"""2^10: 50 ms for each sign-in. Ours are random 192 bits, which no number of rounds makes safer."""
_BCRYPT_BYTES = 72
"""bcrypt ignores further bytes of a password."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates of a server."""

    cert: Path
    key: Path
    ca: Path | None = None
    """Authority that must have signed the clients' certificates (mTLS); None: clients need none."""


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A user's means of sign-in: the hash of a password, or a public nkey."""

    user: str = ""
    password_hash: str = ""
    nkey: str = ""


def hashed(password: str) -> str:
    """Return the bcrypt hash of a password, as nats-server checks it."""
    encoded = password.encode()
    if not 1 <= len(encoded) <= _BCRYPT_BYTES or b"\0" in encoded:
        raise refusal(f"a password has 1 to {_BCRYPT_BYTES} bytes, this one has {len(encoded)}")
    return bcrypt.hashpw(encoded, bcrypt.gensalt(_BCRYPT_ROUNDS)).decode()


def server_config(users: Mapping[TeamRole, SignIn], *, tls: TlsFiles | None = None) -> str:
    """Return a configuration in nats-server's form, complete but for addresses, store, limits and cluster.

    Args:
        users: means of sign-in of each role.
        tls: certificates; without them everything, passwords included, crosses the network unencrypted.
    """
    missing = [role for role in TEAM if role not in users]
    if missing:
        raise ConfigError(f"no sign-in for {', '.join(missing)}")
    lines = [] if tls is None else [tls_block(tls)]
    lines += ["accounts {", *_bus_account(users)]
    for role in TEAM:
        if RIGHTS[role].apart:
            lines += _own_account(role, users[role])
    return "\n".join([*lines, "}", ""])


def tls_block(tls: TlsFiles) -> str:
    """Return the part of a configuration that encrypts connections from their first byte on."""
    lines = [f"  cert_file: {_quoted(str(tls.cert.absolute()))}", f"  key_file: {_quoted(str(tls.key.absolute()))}"]
    if tls.ca is not None:
        lines += [f"  ca_file: {_quoted(str(tls.ca.absolute()))}", "  verify: true"]
    return "\n".join(["tls {", *lines, "  handshake_first: true", "}"])


def _bus_account(users: Mapping[TeamRole, SignIn]) -> Iterator[str]:
    yield f"  {ACCOUNT} {{"
    yield "    jetstream: enabled"
    yield "    users: ["
    for role in TEAM:
        if not RIGHTS[role].apart:
            yield from _user_lines(role, users[role])
    yield "    ]"
    yield "    exports: ["
    for subject, (form, roles) in sorted(_exports().items()):
        accounts = ", ".join(_account(role) for role in roles)
        yield f"      {{ {form}, accounts: [{accounts}] }}  # {', '.join(roles)}".replace("SUBJECT", _quoted(subject))
    yield "    ]"
    yield "  }"


def _exports() -> dict[str, tuple[str, list[TeamRole]]]:
    exports: dict[str, tuple[str, list[TeamRole]]] = {}
    for role in TEAM:
        rights = RIGHTS[role]
        if not rights.apart:
            continue
        for form, subjects in (
            ("service: SUBJECT", rights.requests),
            ("service: SUBJECT, response_type: stream", rights.questions),
            ("stream: SUBJECT", rights.hears),
        ):
            for subject in subjects:
                exports.setdefault(subject, (form, []))[1].append(role)
    return exports


def _own_account(role: TeamRole, sign_in: SignIn) -> Iterator[str]:
    rights = RIGHTS[role]
    yield f"  {_account(role)} {{"
    yield "    users: ["
    yield from _user_lines(role, sign_in)
    yield "    ]"
    yield "    imports: ["
    for subject in (*rights.requests, *rights.questions):
        yield f"      {{ service: {{ account: {ACCOUNT}, subject: {_quoted(subject)} }} }}"
    for subject in rights.hears:
        yield f"      {{ stream: {{ account: {ACCOUNT}, subject: {_quoted(subject)} }} }}"
    yield "    ]"
    yield "  }"


def _user_lines(role: TeamRole, sign_in: SignIn) -> Iterator[str]:
    who = (
        f"nkey: {_quoted(sign_in.nkey)}"
        if sign_in.nkey
        else f"user: {_quoted(sign_in.user)}, password: {_quoted(sign_in.password_hash)}"
    )
    rights = RIGHTS[role]
    if rights.requests == (">",):
        yield f"      {{ {who} }}"
        return
    denied = f", deny: {_listed(rights.never)}" if rights.never else ""
    yield f"      {{ {who}, permissions {{"
    yield f"        publish {{ allow: {_listed((*rights.requests, *rights.questions))}{denied} }}"
    yield f"        subscribe {{ allow: {_listed((f'{inbox(role)}.>', *rights.hears))} }}"
    yield "      } }"


def _account(role: TeamRole) -> str:
    return f"{ACCOUNT}_{role.upper()}"


def _listed(subjects: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, subjects))}]"


def _quoted(text: str) -> str:
    """Return a quoted string: an unquoted `$` would begin a variable."""
    if not text.isprintable() or '"' in text or "\\" in text:
        raise refusal(f"{text!r} cannot stand in a server configuration", "leave quotes and backslashes out")
    return f'"{text}"'


_PASSWORD_BYTES = 24


def make_team(folder: Path, *, nkeys: bool = False) -> dict[TeamRole, SignIn]:
    """Return the means of sign-in of each role, and make secrets for roles that have no file in the folder yet.

    Args:
        folder: holds a file per role, mode 0600. Existing files are kept, so their secrets stay valid.
        nkeys: make key pairs instead of passwords; the server then never has the secret.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return {role: _member(folder / role, role, nkeys=nkeys) for role in TEAM}
    except OSError as error:
        raise refusal(f"cannot write credentials to {str(folder)!r}: {error.strerror}") from error


def new_secret() -> str:
    """Return a random password of 192 bits."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner may read.

    Raises:
        OSError: it is there already, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _member(path: Path, role: TeamRole, *, nkeys: bool) -> SignIn:
    if path.exists():
        held = read_credentials(path)
    else:
        held = _new_keys(role) if nkeys else Credentials(role=role, user=role, password=new_secret())
        write_private(path, _as_text(held))
    keep_secret(held.password, held.seed)
    if held.seed:
        return SignIn(nkey=_public_key(held.seed, path))
    return SignIn(user=held.user, password_hash=hashed(held.password))


def _as_text(held: Credentials) -> str:
    secret = f'seed = "{held.seed}"\n' if held.seed else f'user = "{held.user}"\npassword = "{held.password}"\n'
    return (
        f'# With this file, programs sign in as {held.role} of ksearch. Keep it secret.\nrole = "{held.role}"\n{secret}'
    )


def _new_keys(role: TeamRole) -> Credentials:
    seed: bytes = _nkeys().encode_seed(os.urandom(32), _nkeys().PREFIX_BYTE_USER)
    return Credentials(role=role, seed=seed.decode())


def _public_key(seed: str, path: Path) -> str:
    try:
        public: bytes = _nkeys().from_seed(bytearray(seed.encode())).public_key
    except (_nkeys().NkeysError, ValueError):
        raise refusal(f"the seed in {str(path)!r} is no nkey's") from None
    return public.decode()


def _nkeys() -> ModuleType:
    try:
        return importlib.import_module("nkeys")
    except ImportError:
        raise refusal("nkeys need a package that is not installed", "pip install 'ksearch-async[nkeys]'") from None
