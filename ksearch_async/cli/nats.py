"""`ksearch nats`: a server for runs on many hosts, its configuration and its runs."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import cyclopts
from cyclopts import Parameter

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import address_of, open_bus
from ksearch_async.follow.logs import configure_logs
from ksearch_async.views.terminal import note, put, put_json, put_lines, put_raw, shown_path, terminal_width
from ksearch_async.views.text import Column, rough_duration, table_lines
from messages.base import BusError, KsearchError

if TYPE_CHECKING:
    from actors.bus.nats.local_server import NatsServer, ServerSettings
    from ksearch_async.fleet.access import TeamRole
    from ksearch_async.fleet.server_config import TlsFiles


nats_app = cyclopts.App(name="nats", group_commands=cyclopts.Group("Commands"), result_action="return_value")
nats_app.command(
    "ksearch_async.cli.nats:runs_command",
    name="runs",
    help="List the runs that a server keeps, and their sizes.",
)
nats_app.command(
    "ksearch_async.cli.nats:forget_command",
    name="forget",
    help="Remove runs from a server.\n\n"
    "Their folders stay; `ksearch resume` cannot go on with them. Runs with a live planner are refused.",
)

CONFIG_NAME = "nats-server.conf"
CREDENTIALS = "credentials"
_CLIENT_PORT = 4222


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TlsFlags:
    """Certificates of the server (PEM)."""

    tls_cert: Path | None = None
    """The server's certificate; connections are encrypted then."""
    tls_key: Path | None = None
    """Key of the certificate."""
    tls_ca: Path | None = None
    """Require clients to show a certificate signed by this one."""


NO_TLS = TlsFlags()


@nats_app.command(name="init")
def init_command(
    *,
    nats: str | None = None,
    credentials: Path | None = None,
    replicas: int = 1,
    config: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    nkeys: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    tls: TlsFlags = NO_TLS,
    as_json: JsonFlag = False,
) -> int:
    """Prepare a running server for ksearch, or write the configuration of one.

    Args:
        nats: Address of a running server, on which everything that runs need is created. [env: KSEARCH_NATS]
        credentials: File with the admin's credentials for that server. [env: KSEARCH_NATS_CREDENTIALS]
        replicas: Number of servers of a cluster that keep a copy of all data: 1, 3 or 5.
        config: Write a server's configuration into this folder, with a user for each role and a file with each user's
            password. `-` prints the configuration, and writes the files to ./credentials.
        nkeys: Give users key pairs instead of passwords.
        tls: Certificates.
        as_json: Print one JSON object.
    """
    configure_logs()
    if config is not None:
        if nats is not None:
            raise refusal("--config writes files and --nats prepares a server", "give one after the other")
        return _write(config, _tls_files(tls), nkeys=nkeys, as_json=as_json)
    if nkeys or tls != NO_TLS:
        raise refusal("--nkeys and --tls-… say what a configuration holds", "add --config FOLDER")
    if replicas not in (1, 3, 5):
        raise refusal(f"--replicas: expected 1, 3 or 5, not {replicas}")
    if not (nats or os.environ.get("KSEARCH_NATS")):
        raise refusal("nothing to do", "--nats URL prepares a server, --config FOLDER writes the configuration of one")
    address = address_of(nats, os.environ)
    anyio.run(_prepare, address, credentials, replicas)
    if as_json:
        put_json({"nats": address, "replicas": replicas})
    else:
        put(f"ready: {address}")
    return exits.FOUND


@nats_app.command(name="serve")
def serve_command(
    *,
    host: str = "127.0.0.1",
    port: int = _CLIENT_PORT,
    store: Path = Path("nats"),
    config: Path | None = None,
    sync: Literal["always", "never"] = "always",
    tls: TlsFlags = NO_TLS,
    as_json: JsonFlag = False,
) -> int:
    """Run a NATS server until Ctrl-C.

    Args:
        host: Address to listen on. Addresses other than this host's own need a configuration with users.
        port: Port to listen on; 0 takes a free port.
        store: Folder for all runs, empty or new at first. Only one server at a time may use it.
        config: A nats-server configuration, or the folder that `ksearch nats init --config` wrote.
        sync: `always`: every message is on disk before it counts. `never`: messages survive a kill of the server, but
            not a power cut.
        tls: Certificates, unless the configuration names them.
        as_json: Print the address as a JSON object.
    """
    from actors.bus.nats.local_server import ServerSettings  # noqa: PLC0415

    configure_logs()
    if not 0 <= port <= 65535:
        raise refusal(f"--port: expected 0 to 65535, not {port}")
    admin = None if config is None else (config if config.is_dir() else config.parent) / CREDENTIALS / "admin"
    text = _config_text(config, _tls_files(tls))
    settings = ServerSettings(store=store, host=host, port=port, sync=sync, config=text)
    gc.enable()  # `main` disabled it for the start; a server may run for days
    read_again = None if config is None else partial(_config_text, config, _tls_files(tls))
    anyio.run(_serve, settings, admin if admin is not None and admin.is_file() else None, as_json, read_again)
    return exits.FOUND


