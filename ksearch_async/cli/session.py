"""`run` and `resume`: leads a session, shows it, and maps its end to an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus

from actors.llm.replay import NOT_RECORDED
from ksearch_async.cli import exits
from ksearch_async.cli.dry_run import rehearse
from ksearch_async.cli.waiting import explained
from ksearch_async.errors import refusal
from ksearch_async.evaluation.tasks import marks_of
from ksearch_async.fleet.workers import (
    find_target,
    read_task,
    slots_of,
)
from ksearch_async.follow.beside import accompanied
from ksearch_async.follow.logs import configure_logs
from ksearch_async.follow.tracing import tracing
from ksearch_async.runs.background import Departure, Detached, depart
from ksearch_async.runs.folder import run_id_of
from ksearch_async.runs.resume import Lead, Opening, Session, Start, StopSwitch, open_session
from ksearch_async.runs.run import Run
from ksearch_async.settings.models import model_words, rules_answer_misses
from ksearch_async.settings.resolve import Resolved
from ksearch_async.settings.run_config import RunConfig, files_gone, runs_dir_or_default
from ksearch_async.views.live import LiveView, can_be_live
from ksearch_async.views.plain import JsonView, PlainView, View
from ksearch_async.views.terminal import as_argument, note, put, put_json, shown_path
from messages.codec import Record


async def heed_signals(
    stop: StopSwitch,
    now: anyio.CancelScope,
    note: Callable[[str], None],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Ask for a stop at the first signal and cancel at the second. Later signals have their usual effect.

    Args:
        stop: asked at the first signal.
        now: cancelled at the second.
        note: called with a line for the person at the terminal.
        task_status: notified when signals are handled.
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if stop.was_asked:
                note("stopping now")
                now.cancel()
                return
            note("stopping when the evaluations in flight are done; again stops now")
            stop.ask(signal.Signals(received).name)


async def leave_at_signal(now: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Cancel at the first signal: what is shown goes on without us."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            now.cancel()
            return


T = TypeVar("T")
ViewKind: TypeAlias = Literal["auto", "live", "plain"]
ShownKind: TypeAlias = Literal["live", "plain", "json"]


def conduct(opens: Callable[[Start], Opening], *, view: ViewKind, as_json: bool, detach: bool = False) -> int:
    """Open and lead a session, and return its exit code.

    Args:
        opens: makes the opening; it is given an object to which it reports its progress.
        view: how the session is shown.
        as_json: print events as JSON instead.
        detach: lead it in a process without a terminal, and return 0 once the run has begun.
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


def has_missed(chronicle: Run) -> bool:
    """Say whether a run ended because a recorded run was not asked what it asks."""
    finished = chronicle.finished
    return finished is not None and finished.stopped_by == "infrastructure" and NOT_RECORDED in finished.detail


def view_kind(view: ViewKind, *, as_json: bool) -> ShownKind:
    """Return how a run is shown here."""
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


def exit_code(chronicle: Run) -> int:
    """Return what a run that was shown to its end, or to where it was left, earned."""
    finished = chronicle.finished
    if finished is None or finished.stopped_by == "interrupted":
        return exits.INTERRUPTED
    if finished.stopped_by == "infrastructure":
        note(f"error: the infrastructure failed: {finished.detail}")
        return exits.INFRASTRUCTURE
    best = chronicle.best("")
    return exits.FOUND if best is not None and best.faster else exits.NOT_FOUND


def start_run(
    resolved: Resolved,
    *,
    run_name: str | None,
    target_gpu: str | None,
    dry_run: bool,
    detach: bool,
    view: ViewKind,
    as_json: bool,
) -> int:
    """Start a run, or only say what it would be, and return the exit code."""
    config = resolved.config
    run_id = run_id_of(run_name) if run_name is not None else None
    if target_gpu is not None:
        _check_device(config, target_gpu)
    if dry_run:
        return rehearse(resolved, run_id=run_id, as_json=as_json)

    def opens(start: Start) -> Opening:
        return open_session(config, run_id=run_id, start=start)

    return conduct(opens, view=view, as_json=as_json, detach=detach)


def _check_device(config: RunConfig, wanted: str) -> None:
    device = anyio.run(find_target, read_task(config), config.candidate_language, config.workers.device).device
    if not all(part in device.lower() for part in wanted.lower().replace("-", " ").split()):
        raise refusal(
            f"--target-gpu {wanted}: this run is for {device}, the device that it is timed on",
            "leave --target-gpu out, or run on a machine that has it",
        )
