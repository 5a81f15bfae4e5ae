"""What `run` and `resume` share: leading a session, showing it, and its exit code."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import anyio

from ksearch_async.cli import exits
from ksearch_async.cli.output import note
from ksearch_async.cli.signals import heed_signals
from ksearch_async.cli.views import JsonView, PlainView, View
from ksearch_async.launch import Session, StopSwitch, Tools, lead_session
from ksearch_async.logs import configure_logs
from ksearch_async.models import model_words

Opening: TypeAlias = AbstractAsyncContextManager[tuple[Session, Tools]]

_PATIENCE_S = 2.0
"""A start that takes longer is explained."""
_AGAIN_S = 10.0


def conduct(opening: Opening, *, as_json: bool) -> int:
    """Open and lead a session, and return the exit code that it earned."""
    return anyio.run(_conduct, opening, as_json)


async def _conduct(opening: Opening, as_json: bool) -> int:
    configure_logs()
    async with _explained(opening) as (session, tools):
        view = _view(session, as_json=as_json)
        if session.opening is not None:
            configure_logs(session.folder.log)
            await _lead(session, tools, view)
        view.finish()
        return _exit_code(session)


@asynccontextmanager
async def _explained(opening: Opening) -> AsyncIterator[tuple[Session, Tools]]:
    """Open a session; while that takes its time, say on stderr what it takes it for."""
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
        note("checking the reference …")
        while True:
            await anyio.sleep(_AGAIN_S)
            note(f"still checking the reference: {anyio.current_time() - begun:.0f} s; Ctrl-C gives up")


async def _lead(session: Session, tools: Tools, view: View) -> None:
    stop, now = StopSwitch(), anyio.CancelScope()
    async with anyio.create_task_group() as beside:
        await beside.start(heed_signals, stop, now, note)
        with now:
            await lead_session(session, tools, tell=view.tell, stop=stop)
        beside.cancel_scope.cancel()


def _view(session: Session, *, as_json: bool) -> View:
    if as_json:
        return JsonView(session.chronicle, session.folder)
    words = model_words(session.config.model, os.environ)
    return PlainView(session.chronicle, session.folder, session.config, words)


def _exit_code(session: Session) -> int:
    finished = session.chronicle.finished
    if finished is None or finished.stopped_by == "interrupted":
        return exits.INTERRUPTED
    if finished.stopped_by == "infrastructure":
        note(f"error: the infrastructure failed: {finished.detail}")
        return exits.INFRASTRUCTURE
    best = session.chronicle.best(str(session.folder.best))
    return exits.FOUND if best is not None and best.faster else exits.NOT_FOUND
