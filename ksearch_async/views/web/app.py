"""The dashboard's HTTP interface: its routes and answers. docs/guides/dashboard.md describes it."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import anyio.to_thread
import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ksearch_async import __version__
from ksearch_async.runs.orders import Line, begun, give, steer
from ksearch_async.runs.run import Run
from ksearch_async.views.web.access import Guard, Terms, has_token, problem
from ksearch_async.views.web.details import (
    UnknownPartError,
    candidate_details,
    cost_details,
    node_details,
    roster_told,
    task_details,
)
from ksearch_async.views.web.runs import OpenedRun, Shelf, UnknownRunError, told_runs, told_updates
from messages.base import ConfigError, KsearchError
from messages.events import ContinueRequested, PauseRequested, StopRequested
from messages.steering import Audience, Boost, Forbid, Instruct, Pin, Release, Steering

OrderName: TypeAlias = Literal["pause", "continue", "stop", "tell", "pin", "boost", "forbid", "release"]
MAX_BODY_BYTES = 1 << 20
_BOOST = 0.2
"""Default of `ksearch boost`."""
STATIC = Path(__file__).with_name("static")
_JSON = "application/json"
_EVENTS = "text/event-stream"
_GZIP_WBITS = 31
"""zlib's name for a gzip header."""
_GZIP_LEVEL = 1
"""The page waits for the compression: higher levels take longer than sending the bytes that they save."""

_DETAILS: dict[str, Callable[[Run, str], object]] = {
    "nodes/{part}": node_details,
    "candidates/{part}": candidate_details,
    "costs": cost_details,
    "task": task_details,
}

log = structlog.get_logger(__name__)


