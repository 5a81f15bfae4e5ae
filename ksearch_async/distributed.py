"""Runs over NATS: this process opens a run, leads it and records it; who works on it comes and goes.

With `nats = "embedded"` the server is the run's own: its store lies in the run's folder, and it ends with the session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
import structlog
from anyio.abc import TaskGroup

from actors.bus.base import Bus
from actors.bus.nats import NatsBus
from actors.llm.base import Model
from actors.member import Member
from actors.planner.lease import LeaseTerms, lead
from actors.recorder import record_past, record_run
from actors.shipping import FetchingEvaluator, ShippingBuilder
from actors.supervision import supervise
from ksearch_async.access import AccessRole
from ksearch_async.admission import check_fitness
from ksearch_async.chronicle import Chronicle
from ksearch_async.config import RunConfig, load_config, save_config
from ksearch_async.connection import EMBEDDED, open_bus
from ksearch_async.heritage import read_heritage, read_solution
from ksearch_async.lineup import lineup_of
from ksearch_async.models import model_name, open_model, writer_dialect
from ksearch_async.nodes import presence_of
from ksearch_async.own_workers import OwnWorkers, check_can_serve, check_rights, roles_here
from ksearch_async.refusals import refusal
from ksearch_async.role_settings import planner_settings
from ksearch_async.runs import RunFolder, create_run, new_run_id
from ksearch_async.session import Opened, Session, Start, StopSwitch, anchored, check_same_run, follow, heed, is_spent
from ksearch_async.targets import check_platform, choose_target
from ksearch_async.watching import has_stream, live_leader, read_chronicle, tell_leader
from ksearch_async.workers import Workers, check_model, find_target, initial_program, open_workers, read_task
from messages.base import Role
from messages.codec import Record, encode
from messages.events import RunResumed, RunStarted
from messages.models import Lineup
from messages.tasks import Candidate, Target, TaskSpec

log = structlog.get_logger(__name__)

_PARTING_S = 10.0
"""How long a session that is over waits for what it owes others: its last card, its lease."""


class Post(msgspec.Struct, kw_only=True):
    """What a session over NATS works with."""

    bus: Bus
    model: Model
    own: OwnWorkers
    begun: bool = False
    """The run's first event is said."""
    records: bool = True
    """This process keeps the folder; if not, another one of this host does."""


@asynccontextmanager
async def open_distributed(config: RunConfig, *, run_id: str | None, start: Start) -> AsyncIterator[Opened]:
    """Check task, machine and server, make the run's folder, and have what the run needs until it is over.

    A run that did not begin leaves neither a folder nor anything on the server.

    Raises:
        ConfigError: task, model settings, toolchain, folder or server cannot be used, or nobody can judge.
        messages.errors.BusError: the server cannot be reached, or failed.
        messages.errors.EvaluatorError: the judge failed on the reference.
    """
    task, roles = read_task(config), roles_here(config)
    check_model(task, config.candidate_language, writer_dialect(config.model, os.environ))
    lineup = lineup_of(config, os.environ, writes_here="coder" in roles)
    own_target = await _own_target(task, config, roles)
    solution = await anyio.to_thread.run_sync(read_solution, config)
    folder = create_run(Path(config.runs_dir), run_id or new_run_id(config.task, datetime.now(UTC)))
    config = anchored(config)
    post: Post | None = None
    try:
        save_config(config, folder.config)
        async with AsyncExitStack() as stack:
            bus, address = await stack.enter_async_context(_meeting(config, folder, roles, start))
            await check_rights(bus, roles)
            await stack.enter_async_context(claimed(bus, folder.run_id))
            target = await choose_target(
                bus, config.candidate_language, own_target if "evaluator" in roles else None, config.arch, start
            )
            check_can_serve(roles, config.candidate_language, own_target, target)
            check_platform(target, config.workers.device)
            model = await stack.enter_async_context(
                open_model(config.model, os.environ, seed=config.seed, folder=folder.path)
            )
            workers = await stack.enter_async_context(_workers(config, task, folder))
            started = await _first_event(config, folder.run_id, task, target, workers, lineup, solution)
            session = Session(
                folder=folder,
                config=config,
                started=started,
                chronicle=Chronicle(),
                opening=started,
                address=address,
            )
            post = Post(bus=bus, model=model, own=_own(roles, workers, bus, task, folder))
            yield session, partial(lead_distributed, session, post)
    finally:
        if post is None or not post.begun:
            shutil.rmtree(folder.path, ignore_errors=True)