async def _prepare(address: str, credentials: Path | None, replicas: int) -> None:
    from actors.bus.nats import open_nats  # noqa: PLC0415
    from ksearch_async.fleet.access import options_for  # noqa: PLC0415

    options = options_for(address, os.environ, role="admin", credentials=credentials)
    async with open_nats(options) as bus:
        await bus.prepare(replicas=replicas)


async def _serve(
    settings: ServerSettings, admin: Path | None, as_json: bool, read_again: Callable[[], str] | None
) -> None:
    """Serve until Ctrl-C or SIGTERM; with a configuration, read that again at SIGHUP."""
    from actors.bus.nats.local_server import serve_nats  # noqa: PLC0415

    heeded = (signal.SIGINT, signal.SIGTERM, *(() if read_again is None else (signal.SIGHUP,)))
    with anyio.open_signal_receiver(*heeded) as signals:
        async with serve_nats(settings) as server, anyio.create_task_group() as tasks:
            await _make_ready(server, settings, admin)
            if as_json:
                put_json({"url": server.url, "monitoring_url": server.monitoring_url, "store": str(server.store)})
            else:
                put(f"listening on {server.url}")
                note(f"keeps everything in {shown_path(settings.store.absolute())}; Ctrl-C stops it")
            tasks.start_soon(_notice_end, server)
            async for number in signals:
                if number != signal.SIGHUP or read_again is None:
                    break
                await _reload(server, read_again)
            tasks.cancel_scope.cancel()


async def _reload(server: NatsServer, read_again: Callable[[], str]) -> None:
    try:
        await server.reload(read_again())
    except KsearchError as error:
        note(f"warning: the configuration stays as it was: {error}")
    else:
        note("the configuration was read again; the server's log says what it makes of it")


async def _make_ready(server: NatsServer, settings: ServerSettings, admin: Path | None) -> None:
    """Make what runs need, where that can be done from here: without users, or with the admin's file beside."""
    from actors.bus.nats.local_server import has_block  # noqa: PLC0415

    if has_block(settings.config, "cluster") or (admin is None and settings.config.strip()):
        return
    try:
        await _prepare(server.url, admin, 1)
    except BusError as error:
        note(f"note: {error}")
        note(f"hint: before the first run, ksearch nats init --nats {server.url}")


async def _notice_end(server: NatsServer) -> None:
    words = await server.ended()
    raise BusError(f"the server ended: {words}" if words else "the server ended by itself")


def _config_text(config: Path | None, tls: TlsFiles | None) -> str:
    from actors.bus.nats.local_server import has_block  # noqa: PLC0415
    from ksearch_async.fleet.server_config import tls_block  # noqa: PLC0415

    path = config / CONFIG_NAME if config is not None and config.is_dir() else config
    try:
        text = "" if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise refusal(f"cannot read the configuration {str(path)!r}: {reason}") from error
    if tls is None:
        return text
    if has_block(text, "tls"):
        raise refusal(f"{str(path)!r} names certificates already", "leave --tls-cert, --tls-key and --tls-ca out")
    return f"{text}\n{tls_block(tls)}"


def _tls_files(flags: TlsFlags) -> TlsFiles | None:
    from ksearch_async.fleet.server_config import TlsFiles  # noqa: PLC0415

    if flags == NO_TLS:
        return None
    if flags.tls_cert is None or flags.tls_key is None:
        raise refusal("--tls-cert and --tls-key go together")
    for path in (flags.tls_cert, flags.tls_key, flags.tls_ca):
        if path is not None and not path.is_file():
            raise refusal(f"there is no file {str(path)!r}")
    return TlsFiles(cert=flags.tls_cert, key=flags.tls_key, ca=flags.tls_ca)


def _write(config: Path, tls: TlsFiles | None, *, nkeys: bool, as_json: bool) -> int:
    from ksearch_async.fleet.server_config import make_team, server_config, write_private  # noqa: PLC0415

    printed = str(config) == "-"
    folder = Path() if printed else config
    path, credentials = folder / CONFIG_NAME, folder / CREDENTIALS
    if not printed and path.exists():
        raise refusal(f"{str(path)!r} is there already", "remove it first; credentials that are there are kept")
    team = make_team(credentials, nkeys=nkeys)
    text = server_config(team, tls=tls)
    if printed:
        put_raw(text.rstrip())
    else:
        try:
            write_private(path, text)
        except OSError as error:
            raise refusal(f"cannot write {str(path)!r}: {error.strerror}") from error
    if as_json and not printed:
        secrets = {role: str(credentials / role) for role in team}
        put_json({"configurations": [str(path)], "credentials": secrets})
    else:
        _tell(None if printed else path, credentials, list(team), encrypted=tls is not None)
    return exits.FOUND