class Dashboard:
    """The application over a shelf of runs."""

    def __init__(self, shelf: Shelf, terms: Terms) -> None:
        self._shelf = shelf
        self._terms = terms
        routes = [
            Route("/", _page),
            Route("/api/server", self._server),
            Route("/api/runs", self._runs),
            Route("/api/events", self._events),
            Route("/api/runs/{run}/history", self._history),
            Route("/api/runs/{run}/updates", self._updates),
            Route("/api/runs/{run}/orders", self._orders, methods=["POST"]),
            *(Route(f"/api/runs/{{run}}/{path}", partial(self._details, told)) for path, told in _DETAILS.items()),
            Route("/api/nodes", self._nodes),
            Mount("/static", StaticFiles(directory=STATIC, check_dir=False)),
        ]
        handlers: dict[type[Exception], Callable[..., Awaitable[Response]]] = {
            HTTPException: _not_found,
            KsearchError: _refused,
            Exception: _broken,
        }
        self.app: ASGIApp = Guard(Starlette(routes=routes, exception_handlers=handlers), terms)

    async def _server(self, request: Request) -> Response:
        can_steer = has_token(request.headers, self._terms.token)
        return answer({"version": __version__, "can_steer": can_steer, "place": self._shelf.kinds[0]})

    async def _runs(self, _request: Request) -> Response:
        return answer({"runs": self._shelf.rows()})

    async def _events(self, _request: Request) -> Response:
        return StreamingResponse(told_runs(self._shelf), media_type=_EVENTS)

    async def _history(self, request: Request) -> Response:
        async with self._shelf.run(request.path_params["run"]) as opened:
            is_packed = "gzip" in request.headers.get("accept-encoding", "")
            body = await anyio.to_thread.run_sync(_told, opened, is_packed)
        headers = {"Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if is_packed else {})}
        return Response(body, media_type=_JSON, headers=headers)

    async def _updates(self, request: Request) -> Response:
        after = _number(request.headers.get("last-event-id") or request.query_params.get("after", "0"))
        if after is None:
            return problem(
                400, "`after` is the number of an update", "begin with /history, and go on after its last_seq"
            )
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(self._shelf.run(request.path_params["run"]))
            watching = _until_gone(told_updates(opened, after), stack.pop_all())
        return StreamingResponse(watching, media_type=_EVENTS)

    async def _details(self, told: Callable[[Run, str], object], request: Request) -> Response:
        async with self._shelf.run(request.path_params["run"]) as opened:
            return answer(await opened.ask(told, request.path_params.get("part", opened.run_id)))

    async def _orders(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        if request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
            return problem(415, "an order is a JSON object", f"send it as {_JSON}")
        body = await _bounded(request)
        if body is None:
            return problem(413, f"an order has at most {MAX_BODY_BYTES} bytes")
        asked = read_asked(body)
        place = await self._shelf.place_of(run_id)
        async with place.line(run_id) as line:
            outcome = await carry_out(line, asked)
        log.info("order from the page", run=run_id, order=asked.order, done=outcome.done)
        return answer(outcome)

    async def _nodes(self, _request: Request) -> Response:
        return answer(roster_told(await self._shelf.roster()))


async def _until_gone(events: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        async for event in events:
            yield event


def answer(value: object) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), media_type=_JSON)


def _told(opened: OpenedRun, is_packed: bool) -> bytes:
    updates = opened.updates[:]
    last_seq = opened.seq_at(len(updates) - 1) if updates else 0
    body = b'{"updates":[%s],"last_seq":%d}' % (b",".join(updates), last_seq)
    return zlib.compress(body, level=_GZIP_LEVEL, wbits=_GZIP_WBITS) if is_packed else body


async def _bounded(request: Request) -> bytes | None:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


async def _page(_request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _not_found(_request: Request, error: HTTPException) -> Response:
    return problem(error.status_code, error.detail)


async def _refused(_request: Request, error: KsearchError) -> Response:
    hints = "; ".join(getattr(error, "__notes__", ()))
    status = (
        404 if isinstance(error, UnknownRunError | UnknownPartError) else 400 if isinstance(error, ConfigError) else 502
    )
    return problem(status, str(error), hints)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("a request could not be answered", path=request.url.path, exc_info=error)
    return problem(500, "the dashboard has a fault", "its log says which; the run goes on without it")


class BadOrderError(ConfigError):
    """The request is not an order."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An order in the page's form."""

    order: OrderName
    node_id: str = ""
    """Node of `pin`, `boost`, `forbid` and `release`."""
    text: str = ""
    """Text of `tell`."""
    to: Audience = "both"
    by: float = _BOOST
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an order."""

    done: bool
    said: str


_asked = msgspec.json.Decoder(Asked)


def read_asked(body: bytes) -> Asked:
    """Read an order.

    Raises:
        BadOrderError: it is not an order.
    """
    try:
        asked = _asked.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last one: nested too deeply
        raise BadOrderError(f"no order: {error}") from error
    if asked.order in ("pin", "boost", "forbid", "release") and not asked.node_id:
        raise BadOrderError(f"{asked.order}: no `node_id`")
    if asked.order == "tell" and not asked.text.strip():
        raise BadOrderError("tell: no `text`")
    return asked


async def carry_out(line: Line, asked: Asked) -> Outcome:
    """Give an order, and return its outcome, also if it is refused."""
    try:
        return await _course(line, asked) or await _given(line, asked)
    except ConfigError as error:
        return Outcome(done=False, said="; ".join((str(error), *getattr(error, "__notes__", ()))))


async def _course(line: Line, asked: Asked) -> Outcome | None:
    match asked.order:
        case "stop":
            answered = await steer(line, "stop", StopRequested(reason=asked.reason or "the dashboard"))
        case "pause":
            answered = await steer(line, "pause", PauseRequested(reason=asked.reason))
        case "continue":
            answered = await steer(line, "continue", ContinueRequested())
        case _:
            return None
    said = "; ".join(part for part in (answered.said, answered.failure, answered.hint) if part)
    return Outcome(done=answered.taken, said=said)


async def _given(line: Line, asked: Asked) -> Outcome:
    given = await give(line, await begun(line), _steering(asked))
    return Outcome(done=given.taken, said="; ".join((*given.words, *given.notes)))


def _steering(asked: Asked) -> Steering:
    match asked.order:
        case "pin":
            return Pin(node_id=asked.node_id)
        case "boost":
            return Boost(node_id=asked.node_id, by=asked.by)
        case "forbid":
            return Forbid(node_id=asked.node_id, reason=asked.reason)
        case "release":
            return Release(node_id=asked.node_id)
        case _:
            return Instruct(text=asked.text, to=asked.to)