async def _first_event(
    config: RunConfig,
    run_id: str,
    task: TaskSpec,
    target: Target,
    workers: Workers,
    lineup: Lineup,
    solution: Candidate | None,
) -> RunStarted:
    """Return what opens a run, once the judge has looked at its task.

    Raises:
        ConfigError: the task cannot tell a kernel from an answer that computes nothing, or nothing can be inherited.
        messages.errors.EvaluatorError: the judge failed on the reference.
    """
    description = await workers.describe()
    check_fitness(description, allow_trivial=config.allow_trivial)
    return RunStarted(
        run_id=run_id,
        task=task,
        description=description,
        target=target,
        settings=config.search,
        seed=config.seed,
        initial=initial_program(task),
        tier=config.tier,
        weight=config.weight,
        solution=solution,
        heritage=await anyio.to_thread.run_sync(read_heritage, config, task, target),
        lineup=lineup,
    )


@asynccontextmanager
async def reopen_distributed(folder: RunFolder, config: RunConfig, *, start: Start) -> AsyncIterator[Opened]:
    """Find a run on its server again, and have what it needs until it is over.

    If somebody leads it, this process watches and records. If nobody does, it leads. If it is over, the folder is
    brought up to its end.

    Raises:
        ConfigError: it is not there, or would not be the same run.
        messages.errors.BusError: the server cannot be reached, or failed.
    """
    saved, roles = load_config(folder.config), roles_here(config)
    async with AsyncExitStack() as stack:
        bus, address = await stack.enter_async_context(_meeting(config, folder, roles, start))
        await check_rights(bus, roles)
        chronicle = await read_chronicle(bus, await _found(bus, folder.run_id))
        started = chronicle.started
        if started is None:
            raise refusal(f"run {folder.run_id!r} ended before it began", "start it again with ksearch run")
        check_model(started.task, config.candidate_language, writer_dialect(config.model, os.environ))
        check_same_run(saved, config, started)
        lineup = lineup_of(config, os.environ, writes_here="coder" in roles)
        check_can_serve(
            roles, config.candidate_language, await _own_target(started.task, config, roles), started.target
        )
        start.doing = "looking whether somebody leads the run"
        leader = await live_leader(bus, started.run_id)
        is_over = leader is None and is_spent(chronicle, config.search.budget)
        if is_over and not folder.in_use():
            start.doing = "recording what was done while nobody recorded"
            await record_past(bus, run_id=started.run_id, folder=folder.path, journal=folder.journal)
        session = Session(
            folder=folder,
            config=config,
            started=started,
            chronicle=chronicle,
            opening=None if leader or is_over else resumption(chronicle, config, lineup),
            is_over=is_over,
            address=address,
            leads=leader is None,
        )
        records = leader is None or not folder.in_use()
        if leader is not None:
            start.say(
                f"{leader} leads run {started.run_id}: this process watches{' and records' if records else ''} it"
            )
        model = await stack.enter_async_context(
            open_model(config.model, os.environ, seed=config.seed, folder=folder.path)
        )
        workers = await stack.enter_async_context(_workers(config, started.task, folder))
        post = Post(
            bus=bus, model=model, own=_own(roles, workers, bus, started.task, folder), begun=True, records=records
        )
        yield session, partial(lead_distributed, session, post)


async def lead_distributed(
    session: Session,
    post: Post,
    *,
    tell: Callable[[Record], None],
    stop: StopSwitch | None = None,
    terms: LeaseTerms | None = None,
) -> None:
    """Lead a run over NATS, and record it, until it ends; or only record it, if somebody else leads it.

    Another planner may take the run over when this process loses its lease: then it stands by, and records.

    Raises:
        messages.errors.KsearchError: what failed; in an exception group where several things did.
    """
    run_id, bus = session.started.run_id, post.bus
    if session.opening is not None:
        await _say_opening(session, bus)
    post.begun = True
    async with anyio.create_task_group() as actors:
        if stop is not None and session.leads:
            actors.start_soon(heed, stop, bus, run_id)
        folder = session.folder
        recorder = partial(record_run, bus, run_id=run_id, folder=folder.path, journal=folder.journal)
        if post.records:
            await actors.start(supervise, "recorder", recorder)
        led = anyio.Event()
        if session.leads:
            await _start_planner(actors, session, post, led, terms)
        else:
            led.set()
        await post.own.start(actors, bus, post.model, session)
        actors.start_soon(tell_leader, bus, run_id, log.warning)
        await follow(bus, run_id, session.chronicle.last_seq, tell)
        with anyio.move_on_after(_PARTING_S):
            await led.wait()
        actors.cancel_scope.cancel()


async def _start_planner(
    actors: TaskGroup, session: Session, post: Post, led: anyio.Event, terms: LeaseTerms | None
) -> None:
    words = model_name(planner_settings(session.config.model, os.environ), os.environ)
    presence = presence_of("planner", name=None, slots=1, model=words)
    member = Member(post.bus, presence)
    member.ready()
    await actors.start(member.keep)

    async def plan() -> None:
        await lead(post.bus, post.model, run_id=session.started.run_id, holder=member.name, terms=terms)
        led.set()

    actors.start_soon(plan)


