"""`ksearch watch`: follows a run, in a folder here or on a NATS server, and changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from actors.bus.base import Bus
from actors.recorder import record_run
from actors.supervision import supervise
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag, ViewFlag
from ksearch_async.cli.session import ShownKind, exit_code, leave_at_signal, view_kind
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import EMBEDDED, open_bus
from ksearch_async.fleet.status import Place, find_place, find_run_id, named_folder, tell_leader
from ksearch_async.follow.logs import configure_logs
from ksearch_async.runs.feed import LOOK_S, JournalReader
from ksearch_async.runs.folder import RunFolder, create_run, not_begun, read_run
from ksearch_async.runs.resume import follow
from ksearch_async.runs.run import Best, Run
from ksearch_async.settings.run_config import RunConfig, load_config, runs_dir_or_default
from ksearch_async.views.lines import fates_line, faults_line, result_lines, state_line, usage_line, workers_line
from ksearch_async.views.live import LiveView
from ksearch_async.views.plain import JsonView, PlainView, View
from ksearch_async.views.terminal import note, shown_path
from ksearch_async.views.text import duration
from messages.events import RunStarted

_LOOK_FOR_LEADER_S = 2.0


def watch_command(
    run: str = "",
    /,
    *,
    nats: str | None = None,
    credentials: Path | None = None,
    record: Path | None = None,
    runs_dir: Path | None = None,
    view: ViewFlag = "auto",
    as_json: JsonFlag = False,
) -> int:
    """Follow a run in a folder or on a NATS server: past events, then new ones as they arrive.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if only one is there.
        nats: Address of the NATS server. Without it: as the run's folder says, else KSEARCH_NATS.
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        record: Copy a run that is on a server into a folder below this path.
        runs_dir: Folder of the run folders. [env: KSEARCH_RUNS_DIR] [default: runs]
        view: `live` redraws a picture of the search in place, `plain` prints a line per event; `auto` is `live` on a
            terminal that can.
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    kind = view_kind(view, as_json=as_json)
    folder = None if nats else _told_here(run, runs_dir_or_default(runs_dir))
    if folder is not None:
        if record is not None:
            raise refusal(f"run {folder.run_id!r} lies in a folder here: {str(folder.path)!r}", "leave --record out")
        return anyio.run(_watch_folder, folder, kind)
    place = find_place(run, nats, runs_dir_or_default(runs_dir), os.environ)
    return anyio.run(_watch, place, credentials, record, kind)


def _told_here(run: str, runs_dir: Path) -> RunFolder | None:
    folder = named_folder(run, runs_dir, has_server=bool(os.environ.get("KSEARCH_NATS")))
    if folder is None:
        return None
    nats, has_begun = load_config(folder.config).nats, folder.journal.exists()
    if nats is None and not has_begun:
        raise not_begun(folder.run_id)
    if nats is None or not has_begun or folder.in_use():
        return folder if nats is None else None
    return folder if nats == EMBEDDED or read_run(folder).finished is not None else None


async def _watch_folder(folder: RunFolder, kind: ShownKind) -> int:
    configure_logs()
    chronicle = Run()
    view = _view(chronicle, folder.run_id, kind, WatchedPlace(folder))
    configure_logs(say=view.note)
    now = anyio.CancelScope()
    is_led = True
    async with anyio.create_task_group() as beside:
        await beside.start(leave_at_signal, now)
        await beside.start(view.show)
        with now:
            is_led = await _follow_folder(folder, chronicle, view)
        beside.cancel_scope.cancel()
    if chronicle.finished is not None or kind != "json":
        view.finish()
    if chronicle.finished is not None:
        return exit_code(chronicle)
    hint = "goes on without this view" if is_led else f"is not running: ksearch resume {folder.run_id}"
    note(f"run {folder.run_id} {hint}")
    return exits.INTERRUPTED


async def _follow_folder(folder: RunFolder, chronicle: Run, view: View) -> bool:
    """Print a run until its journal ends for good; False: no process works on it, and it is not over."""
    reader, was_led, looked_at = JournalReader(folder.journal), True, anyio.current_time()
    while True:
        batch = await anyio.to_thread.run_sync(reader.read)
        for record in batch.records:
            view.tell(record)
        if batch.is_current:
            if chronicle.finished is not None or not was_led:
                return was_led
            await anyio.sleep(LOOK_S)
            if anyio.current_time() - looked_at >= _LOOK_FOR_LEADER_S:  # looking takes the lock for a moment
                was_led, looked_at = await anyio.to_thread.run_sync(folder.in_use), anyio.current_time()


