"""Sessions of a run: checks before one starts or resumes, and leading it. A local run is one process."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from actors.builder import serve_builds
from actors.bus.base import Bus
from actors.bus.journal import JournalStore
from actors.bus.memory import MemoryBus
from actors.bus.stream import body_of
from actors.coder.actor import serve_writes
from actors.evaluator import serve_evaluations
from actors.llm.base import Model
from actors.planner.actor import plan_run
from actors.planner.jobs import queues_of, write_queues
from actors.recorder import record_run
from actors.supervision import supervise
from actors.worker.taking import FixedQueues
from evaluators.base import Builder, Evaluator
from evaluators.tasks import anchored as anchored_task
from evaluators.tasks import is_bundled, is_there
from ksearch_async.errors import refusal
from ksearch_async.evaluation.tasks import check_accepted, check_fitness
from ksearch_async.fleet.workers import (
    check_model,
    check_threads_here,
    find_target,
    initial_program,
    open_workers,
    read_task,
    slots_of,
)
from ksearch_async.runs.folder import RunFolder, create_run, new_run_id, read_run
from ksearch_async.runs.mailbox import open_mailbox
from ksearch_async.runs.run import Run
from ksearch_async.runs.warm_start import read_heritage, read_solution
from ksearch_async.settings.models import lineup_of, open_model, writer_dialect
from ksearch_async.settings.run_config import (
    ContinueSettings,
    RunConfig,
    changed_keys,
    load_config,
    may_change,
    save_config,
    task_files,
)
from messages.base import BusError
from messages.codec import Record, encode
from messages.events import RunResumed, RunStarted, StopRequested
from messages.facts import Decided, RunFinished, SearchReopened
from messages.models import Lineup
from messages.settings import Budget


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is about to start or to continue."""

    folder: RunFolder
    config: RunConfig
    started: RunStarted
    chronicle: Run
    """The run so far."""
    opening: RunStarted | RunResumed | None
    """The session's first event; None if none is needed: the run has a leader already, or it is over."""
    is_over: bool = False
    """True if there is nothing to do."""
    address: str = ""
    """Address of the run's messages, if others can take part."""
    leads: bool = True
    """True if this process leads the run. If not, it only watches and records."""

    @property
    def lineup(self) -> Lineup:
        """The models that the run calls from now on."""
        said = self.opening.lineup if self.opening is not None else None
        return said if said is not None else self.chronicle.state.lineup


class StopSwitch:
    """Asks a search to stop: evaluations in flight are finished, nothing new begins, and the run can be resumed."""

    def __init__(self) -> None:
        self._asked = anyio.Event()
        self._reason = ""

    @property
    def was_asked(self) -> bool:
        """Say whether the search was asked to stop."""
        return self._asked.is_set()

    def ask(self, reason: str = "asked to stop") -> None:
        """Ask for a stop, from the event loop's thread (where `on_event` runs). A second call has no effect."""
        if not self.was_asked:
            self._reason = reason
            self._asked.set()

    async def wait(self) -> str:
        """Return the reason once the search is asked to stop."""
        await self._asked.wait()
        return self._reason


class Lead(Protocol):
    """Leads a session until its run ends, is asked to stop, or fails. Cancelling it stops at once."""

    async def __call__(self, *, tell: Callable[[Record], None], stop: StopSwitch | None = None) -> None:
        """Lead.

        Args:
            tell: called with every record that follows those of the session's chronicle.
            stop: asks the run to stop.

        Raises:
            messages.base.KsearchError: what failed; in an exception group where several things did.
        """


Opened: TypeAlias = tuple[Session, Lead]
Opening: TypeAlias = AbstractAsyncContextManager[Opened]


class Start:
    """Progress of a session's start, for callers that wait for it."""

    def __init__(self, say: Callable[[str], None] = lambda _text: None) -> None:
        """Begin. `say` is called with lines that must be shown at once."""
        self.say = say
        self.doing = "checking the reference"


async def follow(bus: Bus, run_id: str, after: int, tell: Callable[[Record], None], *, known: int = 0) -> None:
    """Report every record until one ends the run for good; a run that is reopened up to the record `known` goes on.

    Raises:
        messages.base.BusError: the stream ended before.
    """
    is_over = False
    events = bus.events(run_id, after=after)
    try:
        async for posted in events:
            body = body_of(posted)
            if body is not None:
                tell(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body))
            if isinstance(body, Decided):
                reopens = any(isinstance(fact, SearchReopened) for fact in body.facts)
                is_over = isinstance(body.facts[-1], RunFinished) or (is_over and not reopens)
            if is_over and posted.seq >= known:
                return
    finally:
        await events.aclose()
    raise BusError(f"the event stream of run {run_id!r} ended before the run did")


async def heed(stop: StopSwitch, bus: Bus, run_id: str) -> None:
    """Stop the run when the switch asks for it."""
    requested = StopRequested(reason=await stop.wait())
    await bus.publish(run_id, encode(requested), msg_id=f"{run_id}.stop-{uuid4().hex}")


