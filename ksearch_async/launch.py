"""Opens runs and leads them: all actors of a local run in one process, started together and ended together."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from actors.builder.actor import serve_builds
from actors.bus.base import Bus
from actors.bus.journal import JournalStore
from actors.bus.memory import MemoryBus
from actors.coder.actor import serve_writes
from actors.evaluator.actor import serve_evaluations
from actors.llm.base import Model
from actors.planner.actor import plan_run
from actors.planner.jobs import queues_of
from actors.recorder import record_run
from actors.supervision import supervise
from evaluators.base import Builder, Evaluator
from evaluators.tasks import is_bundled
from ksearch_async.chronicle import Chronicle
from ksearch_async.config import RunConfig, changed_keys, load_config, may_change, save_config
from ksearch_async.models import dialect_of, open_model
from ksearch_async.refusals import refusal
from ksearch_async.runs import RunFolder, create_run, new_run_id, open_chronicle
from ksearch_async.workers import check_model, find_target, initial_program, open_workers, read_task
from messages.codec import Record, decode_body, encode
from messages.errors import BusError
from messages.events import RunResumed, RunStarted, StopRequested
from messages.facts import Decided, RunFinished

_GOES_ON = frozenset({"interrupted", "infrastructure"})
"""Ends after which a run that is resumed simply goes on."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is about to start, or to go on."""

    folder: RunFolder
    config: RunConfig
    started: RunStarted
    chronicle: Chronicle
    """The run so far."""
    opening: RunStarted | RunResumed | None
    """The session's first event; null if the run is over and nothing is to be done."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers, builds and judges."""

    model: Model
    builder: Builder
    evaluator: Evaluator


@asynccontextmanager
async def open_run(config: RunConfig, *, run_id: str | None = None) -> AsyncIterator[tuple[Session, Tools]]:
    """Check the task and this machine, make the run's folder, and have what the run needs until it is over.

    A folder whose run did not begin is removed again.

    Args:
        config: what to search on, and how.
        run_id: what the run and its folder are called; null: by task and time.

    Raises:
        ConfigError: task, model settings, toolchain or folder cannot be used.
        messages.errors.EvaluatorError: the judge failed on the reference.
    """
    task, language = read_task(config), config.candidate_language
    check_model(task, dialect_of(config.model, os.environ))
    target = await find_target(task, language)
    folder = create_run(Path(config.runs_dir), run_id or new_run_id(config.task, datetime.now(UTC)))
    config = _anchored(config)
    try:
        save_config(config, folder.config)
        async with (
            open_model(config.model, os.environ, seed=config.seed) as model,
            open_workers(task, language, folder.artifacts, evaluators=config.workers.evaluators) as workers,
        ):
            started = RunStarted(
                run_id=folder.run_id,
                task=task,
                description=await workers.describe(),
                target=target,
                settings=config.search,
                seed=config.seed,
                initial=initial_program(task),
            )
            session = Session(folder=folder, config=config, started=started, chronicle=Chronicle(), opening=started)
            yield session, Tools(model=model, builder=workers.builder, evaluator=workers.evaluator)
    finally:
        if not folder.journal.exists() or not folder.journal.stat().st_size:
            shutil.rmtree(folder.path, ignore_errors=True)


@asynccontextmanager
async def reopen_run(folder: RunFolder, config: RunConfig) -> AsyncIterator[tuple[Session, Tools]]:
    """Check that a run can go on with this configuration, on this machine, and have what it needs until it is over.

    Raises:
        ConfigError: it would not be the same run.
        messages.errors.BusError: the journal cannot be read.
    """
    session = await check_reopening(folder, config)
    task, slots = session.started.task, config.workers.evaluators
    async with (
        open_model(config.model, os.environ, seed=config.seed) as model,
        open_workers(task, config.candidate_language, folder.artifacts, evaluators=slots) as workers,
    ):
        yield session, Tools(model=model, builder=workers.builder, evaluator=workers.evaluator)


async def check_reopening(folder: RunFolder, config: RunConfig) -> Session:
    """Return the session with which a run goes on, or without an opening event if it is over.

    Raises:
        ConfigError: it would not be the same run.
        messages.errors.BusError: the journal cannot be read.
    """
    saved = load_config(folder.config)
    chronicle = await anyio.to_thread.run_sync(open_chronicle, folder)
    started = chronicle.started
    if started is None:
        raise refusal(f"run {folder.run_id!r} ended before it began", "start it again with ksearch run")
    check_model(started.task, dialect_of(config.model, os.environ))
    _check_same_run(saved, config, started)
    spent = chronicle.finished is not None and chronicle.finished.stopped_by not in _GOES_ON
    if spent and config.search.budget == chronicle.state.settings.budget:
        return Session(folder=folder, config=config, started=started, chronicle=chronicle, opening=None)
    target = await find_target(started.task, config.candidate_language)
    if target.fingerprint != started.target.fingerprint:
        march = f", -march={started.target.march}" if started.target.march else ""
        raise refusal(
            f"run {folder.run_id!r} is for {started.target.device} ({started.target.toolchain}{march}), "
            "and this machine is another: its measurements cannot be compared",
            "resume it where it was started, or start a new run here",
        )
    opening = RunResumed(run_id=started.run_id, budget=config.search.budget)
    return Session(folder=folder, config=config, started=started, chronicle=chronicle, opening=opening)