async def _watch(place: Place, credentials: Path | None, record: Path | None, kind: ShownKind) -> int:
    configure_logs()
    environment = {} if place.is_private else os.environ
    async with open_bus(place.address, environment, role="watcher", credentials=credentials) as bus:
        run_id = await find_run_id(bus, place.run_id)
        folder = create_run(record, run_id) if record is not None else None
        chronicle = Run()
        view = _view(chronicle, run_id, kind, WatchedPlace(folder, is_copy=True) if folder else None)
        configure_logs(folder.log if folder else None, say=view.note)
        await _show(bus, run_id, view, folder)
    if chronicle.finished is not None or kind != "json":
        view.finish()
    if chronicle.finished is None:
        note(f"run {run_id} goes on without this view")
        return exits.INTERRUPTED
    return exit_code(chronicle)


async def _show(bus: Bus, run_id: str, view: View, folder: RunFolder | None) -> None:
    known = await bus.open_stream(run_id)
    now = anyio.CancelScope()
    async with anyio.create_task_group() as beside:
        await beside.start(leave_at_signal, now)
        await beside.start(view.show)
        if folder is not None:
            recorder = partial(record_run, bus, run_id=run_id, folder=folder.path, journal=folder.journal)
            await beside.start(supervise, "recorder", recorder)
        beside.start_soon(tell_leader, bus, run_id, view.note)
        with now:
            await follow(bus, run_id, 0, view.tell, known=known)
        beside.cancel_scope.cancel()


def _view(chronicle: Run, run_id: str, kind: ShownKind, place: WatchedPlace | None) -> View:
    if kind == "json":
        return JsonView(chronicle, place.folder if place else RunFolder(Path(run_id)))
    plain = WatchedView(chronicle, run_id, place)
    return LiveView(plain, sys.stdout, leads=False) if kind == "live" else plain


class WatchedPlace(msgspec.Struct, frozen=True):
    """A folder here that has what is watched."""

    folder: RunFolder
    is_copy: bool = False
    """True if the folder is made while watching."""


class WatchedView(PlainView):
    """Lines of a run that somebody else leads: without what only its folder and its configuration know."""

    def __init__(self, chronicle: Run, run_id: str, place: WatchedPlace | None) -> None:
        folder = place.folder if place else None
        super().__init__(chronicle, folder or RunFolder(Path(run_id)), RunConfig(task=run_id), "")
        self._recorded = folder
        self._label = "copy" if place and place.is_copy else "folder"

    def header(self, started: RunStarted) -> Iterator[str]:
        """Say what the run is."""
        settings = started.settings
        yield f"task       {started.task.name} ({started.description.language})"
        yield f"device     {started.target.device}, {started.target.toolchain}"
        yield f"search     {settings.branches} at once, {settings.budget.max_rounds} rounds, seed {started.seed}"
        yield f"run        {started.run_id}"
        if self._recorded is not None:
            yield f"{self._label:<10} {shown_path(self._recorded.path)}"

    def resumption(self) -> Iterator[str]:
        """Say what goes on."""
        yield f"resumed    {self.chronicle.state.run_id} after {self.chronicle.state.rounds} rounds"

    def summary(self, *, goes_on: bool = False) -> Iterator[str]:  # noqa: ARG002 - it always may
        """Say how it stands."""
        chronicle = self.chronicle
        state = chronicle.state
        yield f"run        {state.run_id}: {state_line(chronicle, in_use=True)}"
        yield f"rounds     {state.rounds} of {state.settings.budget.max_rounds}, {duration(chronicle.elapsed_s)}"
        if workers := workers_line(chronicle):
            yield f"workers    {workers}"
        yield f"attempts   {fates_line(chronicle)}"
        yield f"model      {usage_line(chronicle)}"
        if chronicle.faults:
            yield f"endpoint   failed tries: {faults_line(chronicle)}"
        if self._recorded is not None:
            yield from result_lines(chronicle, shown_path(self._recorded.best), shown_path(self._recorded.candidates))
            return
        for line in result_lines(chronicle, "", ""):
            if not line.startswith(("lies in", "latest")):
                yield line
        if isinstance(chronicle.best(""), Best):
            yield "hint       --record DIR keeps a copy of the run, with its kernels"
