"""What `run` and `resume` share: leading a session, showing it, and its exit code."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import anyio

from ksearch_async.cli import exits
from ksearch_async.cli.output import note
from ksearch_async.cli.views import JsonView, PlainView, View
from ksearch_async.launch import Session, Tools, lead_session
from ksearch_async.logs import configure_logs
from ksearch_async.models import model_words

Opening: TypeAlias = AbstractAsyncContextManager[tuple[Session, Tools]]


def conduct(opening: Opening, *, as_json: bool) -> int:
    """Open and lead a session, and return the exit code that it earned."""
    return anyio.run(_conduct, opening, as_json)


async def _conduct(opening: Opening, as_json: bool) -> int:
    configure_logs()
    async with opening as (session, tools):
        view = _view(session, as_json=as_json)
        if session.opening is not None:
            configure_logs(session.folder.log)
            await lead_session(session, tools, tell=view.tell, note=note)
        view.finish()
        return _exit_code(session)


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
