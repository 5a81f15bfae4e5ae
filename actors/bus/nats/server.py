"""A nats-server of our own: found, configured, started, and ended with its starter.

async with serve_nats(ServerSettings(store=Path("bus"))) as server:
        ...  # server.url

What is promised:

- One server per store: the store is locked for as long as the server lives, even if its launcher was killed.
- It is ready when the block is entered. It gets SIGTERM when the block is left, and SIGKILL if that does not help.
- It runs in a process group of its own, so Ctrl-C at the terminal leaves it to its launcher. It dies with its launcher
  even at `kill -9`: `evaluators/process/guard.py` sees the end of a pipe that only the launcher holds open.
- It listens on an address that other hosts can reach only if its configuration asks clients who they are.

The store folder holds `jetstream/` (the server's own), `nats-server.conf`, `nats-server.log`, `start.log` and `lock`.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import msgspec
from anyio import to_thread
from anyio.abc import Process

from actors.bus.nats.server_setup import (
    CONFIG_FILE,
    LOG_FILE,
    START_LOG_FILE,
    ServerSettings,
    check_exposure,
    find_server,
    is_loopback,
    last_words,
    open_to_anybody,
    prepare_store,
    why_not,
    write_configuration,
)
from evaluators.process.guarded import GuardJob, start_guarded, stop_guarded
from messages.base import BusError, ConfigError, EvaluatorError

__all__ = ["NatsServer", "ServerSettings", "serve_nats"]

_LOCK = "lock"
"""Every store that was used holds it."""
_POLL_S = 0.005
_STOP_S = 10.0


class _Ports(msgspec.Struct, frozen=True):
    """What a server says about where it listens."""

    nats: list[str] = []
    monitoring: list[str] = []


class _Answers(msgspec.Struct, frozen=True):
    """The part of `/varz` that is looked at."""

    auth_required: bool = False


_ports = msgspec.json.Decoder(_Ports)
_answers = msgspec.json.Decoder(_Answers)


class NatsServer:
    """A running server; `serve_nats` makes it and ends it."""

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
        """`http://…`, on loopback only."""

    @property
    def store(self) -> Path:
        """The folder that it keeps everything in."""
        return self._settings.store

    async def ended(self) -> str:
        """Wait until the server is no longer there. Returns what it said last, in one line; empty for nothing."""
        if self._process is not None:
            await self._process.wait()
        return await to_thread.run_sync(last_words, self.store)

    async def kill(self) -> None:
        """End it at once, as a crash does. The store stays locked; `restart` starts it again."""
        if self._process is not None and self._process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
        await self._let_go()

    async def restart(self) -> None:
        """Start it again on the same port and store, after `kill` or when it `ended`.

        Raises:
            ConfigError: it refuses its configuration.
            BusError: it could not be started.
        """
        await self._let_go()
        await self.start()

    async def reload(self, config: str) -> None:
        """Have it read another configuration: connections of users who are no longer in it end.

        Its log says so, or why it keeps the one that it has.

        Raises:
            ConfigError: it would let anybody in from other hosts.
            BusError: the store cannot be written.
        """
        settings = msgspec.structs.replace(self._settings, config=config)
        check_exposure(settings.host, settings.config)
        await to_thread.run_sync(write_configuration, settings, self._may_hold)
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
        self._may_hold = await to_thread.run_sync(prepare_store, settings)
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
        """Ask it to end, wait, and kill it if it does not; `serve_nats` calls this."""
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
            raise await to_thread.run_sync(why_not, self._settings)
        raise BusError(f"the nats-server of {str(self.store)!r} is not ready after {self._settings.ready_s:g} s")

    async def _learn(self, ports: _Ports) -> None:
        scheme, _, place = ports.nats[0].partition("://")
        self.port = int(place.rpartition(":")[2])
        self.url = f"{scheme}://{_reachable(self._settings.host)}:{self.port}"
        self.monitoring_url = ports.monitoring[0] if ports.monitoring else ""
        if not is_loopback(self._settings.host):
            await self._insist_on_authentication()

    async def _insist_on_authentication(self) -> None:
        """Believe the server itself: what its configuration looks like was checked before."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
                answer = await client.get(f"{self.monitoring_url}/varz")
            required = _answers.decode(answer.content).auth_required
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise BusError(f"the nats-server of {str(self.store)!r} does not say whether it asks for users") from error
        if not required:
            raise open_to_anybody(self._settings.host)

    async def _let_go(self) -> None:
        if self._process is not None:
            await stop_guarded(self._process)
            self._process = None
        self.pid = 0


@asynccontextmanager
async def serve_nats(settings: ServerSettings) -> AsyncIterator[NatsServer]:
    """Run a server for as long as the block is open.

    Raises:
        ConfigError: no server was found, its port is used, it refuses its configuration, it would let anybody in from
            other hosts, or the store is no folder, or one of something else.
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
    """Take the store's lock. The server inherits it, so that it outlives a launcher that was killed.

    Raises:
        ConfigError: it is no folder, or one of something else.
        BusError: it is held, or cannot be written.
    """
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
    """Return the server's process id and ports once it is ready. Its file appears in whole, but may appear empty."""
    for path in store.glob("*.ports"):
        try:
            ports = _ports.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return (int(path.stem.rpartition("_")[2]), ports) if ports.nats else None
    return None


def _reachable(host: str) -> str:
    """Return an address at which this host reaches a server that listens on `host`."""
    if host in ("0.0.0.0", "::", "[::]", ""):  # noqa: S104 - recognised, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