def _tell(path: Path | None, credentials: Path, roles: list[TeamRole], *, encrypted: bool) -> None:
    if path is not None:
        put(f"{'configuration':<14} {shown_path(path.absolute())}")
    say = note if path is None else put
    for role in roles:
        say(f"{role:<14} {shown_path((credentials / role).absolute())}")
    if not encrypted:
        note("without --tls-cert and --tls-key passwords and jobs cross the network in the clear")
    note("bring each host the file of its role only: ksearch evaluator --nats URL --credentials FILE")
    if path is not None:
        note(f"next: ksearch nats serve --host 0.0.0.0 --config {shown_path(path.parent.absolute())}")


_COLUMNS = (
    Column("run"),
    Column("state"),
    Column("events", number=True, rank=1),
    Column("size", number=True),
    Column("last event", number=True),
)
_NO_CARD = "-"


def runs_command(*, nats: str | None = None, credentials: Path | None = None, as_json: JsonFlag = False) -> int:
    """List the runs that a server keeps, and their sizes.

    Args:
        nats: Address of the NATS server; for a cluster several, separated by commas. [env: KSEARCH_NATS]
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        as_json: Print one JSON object.
    """
    configure_logs()
    kept = anyio.run(_read, nats, credentials)
    if as_json:
        put_json({"runs": kept})
    elif kept:
        put_lines(table_lines(_COLUMNS, list(map(_cells, kept)), width=terminal_width()))
    else:
        put("no runs")
    return exits.FOUND


def forget_command(
    *runs: str, nats: str | None = None, credentials: Path | None = None, as_json: JsonFlag = False
) -> int:
    """Remove runs from a server. Their folders stay, but `ksearch resume` can no longer continue them.

    Args:
        runs: Ids of runs, as `ksearch nats runs` lists them. Runs with a live planner are refused.
        nats: Address of the NATS server; for a cluster several, separated by commas. [env: KSEARCH_NATS]
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        as_json: Print one JSON object.
    """
    configure_logs()
    if not runs:
        raise refusal("no run is named", "ksearch nats runs lists them: ksearch nats forget RUN …")
    anyio.run(_forget, tuple(dict.fromkeys(runs)), nats, credentials, as_json)
    return exits.FOUND


async def _read(nats: str | None, credentials: Path | None) -> list[dict[str, object]]:
    """Return the runs of a server for `--json`, that with the last event first; without a card the state is null."""
    from ksearch_async.fleet.status import read_cards  # noqa: PLC0415 - `ksearch nats --help` needs no bus

    async with open_bus(nats, os.environ, role="watcher", credentials=credentials) as bus:
        kept = await bus.kept_runs()
        states = {card.run_id: card.state for card in await read_cards(bus)}
    return [
        {
            "run": run.run_id,
            "state": states.get(run.run_id),
            "events": run.events,
            "size_bytes": run.size_bytes,
            "last_at": None if run.last_at is None else run.last_at.isoformat(timespec="seconds"),
        }
        for run in sorted(kept, key=lambda run: str(run.last_at or ""), reverse=True)
    ]


def _cells(run: dict[str, Any]) -> list[str]:
    age_s = run["last_at"] and (datetime.now(UTC) - datetime.fromisoformat(run["last_at"])).total_seconds()
    return [
        run["run"],
        run["state"] or _NO_CARD,
        f"{run['events']:,}",
        f"{run['size_bytes'] / 2**20:,.1f} MiB",
        "-" if age_s is None else f"{rough_duration(max(0.0, age_s))} ago",
    ]


async def _forget(runs: tuple[str, ...], nats: str | None, credentials: Path | None, as_json: bool) -> None:
    """Forget all of them, or none if one is not there or is led."""
    from ksearch_async.fleet.status import (  # noqa: PLC0415
        check_unled,
        find_run_id,
        forget_run,
    )

    done: list[str] = []
    async with open_bus(nats, os.environ, role="planner", credentials=credentials) as bus:
        for run in runs:
            if await find_run_id(bus, run) != run:
                raise refusal(f"{run!r} may be another run tomorrow", "name the run: ksearch nats runs lists them")
            await check_unled(bus, run)
        try:
            for run in runs:
                await forget_run(bus, run)
                done.append(run)
                if not as_json:
                    put(f"forgotten: {run}")
        finally:
            if done and len(done) < len(runs):
                note(f"note: forgotten so far: {', '.join(done)}")
    if as_json:
        put_json({"forgotten": done})
