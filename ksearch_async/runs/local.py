"""Local runs: all actors in one process over a bus that is the run's journal. Also opens and reopens any run."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from actors.builder import serve_builds
from actors.bus.base import Bus
from actors.bus.journal import JournalStore
from actors.bus.memory import MemoryBus
from actors.coder.actor import serve_writes
from actors.evaluator import serve_evaluations
from actors.llm.base import Model
from actors.planner.actor import plan_run
from actors.planner.jobs import queues_of, write_queues
from actors.recorder import record_run
from actors.supervision import supervise
from actors.worker.taking import FixedQueues
from evaluators.base import Builder, Evaluator
from ksearch_async.errors import refusal
from ksearch_async.evaluation.drafts import check_accepted
from ksearch_async.evaluation.tasks import check_fitness
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
from ksearch_async.runs.session import (
    Opened,
    Session,
    Start,
    StopSwitch,
    anchored,
    check_messages_stay,
    check_same_run,
    follow,
    heed,
    is_spent,
)
from ksearch_async.runs.start import read_heritage, read_solution
from ksearch_async.settings.models import lineup_of, open_model, writer_dialect
from ksearch_async.settings.table import RunConfig, load_config, save_config
from messages.codec import Record, encode
from messages.events import RunResumed, RunStarted


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
        messages.base.EvaluatorError: the judge failed on the reference.
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


@asynccontextmanager
async def reopen_run(folder: RunFolder, config: RunConfig) -> AsyncIterator[tuple[Session, Tools]]:
    """Check that a run can go on with this configuration, on this machine, and have what it needs until it is over.

    Raises:
        ConfigError: it would not be the same run.
        messages.base.BusError: the journal cannot be read.
    """
    session = await check_reopening(folder, config)
    task = session.started.task
    async with (
        open_model(config.model, os.environ, seed=config.seed, folder=folder.path) as model,
        open_workers(task, config.candidate_language, folder.artifacts, config.workers) as workers,
    ):
        yield session, Tools(model=model, builder=workers.builder, evaluator=workers.evaluator)


async def check_reopening(folder: RunFolder, config: RunConfig) -> Session:
    """Return the session with which a run goes on, or without an opening event if it is over.

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
    """Lead a run until it ends, is asked to stop, or something fails. When cancelled it stops at once.

    Args:
        session: from `open_run` or `reopen_run`, with an opening event.
        tools: who answers, builds and judges.
        tell: called with every record that follows those of the session's chronicle.
        stop: asks the run to stop.

    Raises:
        messages.base.KsearchError: what failed; in an exception group where several things did.
    """
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
    """Check all that a run needs, make its folder, and have what it needs until it is over.

    What did not begin leaves nothing behind.

    Args:
        config: what to search on, and how.
        run_id: what the run and its folder are called; null: by task and time.
        start: told what the start is busy with.

    Raises:
        ConfigError: task, model settings, toolchain, folder or server cannot be used.
        messages.base.BusError: the server cannot be reached.
        messages.base.EvaluatorError: the judge failed on the reference.
    """
    await anyio.to_thread.run_sync(check_accepted, config.task)
    if config.nats is None:
        check_local(config)
        async with open_run(config, run_id=run_id) as (session, tools):
            yield session, partial(lead_session, session, tools)
        return
    from ksearch_async.fleet.runs import open_distributed  # noqa: PLC0415 - a local run needs no client of NATS

    async with open_distributed(config, run_id=run_id, start=start or Start()) as opened:
        yield opened


def check_local(config: RunConfig) -> None:
    """Accept a configuration of a run of one process.

    Raises:
        ConfigError: it asks for what needs a server.
    """
    if config.workers.here not in (None, "all"):
        raise refusal("--with is for runs over NATS: a run of one process has all its workers", "give --nats, too")
    if config.arch is not None:
        raise refusal("--arch is for runs over NATS: this run is for this machine", "give --nats, too")
    if config.metrics.port is not None:
        raise refusal("--metrics-port is for runs over NATS", "give --nats, too")


@asynccontextmanager
async def reopen_session(folder: RunFolder, config: RunConfig, *, start: Start | None = None) -> AsyncIterator[Opened]:
    """Check that a run can go on with this configuration, and have what it needs until it is over.

    Raises:
        ConfigError: it would not be the same run, or its server has it no longer.
        messages.base.BusError: the journal cannot be read, or the server cannot be reached.
    """
    check_messages_stay(load_config(folder.config), config, folder.run_id)
    if config.nats is None:
        async with reopen_run(folder, config) as (session, tools):
            yield session, partial(lead_session, session, tools)
        return
    from ksearch_async.fleet.runs import reopen_distributed  # noqa: PLC0415

    async with reopen_distributed(folder, config, start=start or Start()) as opened:
        yield opened
