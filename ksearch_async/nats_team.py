"""Makes the users of a team: a secret for each role, in a file of its own, and how the server checks it."""

from __future__ import annotations

import importlib
import os
import secrets
from pathlib import Path
from types import ModuleType

from ksearch_async.access import Credentials, read_credentials
from ksearch_async.nats_config import SignIn, hashed
from ksearch_async.nats_rights import TEAM, TeamRole
from ksearch_async.refusals import refusal
from ksearch_async.secrets import keep_secret

_PASSWORD_BYTES = 24


def make_team(folder: Path, *, nkeys: bool = False) -> dict[TeamRole, SignIn]:
    """Return how each role signs in; make the secrets of those that have no file in the folder yet.

    Args:
        folder: holds a file per role, mode 0600. Files that are there are kept, so their secrets stay valid.
        nkeys: give new ones key pairs instead of passwords; the server then never has the secret.

    Raises:
        ConfigError: the folder cannot be written, or a file in it cannot be used.
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