async def _say_opening(session: Session, bus: Bus) -> None:
    """Publish the session's first event.

    Raises:
        ConfigError: somebody has opened a run of this name at the same moment.
    """
    run_id, opening = session.started.run_id, session.opening
    if opening is None:
        return
    if isinstance(opening, RunResumed):
        save_config(session.config, session.folder.config)  # not before: until then the run may be another's
        await bus.publish(run_id, encode(opening), msg_id=f"{run_id}.opened-{session.chronicle.last_seq}")
        return
    seq = await bus.publish(run_id, encode(opening), msg_id=f"{run_id}.opened-{uuid4().hex}")
    if seq != 1:
        raise _is_there(run_id)


@asynccontextmanager
async def _meeting(
    config: RunConfig, folder: RunFolder, roles: frozenset[Role], start: Start
) -> AsyncIterator[tuple[Bus, str]]:
    """Connect to the server that the configuration names, or start the run's own."""
    start.doing = "connecting to the server"
    if config.nats != EMBEDDED:
        role: AccessRole = "admin" if roles else "planner"
        async with open_bus(config.nats, os.environ, role=role) as bus, _metrics(config, bus, start):
            start.doing = "reading the run" if folder.journal.exists() else "checking the reference"
            yield bus, config.nats or ""
        return
    from actors.bus.nats.server import ServerSettings, serve_nats  # noqa: PLC0415 - only an embedded server needs it

    settings = ServerSettings(store=folder.nats, sync=config.sync)
    async with serve_nats(settings) as server, open_bus(server.url, {}, role="admin") as bus:
        await bus.prepare()
        folder.address.write_text(f"{server.url}\n")
        start.doing = "reading the run" if folder.journal.exists() else "checking the reference"
        try:
            async with _metrics(config, bus, start):
                yield bus, server.url
        finally:
            folder.address.unlink(missing_ok=True)


@asynccontextmanager
async def _metrics(config: RunConfig, bus: NatsBus, start: Start) -> AsyncIterator[None]:
    """Let Prometheus read, if the configuration says where.

    Raises:
        ConfigError: it cannot read there.
    """
    if config.metrics.port is None:
        yield
        return
    from ksearch_async.metrics_endpoint import metrics_served, read_fleet  # noqa: PLC0415 - loads an HTTP server

    def say(url: str) -> None:
        start.say(f"metrics at {url}")

    async with metrics_served(config.metrics.port, config.metrics.host, partial(read_fleet, bus), say=say):
        yield


@asynccontextmanager
async def claimed(bus: Bus, run_id: str) -> AsyncIterator[None]:
    """Have a run's place on the server, and give it up again if the run does not begin.

    Raises:
        ConfigError: there is such a run already.
    """
    if await bus.open_stream(run_id):
        raise _is_there(run_id)
    try:
        yield
    finally:
        with anyio.move_on_after(_PARTING_S, shield=True):
            if await bus.open_stream(run_id) == 0:
                await bus.delete_run(run_id)


def _is_there(run_id: str) -> Exception:
    return refusal(
        f"there is a run {run_id!r} on this server already",
        f"ksearch watch {run_id} shows it; a new run needs another name",
    )


async def _found(bus: Bus, run_id: str) -> str:
    if not await has_stream(bus, run_id):
        raise refusal(f"run {run_id!r} is not on this server", "ksearch nodes lists the runs that are")
    return run_id


def resumption(chronicle: Chronicle, config: RunConfig, lineup: Lineup) -> RunResumed | None:
    """Return what is to be said before a run goes on: nothing if its planner died, and all is as it was."""
    started = chronicle.started
    same = config.search.budget == chronicle.state.settings.budget and lineup == chronicle.state.lineup
    goes_on = chronicle.finished is None and not chronicle.was_asked_to_rest
    if started is None or (goes_on and same):
        return None
    return RunResumed(run_id=started.run_id, budget=config.search.budget, lineup=lineup)


async def _own_target(task: TaskSpec, config: RunConfig, roles: frozenset[Role]) -> Target | None:
    """Return what this machine builds for, if it is to build or to judge."""
    if not roles & {"builder", "evaluator"}:
        return None
    return await find_target(task, config.candidate_language, config.workers.device)


@asynccontextmanager
async def _workers(config: RunConfig, task: TaskSpec, folder: RunFolder) -> AsyncIterator[Workers]:
    async with open_workers(task, config.candidate_language, folder.artifacts, config.workers) as workers:
        yield workers


def _own(roles: frozenset[Role], workers: Workers, bus: Bus, task: TaskSpec, folder: RunFolder) -> OwnWorkers:
    """Return the workers of this process; what they build, and need to have built, travels."""
    if task.source == "program":
        return OwnWorkers(roles, workers.builder, workers.evaluator)
    store = folder.artifacts
    return OwnWorkers(
        roles, ShippingBuilder(bus, workers.builder, store), FetchingEvaluator(bus, workers.evaluator, store)
    )