def is_spent(chronicle: Run, budget: Budget) -> bool:
    """Return True if a run is over for good with this budget."""
    return chronicle.is_over and budget == chronicle.state.settings.budget


def anchored(config: RunConfig) -> RunConfig:
    """Return the configuration with absolute paths, which mean the same in every folder."""
    task = config.task if is_bundled(config.task) else anchored_task(config.task)
    program = config.program
    if program.evaluator is not None:
        program = msgspec.structs.replace(program, evaluator=_absolute(program.evaluator))
    model = config.model
    if model.replay is not None and Path(model.replay).expanduser().exists():
        model = msgspec.structs.replace(model, replay=_absolute(model.replay))
    begin, runs_dir = config.continue_from, _absolute(config.runs_dir)
    begin = ContinueSettings(solution=_anchored(begin.solution), world_model=_anchored(begin.world_model))
    return msgspec.structs.replace(
        config, task=task, program=program, model=model, continue_from=begin, runs_dir=runs_dir
    )


def _anchored(name: str | None) -> str | None:
    """Return a path made absolute, and a run's name unchanged."""
    return _absolute(name) if name is not None and Path(name).expanduser().exists() else name


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def check_same_run(saved: RunConfig, config: RunConfig, started: RunStarted) -> None:
    """Refuse changes that would make it another run.

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
    files = task_files(config)
    if all(is_bundled(file) or is_there(file) for file in files) and read_task(config).task_id != started.task.task_id:
        raise refusal(
            f"problem {' or '.join(map(repr, files))} has changed since run {started.run_id!r} was started",
            "put it back, or start a new run",
        )


def check_messages_stay(saved: RunConfig, config: RunConfig, run_id: str) -> None:
    """Refuse to move a run to another server or into a folder. A server's address may change.

    Raises:
        ConfigError: names the place of its messages.
    """
    kinds = [_place(each.nats) for each in (saved, config)]
    if kinds[0] != kinds[1]:
        raise refusal(
            f"run {run_id!r} has its messages {kinds[0]}, and cannot go on with them {kinds[1]}",
            "leave --nats out",
        )


def _place(nats: str | None) -> str:
    if nats is None:
        return "in its folder"
    return "in a server of its own" if nats == "embedded" else "on a server"


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The model, builder and evaluator of a local run."""

    model: Model
    builder: Builder
    evaluator: Evaluator


@asynccontextmanager
async def open_run(config: RunConfig, *, run_id: str | None = None) -> AsyncIterator[tuple[Session, Tools]]:
    """Check the task and this machine, create the run's folder, and provide everything the run needs until it is over.

    The folder of a run that did not begin is removed again.
    """
    task, language = read_task(config), config.candidate_language
    check_model(task, config.candidate_language, writer_dialect(config.model, os.environ))
    check_threads_here(task)
    lineup = lineup_of(config, os.environ)
    target = await find_target(task, language, config.workers.device)
    solution = await anyio.to_thread.run_sync(read_solution, config)
    heritage = await anyio.to_thread.run_sync(read_heritage, config, task, target)
    folder = create_run(Path(config.runs_dir), run_id or new_run_id(config.task, datetime.now(UTC)))
    config = anchored(config)
    try:
        save_config(config, folder.config)
        async with (
            open_model(config.model, os.environ, seed=config.seed, folder=folder.path) as model,
            open_workers(task, language, folder.artifacts, config.workers) as workers,
        ):
            description = await workers.describe()
            check_fitness(description, allow_trivial=config.allow_trivial)
            started = RunStarted(
                run_id=folder.run_id,
                task=task,
                description=description,
                target=target,
                settings=config.search,
                seed=config.seed,
                initial=initial_program(task),
                solution=solution,
                heritage=heritage,
                lineup=lineup,
            )
            session = Session(folder=folder, config=config, started=started, chronicle=Run(), opening=started)
            yield session, Tools(model=model, builder=workers.builder, evaluator=workers.evaluator)
    finally:
        if not folder.journal.exists() or not folder.journal.stat().st_size:
            shutil.rmtree(folder.path, ignore_errors=True)


async def check_reopening(folder: RunFolder, config: RunConfig) -> Session:
    """Return the session with which a run continues; without an opening event if it is over.

    Raises:
        ConfigError: it would not be the same run.
        messages.base.BusError: the journal cannot be read.
    """
    saved = load_config(folder.config)
    chronicle = await anyio.to_thread.run_sync(read_run, folder)
    started = chronicle.started
    if started is None:
        raise refusal(f"run {folder.run_id!r} ended before it began", "start it again with ksearch run")
    check_model(started.task, config.candidate_language, writer_dialect(config.model, os.environ))
    check_same_run(saved, config, started)
    if is_spent(chronicle, config.search.budget):
        return Session(folder=folder, config=config, started=started, chronicle=chronicle, opening=None, is_over=True)
    used, rounds = chronicle.state.rounds, config.search.budget.max_rounds
    if rounds < used:
        raise refusal(
            f"run {folder.run_id!r} has used {used} rounds already, and may have {rounds} (--max-rounds)",
            f"a number above {used} has it go on",
        )
    target = await find_target(started.task, config.candidate_language, config.workers.device)
    if target.fingerprint != started.target.fingerprint:
        march = f", -march={started.target.march}" if started.target.march else ""
        raise refusal(
            f"run {folder.run_id!r} is for {started.target.device} ({started.target.toolchain}{march}), "
            "and this machine is another: its measurements cannot be compared",
            "resume it where it was started, or start a new run here",
        )
    lineup = lineup_of(config, os.environ)
    opening = RunResumed(run_id=started.run_id, budget=config.search.budget, lineup=lineup)
    return Session(folder=folder, config=config, started=started, chronicle=chronicle, opening=opening)


