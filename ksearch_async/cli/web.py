"""`ksearch web`: the dashboard, served to browsers until Ctrl-C."""

from __future__ import annotations

import gc
import ipaddress
import os
import re
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.follow.logs import configure_logs
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.terminal import note, put, put_json

if TYPE_CHECKING:
    from ksearch_async.views.web.runs import Place

DEFAULT_PORT = 8787
LOOPBACK = "127.0.0.1"
TOKEN_VARIABLE = "KSEARCH_WEB_TOKEN"  # noqa: S105 - its name
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""Characters that a token may have. A short token can be guessed."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Runs and address of the dashboard."""

    runs_dir: Path
    nats: str | None
    credentials: Path | None
    token: str
    is_given: bool
    """True if the user chose the token: then every request needs it."""
    host: str


def web_command(
    runs_dir: Path | None = None,
    /,
    *,
    nats: str | None = None,
    credentials: Path | None = None,
    port: int = DEFAULT_PORT,
    host: str = LOOPBACK,
    token: str | None = None,
    open_: bool = False,
    as_json: JsonFlag = False,
) -> int:
    """Serve the dashboard.

    Args:
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        nats: Address of a NATS server. Its runs are shown, too.
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        port: Port to listen on; 0 takes a free port.
        host: Address to listen on; any but this host's own (127.0.0.1) needs a token.
        token: Token that every request must have. [env: KSEARCH_WEB_TOKEN]
        open_: Open the page in a browser.
        as_json: Print one JSON object.
    """
    if runs_dir is not None and not runs_dir.is_dir():
        raise refusal(f"no folder {str(runs_dir)!r}", "it names the folder that runs were made in")
    given = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    _check(port, host, given)
    listener = _listener(host, port)
    where = Where(
        runs_dir=runs_dir_or_default(runs_dir).absolute(),
        nats=nats or os.environ.get("KSEARCH_NATS"),
        credentials=credentials,
        token=given or secrets.token_urlsafe(24),
        is_given=given is not None,
        host=host,
    )
    configure_logs()
    gc.enable()  # `main` disabled it for the start; a server may run for days
    return anyio.run(_serve, where, listener, open_, as_json)


async def _serve(where: Where, listener: socket.socket, opens: bool, as_json: bool) -> int:
    from actors.llm.served.server import serve_app  # noqa: PLC0415 - starlette and uvicorn serve few commands
    from ksearch_async.views.web.access import Terms  # noqa: PLC0415
    from ksearch_async.views.web.app import Dashboard  # noqa: PLC0415
    from ksearch_async.views.web.runs import Shelf  # noqa: PLC0415

    names = frozenset({where.host, socket.gethostname(), socket.getfqdn()}) if where.is_given else frozenset()
    terms = Terms(token=where.token, reads_need_token=where.is_given, names=names)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with _places(where) as places, anyio.create_task_group() as tasks:
            shelf = Shelf(places)
            await tasks.start(shelf.keep)
            await tasks.start(serve_app, Dashboard(shelf, terms).app, listener)
            await _say(where, listener, opens, as_json)
            async for _ in signals:
                tasks.cancel_scope.cancel()
                break
    return exits.FOUND


@asynccontextmanager
async def _places(where: Where) -> AsyncIterator[list[Place]]:
    from ksearch_async.fleet.access import open_bus  # noqa: PLC0415
    from ksearch_async.views.web.runs import FolderPlace, ServerPlace  # noqa: PLC0415

    folders = FolderPlace(where.runs_dir, os.environ, credentials=where.credentials)
    if where.nats is None:
        yield [folders]
        return
    async with open_bus(where.nats, os.environ, role="watcher", credentials=where.credentials) as bus:
        yield [ServerPlace(bus, where.nats, os.environ, credentials=where.credentials), folders]


async def _say(where: Where, listener: socket.socket, opens: bool, as_json: bool) -> None:
    address, port = listener.getsockname()[:2]
    is_everywhere = ipaddress.ip_address(address).is_unspecified
    shown = socket.gethostname() if is_everywhere else f"[{address}]" if ":" in address else address
    url = f"http://{shown}:{port}/#token={where.token}"
    if as_json:
        put_json({"url": url, "host": address, "port": port, "runs_dir": str(where.runs_dir), "nats": where.nats})
    else:
        put(f"listening on {url}")
    if opens:
        import webbrowser  # noqa: PLC0415 - few want it

        if not await anyio.to_thread.run_sync(webbrowser.open, url):
            note("warning: no browser could be opened")


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        hint = "--port 0 takes a free one"
        raise refusal(f"cannot listen on {host} port {port}: {error.strerror}", hint) from error


def _check(port: int, host: str, token: str | None) -> None:
    from actors.bus.nats.local_server import is_loopback  # noqa: PLC0415 - `ksearch web --help` needs no server

    if not 0 <= port <= 65535:
        raise refusal(f"--port: expected 0 to 65535, not {port}")
    if token is not None and not _TOKEN.fullmatch(token):
        hint = f"python -c 'import secrets; print(secrets.token_urlsafe())' makes one; {TOKEN_VARIABLE} takes it, too"
        raise refusal("--token: expected 16 or more letters, digits, dashes and underscores", hint)
    if token is None and not is_loopback(host):
        tunnel = f"ssh -L {port}:127.0.0.1:{port} HOST"
        hint = f"set one with {TOKEN_VARIABLE} or --token, or leave --host out and reach it through a tunnel: {tunnel}"
        raise refusal(f"--host {host}: without a token the dashboard is for this host alone", hint)
