"""What `run` and `resume` share: leading a session, showing it, and its exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, TypeAlias, TypeVar

import anyio

from ksearch_async.cli import exits
from ksearch_async.cli.live import LiveView, can_be_live
from ksearch_async.cli.output import note, shown_path
from ksearch_async.cli.signals import heed_signals
from ksearch_async.cli.views import JsonView, PlainView, View
from ksearch_async.launch import Session, StopSwitch, Tools, lead_session
from ksearch_async.logs import configure_logs
from ksearch_async.models import model_words
from ksearch_async.refusals import refusal

T = TypeVar("T")
Opening: TypeAlias = AbstractAsyncContextManager[tuple[Session, Tools]]
ViewKind: TypeAlias = Literal["auto", "live", "plain"]

_PATIENCE_S = 2.0
"""A start that takes longer is explained."""
_AGAIN_S = 10.0


def conduct(opening: Opening, *, view: ViewKind, as_json: bool) -> int:
    """Open and lead a session, and return the exit code that it earned.

    Raises:
        ConfigError: it cannot be shown as asked.
    """
    kind: ViewKind | Literal["json"] = _kind(view, as_json=as_json)
    return anyio.run(_conduct, opening, kind)


async def _conduct(opening: Opening, kind: ViewKind | Literal["json"]) -> int:
    configure_logs()
    async with explained(opening) as (session, tools):
        view = _view(session, kind)
        if session.opening is not None:
            configure_logs(session.folder.log, say=view.note)
            gc.freeze()
            gc.enable()  # `main` disabled it for the start; a search may go on for days
            await _lead(session, tools, view)
        else:
            note(f"run {session.folder.run_id} is over: nothing was started")
            larger = f"ksearch resume {shown_path(session.folder.path)} --max-rounds N"
            note(f"hint: it goes on with a larger budget: {larger}")
        view.finish()
        return _exit_code(session)


@asynccontextmanager
async def explained(opening: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Open what has the reference run; while that takes its time, say so on stderr."""
    async with anyio.create_task_group() as beside:
        waiting = anyio.CancelScope()
        beside.start_soon(_explain, waiting)
        async with opening as opened:
            waiting.cancel()
            yield opened


async def _explain(waiting: anyio.CancelScope) -> None:
    begun = anyio.current_time()
    with waiting:
        await anyio.sleep(_PATIENCE_S)
        note("checking the reference ...")
        while True:
            await anyio.sleep(_AGAIN_S)
            note(f"still checking the reference: {anyio.current_time() - begun:.0f} s; Ctrl-C gives up")


async def _lead(session: Session, tools: Tools, view: View) -> None:
    stop, now = StopSwitch(), anyio.CancelScope()
    async with anyio.create_task_group() as beside:
        await beside.start(heed_signals, stop, now, view.note)
        await beside.start(view.show)
        with now:
            await lead_session(session, tools, tell=view.tell, stop=stop)
        beside.cancel_scope.cancel()


def _kind(view: ViewKind, *, as_json: bool) -> ViewKind | Literal["json"]:
    if as_json:
        if view != "auto":
            raise refusal(f"--view {view} and --json cannot be given together")
        return "json"
    if view != "plain" and can_be_live(sys.stdout):
        return "live"
    if view == "live":
        raise refusal("--view live needs a terminal of some size on stdout", "--view plain prints lines anywhere")
    return "plain"


def _view(session: Session, kind: ViewKind | Literal["json"]) -> View:
    if kind == "json":
        return JsonView(session.chronicle, session.folder)
    words = model_words(session.config.model, os.environ)
    plain = PlainView(session.chronicle, session.folder, session.config, words)
    return LiveView(plain, sys.stdout) if kind == "live" else plain


def _exit_code(session: Session) -> int:
    finished = session.chronicle.finished
    if finished is None or finished.stopped_by == "interrupted":
        return exits.INTERRUPTED
    if finished.stopped_by == "infrastructure":
        note(f"error: the infrastructure failed: {finished.detail}")
        return exits.INFRASTRUCTURE
    best = session.chronicle.best(str(session.folder.best))
    return exits.FOUND if best is not None and best.faster else exits.NOT_FOUND