class StopSwitch:
    """Asks a search to stop: evaluations in flight are finished, nothing new begins, the run can be resumed."""

    def __init__(self) -> None:
        self._asked = anyio.Event()
        self._reason = ""

    @property
    def was_asked(self) -> bool:
        """Say whether the search was asked to stop."""
        return self._asked.is_set()

    def ask(self, reason: str = "asked to stop") -> None:
        """Ask, from the event loop's thread (an `on_event` runs there); asking again changes nothing."""
        if not self.was_asked:
            self._reason = reason
            self._asked.set()

    async def wait(self) -> str:
        """Return the reason once the search is asked to stop."""
        await self._asked.wait()
        return self._reason


async def lead_session(
    session: Session, tools: Tools, *, tell: Callable[[Record], None], stop: StopSwitch | None = None
) -> None:
    """Lead a run until it ends, is asked to stop, or something fails. When cancelled it stops at once.

    Args:
        session: from `open_run` or `reopen_run`, with an opening event.
        tools: who answers, builds and judges.
        tell: called with every record that follows those of the session's chronicle.
        stop: asks the run to stop.

    Raises:
        messages.errors.KsearchError: what failed; in an exception group where several things did.
    """
    run_id = session.started.run_id  # the journal's: a folder may have been renamed, or be a copy
    bus = MemoryBus(lambda _run_id: JournalStore(session.folder.journal, sync=session.config.sync))
    try:
        last_seq = await bus.open_stream(run_id)
        if isinstance(session.opening, RunResumed):
            save_config(session.config, session.folder.config)  # not before: until then the run may be another's
        if session.opening is not None:
            await bus.publish(run_id, encode(session.opening), msg_id=f"{run_id}.opened-{last_seq}")
        async with anyio.create_task_group() as actors:
            if stop is not None:
                actors.start_soon(_heed, stop, bus, run_id)
            await _start_actors(actors, session, bus, tools)
            await _follow(bus, run_id, session.chronicle.last_seq, tell)
            actors.cancel_scope.cancel()
    finally:
        bus.close()


async def _start_actors(actors: TaskGroup, session: Session, bus: Bus, tools: Tools) -> None:
    """Start the planner first: it declares the queues that the workers pull from."""
    run_id, config = session.started.run_id, session.config
    _, build_queue, evaluate_queue = queues_of(session.started)
    slots = config.search.branches
    entries: dict[str, Callable[..., Awaitable[object]]] = {
        "planner": partial(plan_run, bus, tools.model, run_id=run_id),
        "recorder": partial(record_run, bus, run_id=run_id, folder=session.folder.path),
        "coder": partial(serve_writes, bus, tools.model, run_id=run_id, slots=slots),
        "builder": partial(
            serve_builds, bus, tools.builder, run_id=run_id, queue=build_queue, slots=config.workers.builders
        ),
        "evaluator": partial(
            serve_evaluations,
            bus,
            tools.evaluator,
            run_id=run_id,
            queue=evaluate_queue,
            slots=config.workers.evaluators,
        ),
    }
    for name, entry in entries.items():
        await actors.start(supervise, name, entry)


async def _follow(bus: Bus, run_id: str, after: int, tell: Callable[[Record], None]) -> None:
    """Tell every record until one says that the run is over."""
    events = bus.events(run_id, after=after)
    try:
        async for posted in events:
            body = decode_body(posted.payload)
            tell(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body))
            if isinstance(body, Decided) and isinstance(body.facts[-1], RunFinished):
                return
    finally:
        await events.aclose()
    raise BusError(f"the event stream of run {run_id!r} ended before the run did")


async def _heed(stop: StopSwitch, bus: Bus, run_id: str) -> None:
    """Have the run stop when it is asked to."""
    requested = StopRequested(reason=await stop.wait())
    await bus.publish(run_id, encode(requested), msg_id=f"{run_id}.stop-{uuid4().hex}")


def _anchored(config: RunConfig) -> RunConfig:
    """Return the configuration with paths that mean the same from every folder."""
    task = config.task if is_bundled(config.task) else _absolute(config.task)
    program = config.program
    if program.evaluator is not None:
        program = msgspec.structs.replace(program, evaluator=_absolute(program.evaluator))
    return msgspec.structs.replace(config, task=task, program=program, runs_dir=_absolute(config.runs_dir))


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _check_same_run(saved: RunConfig, config: RunConfig, started: RunStarted) -> None:
    """Refuse what would make it another run.

    Raises:
        ConfigError: names what has changed.
    """
    origin = msgspec.structs.replace(saved, search=started.settings, seed=started.seed)
    if started.task.source != "program":
        origin = msgspec.structs.replace(origin, language=started.description.language)
    changed = [key for key in changed_keys(origin, config) if not may_change(key)]
    if changed:
        raise refusal(
            f"{', '.join(changed)} differ{'s' if len(changed) == 1 else ''} from what run {started.run_id!r} "
            "was started with",
            "budget, model, workers and sync may change; for anything else start a new run",
        )
    files = [config.task] if config.program.evaluator is None else [config.task, config.program.evaluator]
    is_there = all(is_bundled(file) or Path(file).exists() for file in files)
    if is_there and read_task(config).task_id != started.task.task_id:
        raise refusal(
            f"problem {' or '.join(map(repr, files))} has changed since run {started.run_id!r} was started",
            "put it back, or start a new run",
        )