async def lead_session(
    session: Session, tools: Tools, *, tell: Callable[[Record], None], stop: StopSwitch | None = None
) -> None:
    """Lead a run until it ends, is asked to stop, or fails. Cancelling it stops at once."""
    run_id = session.started.run_id  # the journal's: a folder may have been renamed, or be a copy
    bus = MemoryBus(lambda _run_id: JournalStore(session.folder.journal, sync=session.config.sync))
    try:
        last_seq = await bus.open_stream(run_id)
        if isinstance(session.opening, RunResumed):
            save_config(session.config, session.folder.config)  # not before: until then the run may be another's
        if session.opening is not None:
            await bus.publish(run_id, encode(session.opening), msg_id=f"{run_id}.opened-{last_seq}")
        async with open_mailbox(session.folder, bus, run_id), anyio.create_task_group() as actors:
            if stop is not None:
                actors.start_soon(heed, stop, bus, run_id)
            await _start_actors(actors, session, bus, tools)
            await follow(bus, run_id, session.chronicle.last_seq, tell)
            actors.cancel_scope.cancel()
    finally:
        bus.close()


async def _start_actors(actors: TaskGroup, session: Session, bus: Bus, tools: Tools) -> None:
    """Start the planner first: it declares the queues that the workers pull from."""
    run_id, config = session.started.run_id, session.config
    _, builds, evaluations = (FixedQueues(queue) for queue in queues_of(session.started))
    writes = FixedQueues(*write_queues(session.started, session.lineup))
    workers = config.workers
    entries: dict[str, Callable[..., Awaitable[object]]] = {
        "planner": partial(plan_run, bus, tools.model, run_id=run_id),
        "recorder": partial(record_run, bus, run_id=run_id, folder=session.folder.path),
        "coder": partial(serve_writes, bus, tools.model, queues=writes, slots=config.search.branches),
        "builder": partial(serve_builds, bus, tools.builder, queues=builds, slots=workers.builders),
        "evaluator": partial(serve_evaluations, bus, tools.evaluator, queues=evaluations, slots=slots_of(workers)),
    }
    for name, entry in entries.items():
        await actors.start(supervise, name, entry)


@asynccontextmanager
async def open_session(
    config: RunConfig, *, run_id: str | None = None, start: Start | None = None
) -> AsyncIterator[Opened]:
    """Check everything a run needs, create its folder, and provide what it needs until it is over.

    A failed start leaves no files behind.
    """
    await anyio.to_thread.run_sync(check_accepted, config.task)
    if config.nats is None:
        check_local(config)
        async with open_run(config, run_id=run_id) as (session, tools):
            yield session, partial(lead_session, session, tools)
        return
    from ksearch_async.fleet.nats_runs import open_distributed  # noqa: PLC0415 - a local run needs no client of NATS

    async with open_distributed(config, run_id=run_id, start=start or Start()) as opened:
        yield opened


def check_local(config: RunConfig) -> None:
    """Check the configuration of a run of one process.

    Raises:
        ConfigError: a setting needs a server.
    """
    if config.workers.here not in (None, "all"):
        raise refusal("--with is for runs over NATS: a run of one process has all its workers", "give --nats, too")
    if config.arch is not None:
        raise refusal("--arch is for runs over NATS: this run is for this machine", "give --nats, too")
    if config.metrics.port is not None:
        raise refusal("--metrics-port is for runs over NATS", "give --nats, too")


@asynccontextmanager
async def reopen_session(folder: RunFolder, config: RunConfig, *, start: Start | None = None) -> AsyncIterator[Opened]:
    """Check that a run can continue with this configuration, and provide what it needs until it is over."""
    check_messages_stay(load_config(folder.config), config, folder.run_id)
    if config.nats is None:
        session = await check_reopening(folder, config)
        async with (
            open_model(config.model, os.environ, seed=config.seed, folder=folder.path) as model,
            open_workers(session.started.task, config.candidate_language, folder.artifacts, config.workers) as workers,
        ):
            tools = Tools(model=model, builder=workers.builder, evaluator=workers.evaluator)
            yield session, partial(lead_session, session, tools)
        return
    from ksearch_async.fleet.nats_runs import reopen_distributed  # noqa: PLC0415

    async with reopen_distributed(folder, config, start=start or Start()) as opened:
        yield opened
