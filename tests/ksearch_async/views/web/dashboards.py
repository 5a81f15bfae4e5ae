"""A dashboard on a real port, in the test's own process, and a reader of its streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec

from actors.llm.served.server import listening_socket, serve_app
from ksearch_async.views.web.access import Terms
from ksearch_async.views.web.app import Dashboard
from ksearch_async.views.web.runs import IDLE_S, FolderPlace, Place, Shelf

TOKEN = "a-token-of-these-tests"  # noqa: S105 - of tests
PATIENCE_S = 30
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Event(msgspec.Struct, frozen=True):
    """A server-sent event."""

    kind: str
    number: int
    data: Any


@asynccontextmanager
async def dashboard(
    runs_dir: Path, *others: Place, reads_need_token: bool = False, idle_s: float = IDLE_S
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve runs; the client's addresses are relative."""
    async with dashboard_of([*others, FolderPlace(runs_dir)], reads_need_token=reads_need_token, idle_s=idle_s) as (
        client,
        _,
    ):
        yield client


@asynccontextmanager
async def dashboard_of(
    places: Sequence[Place], *, reads_need_token: bool = False, idle_s: float = IDLE_S
) -> AsyncIterator[tuple[httpx.AsyncClient, Shelf]]:
    """Serve places, and show what the server holds."""
    listener = listening_socket(0)
    shelf = Shelf(places, idle_s=idle_s, look_s=0.05)
    app = Dashboard(shelf, Terms(token=TOKEN, reads_need_token=reads_need_token)).app
    async with anyio.create_task_group() as tasks:
        await tasks.start(shelf.keep)
        await tasks.start(serve_app, app, listener)
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S, trust_env=False) as client:
            yield client, shelf
        tasks.cancel_scope.cancel()


async def events(
    client: httpx.AsyncClient, path: str, count: int, *, headers: dict[str, str] | None = None
) -> list[Event]:
    """Return the first events of a stream."""
    found: list[Event] = []
    with anyio.fail_after(PATIENCE_S):
        async with client.stream("GET", path, headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream"), response.status_code
            async for event in events_of(response):
                found.append(event)
                if len(found) == count:
                    break
    return found


async def events_of(response: httpx.Response) -> AsyncIterator[Event]:
    """Yield a stream's events until it ends."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield Event(fields["event"], int(fields.get("id", 0)), json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


async def until(condition: Any) -> Any:
    """Wait until a coroutine function returns something true, and return that."""
    with anyio.fail_after(PATIENCE_S):
        while not (found := await condition()):  # noqa: ASYNC110 - no event tells of it
            await anyio.sleep(0.01)
    return found
