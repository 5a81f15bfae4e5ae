"""What `run` and `resume` share: leading a session, showing it, and its exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import anyio
import msgspec

from actors.llm.replay import NOT_RECORDED
from ksearch_async.accompanying import accompanied
from ksearch_async.admission import marks_of
from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.live import LiveView, can_be_live
from ksearch_async.cli.output import as_argument, note, put, put_json, shown_path
from ksearch_async.cli.signals import heed_signals, leave_at_signal
from ksearch_async.cli.views import JsonView, PlainView, View
from ksearch_async.detaching import Departure, Detached, depart
from ksearch_async.logs import configure_logs
from ksearch_async.models import model_words, rules_answer_misses
from ksearch_async.refusals import refusal
from ksearch_async.runs import runs_dir_or_default
from ksearch_async.session import Lead, Opening, Session, Start, StopSwitch, files_gone
from ksearch_async.tracing import tracing
from ksearch_async.workers import slots_of
from messages.codec import Record

T = TypeVar("T")
ViewKind: TypeAlias = Literal["auto", "live", "plain"]
ShownKind: TypeAlias = Literal["live", "plain", "json"]

_PATIENCE_S = 2.0
"""A start that takes longer is explained."""
_AGAIN_S = 10.0


def conduct(opens: Callable[[Start], Opening], *, view: ViewKind, as_json: bool, detach: bool = False) -> int:
    """Open and lead a session, and return the exit code that it earned.

    Args:
        opens: makes the opening; told by it what it is busy with.
        view: how it is shown.
        as_json: print events as JSON instead.
        detach: lead it in a process that needs no terminal, and return 0 once the run has begun.

    Raises:
        ConfigError: it cannot be shown as asked.
    """
    if detach and view == "live":
        raise refusal("--view live and --detach cannot be given together", "ksearch watch RUN shows it live")
    departed = depart() if detach else None
    if isinstance(departed, Detached):
        _tell_detached(departed, as_json=as_json)
        return exits.FOUND
    if isinstance(departed, int):
        return departed
    kind = view_kind(view, as_json=as_json)
    with tracing(os.environ, role="planner"):
        return anyio.run(_conduct, opens, kind, departed)


def _tell_detached(detached: Detached, *, as_json: bool) -> None:
    if as_json:
        put_json({"kind": "detached", **msgspec.structs.asdict(detached)})
        return
    folder = Path(detached.path)
    run = detached.run if folder.parent == runs_dir_or_default(None).absolute() else as_argument(folder)
    put(f"run        {detached.run}, process {detached.pid}")
    put(f"output     {shown_path(Path(detached.output))}")
    put(f"watch it   ksearch watch {run}")
    put(f"stop it    ksearch stop {run}")


async def _conduct(opens: Callable[[Start], Opening], kind: ShownKind, departure: Departure | None) -> int:
    configure_logs()
    start = Start(note)
    async with explained(opens(start), start) as (session, lead):
        view = _view(session, kind)
        if not session.is_over:
            configure_logs(session.folder.log, say=view.note)
            _note_beginning(session, kind, view)
            gc.freeze()
            gc.enable()  # `main` disabled it for the start; a search may go on for days
            await _lead(session, lead, view, departure)
        else:
            note(f"run {session.folder.run_id} is over: nothing was started")
            larger = f"ksearch resume {as_argument(session.folder.path)} --max-rounds N"
            note(f"hint: it goes on with a larger budget: {larger}")
        if goes_on := not session.leads and session.chronicle.finished is None:
            note(f"run {session.folder.run_id} goes on without this view")
        view.finish(goes_on=goes_on)
        code = exit_code(session.chronicle)
        if has_missed(session.chronicle):
            note("hint: --replay-misses ask has a model asked what the recorded run was not: --model NAME")
        return code


@asynccontextmanager
async def explained(opening: AbstractAsyncContextManager[T], start: Start | None = None) -> AsyncIterator[T]:
    """Open what has the reference run, or waits for others; while that takes its time, say so on stderr."""
    async with anyio.create_task_group() as beside:
        waiting = anyio.CancelScope()
        beside.start_soon(_explain, waiting, start or Start(note))
        async with opening as opened:
            waiting.cancel()
            yield opened


async def _explain(waiting: anyio.CancelScope, start: Start) -> None:
    begun = anyio.current_time()
    with waiting:
        await anyio.sleep(_PATIENCE_S)
        note(f"{start.doing} ...")
        while True:
            await anyio.sleep(_AGAIN_S)
            note(f"still {start.doing}: {anyio.current_time() - begun:.0f} s; Ctrl-C gives up")


async def _lead(session: Session, lead: Lead, view: View, departure: Departure | None) -> None:
    stop, now = StopSwitch(), anyio.CancelScope()

    def tell(record: Record) -> None:
        if departure is not None:  # the run has begun: this is its first event
            departure.leave(session.folder)
        view.tell(record)

    if departure is not None and session.opening is None:
        departure.leave(session.folder)
    async with anyio.create_task_group() as beside:
        if session.leads:
            await beside.start(heed_signals, stop, now, view.note)
        else:
            await beside.start(leave_at_signal, now)
        await beside.start(view.show)
        with now:
            await accompanied(session, lead, say=view.note)(tell=tell, stop=stop)
        beside.cancel_scope.cancel()


def _note_beginning(session: Session, kind: ShownKind, view: View) -> None:
    """Say on stderr what no event of the session says."""
    if rules_answer_misses(session.config.model, os.environ):
        view.note(
            "hint: no model is named for what the recorded run was not asked: built-in rules answer; --model NAME"
        )
    if session.address and (kind == "json" or session.opening is not session.started):
        view.note(f"messages of run {session.started.run_id} go over {session.address}")
    for file in files_gone(session.config):
        view.note(f"warning: {shown_path(Path(file))!r} is not there: the run goes on with its own copy of the task")
    if session.opening is None:
        rounds = session.chronicle.state.rounds
        begins = "goes on" if session.leads else "is followed"
        view.note(f"run {session.started.run_id} {begins} after {rounds} rounds")
    else:
        for mark in marks_of(session.started.description):
            view.note(f"warning: {mark}")


def has_missed(chronicle: Chronicle) -> bool:
    """Say whether a run ended because a recorded run was not asked what it asks."""
    finished = chronicle.finished
    return finished is not None and finished.stopped_by == "infrastructure" and NOT_RECORDED in finished.detail


def view_kind(view: ViewKind, *, as_json: bool) -> ShownKind:
    """Return how a run is shown here.

    Raises:
        ConfigError: it cannot be shown as asked.
    """
    if as_json:
        if view != "auto":
            raise refusal(f"--view {view} and --json cannot be given together")
        return "json"
    if view != "plain" and can_be_live(sys.stdout):
        return "live"
    if view == "live":
        raise refusal("--view live needs a terminal of some size on stdout", "--view plain prints lines anywhere")
    return "plain"


def _view(session: Session, kind: ShownKind) -> View:
    if kind == "json":
        return JsonView(session.chronicle, session.folder)
    words = model_words(session.config.model, os.environ)
    plain = PlainView(session.chronicle, session.folder, session.config, words, address=session.address)
    if kind != "live":
        return plain
    slots = slots_of(session.config.workers) if session.config.nats is None else None
    return LiveView(plain, sys.stdout, leads=session.leads, slots=slots)


def exit_code(chronicle: Chronicle) -> int:
    """Return what a run that was shown to its end, or to where it was left, earned."""
    finished = chronicle.finished
    if finished is None or finished.stopped_by == "interrupted":
        return exits.INTERRUPTED
    if finished.stopped_by == "infrastructure":
        note(f"error: the infrastructure failed: {finished.detail}")
        return exits.INFRASTRUCTURE
    best = chronicle.best("")
    return exits.FOUND if best is not None and best.faster else exits.NOT_FOUND
