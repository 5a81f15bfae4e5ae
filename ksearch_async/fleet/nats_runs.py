"""Runs over NATS: opens and leads a run, chooses its target device, and starts workers for it.

Scores of different devices are never compared, so a run has one target from its first event on.

With `nats = "embedded"` the server belongs to the run: its store is in the run's folder, and it ends with the session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
import structlog
from anyio.abc import TaskGroup

from actors.builder import serve_builds
from actors.bus.base import Bus
from actors.bus.nats import NatsBus
from actors.bus.nats.connection import NotAllowedError
from actors.coder.actor import serve_writes
from actors.evaluator import serve_evaluations
from actors.llm.base import Model
from actors.planner.jobs import queues_of, write_queues
from actors.planner.leadership import LeaseTerms, lead
from actors.recorder import record_past, record_run
from actors.supervision import supervise
from actors.worker.artifacts import FetchingEvaluator, ShippingBuilder
from actors.worker.member import Member
from actors.worker.taking import FixedQueues
from evaluators.base import Builder, Evaluator
from evaluators.hardware.target import CPU, devices_of, platform_of
from ksearch_async.errors import refusal, suggestion
from ksearch_async.evaluation.tasks import check_fitness
from ksearch_async.fleet.access import EMBEDDED, AccessRole, open_bus
from ksearch_async.fleet.nodes import presence_of, show_once
from ksearch_async.fleet.status import has_stream, live_leader, read_chronicle, tell_leader
from ksearch_async.fleet.workers import (
    Workers,
    check_model,
    find_target,
    initial_program,
    open_workers,
    read_task,
    slots_of,
)
from ksearch_async.runs.folder import RunFolder, create_run, new_run_id
from ksearch_async.runs.resume import (
    Opened,
    Session,
    Start,
    StopSwitch,
    anchored,
    check_same_run,
    follow,
    heed,
    is_spent,
)
from ksearch_async.runs.run import Run
from ksearch_async.runs.warm_start import read_heritage, read_solution
from ksearch_async.settings.models import lineup_of, model_name, open_model, writer_dialect, writer_names
from ksearch_async.settings.run_config import RunConfig, load_config, planner_settings, save_config
from messages.base import Language, Role
from messages.codec import Record, encode
from messages.events import RunResumed, RunStarted
from messages.models import Lineup
from messages.presence import NODES, Presence, Served, decode_presence
from messages.tasks import Candidate, Target, TaskSpec

WAIT_S = 30.0
"""Seconds for which a start waits for an evaluator."""
PROVING_S = 600.0
"""The same while an evaluator still builds, runs and times its known kernel, which takes minutes on a busy host."""
_LOOK_S = 0.5


async def choose_target(
    bus: Bus, language: Language, own: Target | None, arch: str | None, start: Start, *, wait_s: float = WAIT_S
) -> Target:
    """Return the one target that the available evaluators serve in a language.

    Args:
        bus: the bus on which evaluators announce themselves.
        language: the candidates' language.
        own: target of this process's own evaluator, if it has one.
        arch: part of the wanted device's name or architecture; null: there must be only one target.
        start: receives progress while waiting.
        wait_s: seconds to wait for an evaluator.

    Raises:
        ConfigError: there is none, or there are several.
        messages.base.BusError: presences cannot be read.
    """
    said: set[str] = set()
    begun = anyio.current_time()
    while True:
        presences = await read_presences(bus, "evaluator")
        found = [
            target
            for target in _targets(presences, language, own)
            if arch is None or arch.lower() == target.arch.lower() or arch.lower() in target.device.lower()
        ]
        if found:
            start.doing = "checking the reference"
            return _only(found, arch)
        is_proving = any(
            presence.state == "proving"
            and (not presence.served or any(each.language == language for each in presence.served))
            for presence in presences
        )
        limit_s, still = (PROVING_S, "is ready yet") if is_proving else (wait_s, "is there")
        if anyio.current_time() - begun >= limit_s:
            raise _nobody(presences, language, arch)
        if still not in said:
            start.doing = "waiting for an evaluator"
            start.say(f"no evaluator for {_wanted(language, arch)} {still}; waiting up to {limit_s:g} s for one")
            said.add(still)
        await anyio.sleep(_LOOK_S)


def check_platform(target: Target, device: str) -> None:
    """Check that evaluators match the device on which the task is examined, since prompts describe that device."""
    here = platform_of(devices_of(device)[0])
    if target.platform == here:
        return
    other = "--device cuda:0, on a host with a GPU" if target.platform == "cuda" else f"--device {CPU}"
    raise refusal(
        f"the run is for {target.device} ({target.arch}), and this process would look at the task on {device}",
        f"lead it with {other}; or choose other evaluators with --arch",
    )


async def read_presences(bus: Bus, role: str) -> list[Presence]:
    """Return the presences of a role's processes.

    Raises:
        messages.base.BusError: they cannot be read.
    """
    entries = await bus.entries(f"{NODES}{role}.")
    found = (decode_presence(entry.value) for entry in entries.values())
    return [presence for presence in found if presence is not None]


def _targets(presences: Iterable[Presence], language: Language, own: Target | None) -> list[Target]:
    """Return the targets that can be served, each once; our own first."""
    served = [] if own is None else [own]
    for presence in presences:
        if presence.state == "ready":
            served.extend(each.target for each in presence.served if each.language == language)
    return list({(target.fingerprint, target.device): target for target in served}.values())


def _only(found: list[Target], arch: str | None) -> Target:
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{target.device!r} ({target.arch}, {target.toolchain})" for target in found)
    wanted = "" if arch is None else f" that {arch!r} fits"
    raise refusal(
        f"evaluators of several devices{wanted} are there: {listed}",
        "a run is for one: choose it with --arch, by its architecture or a part of its name",
    )


def _nobody(presences: list[Presence], language: Language, arch: str | None) -> Exception:
    others = sorted({f"{each.language} on {each.target.device}" for one in presences for each in one.served})
    proving = sum(presence.state == "proving" for presence in presences)
    there = f"; there are: {', '.join(others)}" if others else ""
    there += f"; still proving themselves: {proving}" if proving else ""
    return refusal(
        f"no evaluator for {_wanted(language, arch)} is there{there}",
        "start one on a host that has the device: ksearch evaluator --nats ADDRESS; or let this machine judge: "
        "--with builder,evaluator",
    )


def _wanted(language: Language, arch: str | None) -> str:
    return language if arch is None else f"{language} on {arch!r}"


WORKERS: tuple[Role, ...] = tuple(role for role in get_args(Role) if role != "planner")


def roles_here(config: RunConfig) -> frozenset[Role]:
    """Return the roles of the workers that this process starts."""
    said = config.workers.here or ("all" if config.nats in (None, EMBEDDED) else "none")
    words = {word.strip() for word in said.split(",") if word.strip()}
    if words <= {"all", "none"} and len(words) == 1:
        roles = frozenset(WORKERS) if "all" in words else frozenset[Role]()
    else:
        for word in sorted(words - set(WORKERS)):
            raise refusal(
                f"--with {said}: {word!r} is no worker",
                suggestion(word, WORKERS, f"workers are {', '.join(WORKERS)}; or all, none"),
            )
        roles = frozenset(role for role in WORKERS if role in words)
    if config.program.evaluator is not None and not {"builder", "evaluator"} <= roles:
        raise refusal("programs are scored by the process that leads the run", "--with builder,evaluator")
    return roles


def check_can_serve(roles: frozenset[Role], language: Language, own: Target | None, target: Target) -> None:
    """Check that builders and evaluators of this process serve the run's target."""
    if own is None:
        return
    if "evaluator" in roles and (own.fingerprint, own.device) != (target.fingerprint, target.device):
        raise refusal(
            f"this machine is {own.device} ({own.toolchain}), and the run is for {target.device} ({target.toolchain})",
            "leave the evaluator out of --with, or choose this machine with --arch",
        )
    if "builder" in roles and (own.arch, own.toolchain) != (target.arch, target.toolchain):
        raise refusal(
            f"this machine builds {language} for {own.arch} with {own.toolchain}, and the run is for {target.arch} "
            f"with {target.toolchain}",
            "leave the builder out of --with",
        )


async def check_rights(bus: Bus, roles: frozenset[Role]) -> None:
    """Check that a connection may serve all these workers besides leading a run.

    Raises:
        ConfigError: the server does not allow it.
        messages.base.BusError: the server failed.
    """
    for role in sorted(roles):
        try:
            await show_once(bus, role)
        except NotAllowedError as error:
            raise refusal(
                f"who signs in here may lead a run, and may not be a {role}: {error}",
                f"leave the {role} out of --with and start it by itself: ksearch {role}; or sign in as admin",
            ) from error


class OwnWorkers:
    """Starts the workers of this process."""

    def __init__(self, roles: frozenset[Role], builder: Builder, evaluator: Evaluator) -> None:
        self._roles = roles
        self._builder = builder
        self._evaluator = evaluator

    async def start(self, actors: TaskGroup, bus: Bus, model: Model, session: Session) -> None:
        """Start them, each as a member of its own, for this run's queues. Running the reference was their proof."""
        config, target = session.config, session.started.target
        served = (Served(language=session.started.description.language, target=target),)
        _, builds, evaluations = (FixedQueues(queue) for queue in queues_of(session.started))
        writes = FixedQueues(*write_queues(session.started, session.lineup))

        async def begin(presence: Presence, serve: Callable[..., Awaitable[None]], queues: FixedQueues) -> None:
            member = await _joined(actors, bus, presence)
            entry = partial(serve, queues=queues, slots=presence.slots, member=member)
            await actors.start(supervise, presence.role, entry)

        if "coder" in self._roles:
            words = writer_names(config.model, os.environ)
            presence = presence_of("coder", name=None, slots=config.search.branches, tier=config.tier, model=words)
            await begin(presence, partial(serve_writes, bus, model), writes)
        if "builder" in self._roles:
            presence = presence_of("builder", name=None, slots=config.workers.builders)
            presence = msgspec.structs.replace(presence, served=served)
            await begin(presence, partial(serve_builds, bus, self._builder), builds)
        if "evaluator" in self._roles:
            presence = presence_of("evaluator", name=None, slots=slots_of(config.workers), device=target.device)
            presence = msgspec.structs.replace(presence, served=served)
            await begin(presence, partial(serve_evaluations, bus, self._evaluator), evaluations)


async def _joined(actors: TaskGroup, bus: Bus, presence: Presence) -> Member:
    member = Member(bus, presence)
    member.ready()
    await actors.start(member.keep)
    return member


log = structlog.get_logger(__name__)

_PARTING_S = 10.0
"""Seconds that a finished session waits while it updates its card and gives back its lease."""


class Post(msgspec.Struct, kw_only=True):
    """Parts of a session over NATS."""

    bus: Bus
    model: Model
    own: OwnWorkers
    begun: bool = False
    """True once the run's first event is published."""
    records: bool = True
    """True if this process writes the folder; if not, another one of this host does."""


@asynccontextmanager
async def open_distributed(config: RunConfig, *, run_id: str | None, start: Start) -> AsyncIterator[Opened]:
    """Check task, machine and server, create the run's folder, and provide what the run needs until it is over.

    A run that did not begin leaves neither a folder nor anything on the server.

    Raises:
        ConfigError: task, model settings, toolchain, folder or server cannot be used, or there is no evaluator.
        messages.base.BusError: the server cannot be reached, or failed.
        messages.base.EvaluatorError: the judge failed on the reference.
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
            workers = await stack.enter_async_context(
                open_workers(task, config.candidate_language, folder.artifacts, config.workers)
            )
            started = await _first_event(config, folder.run_id, task, target, workers, lineup, solution)
            session = Session(
                folder=folder,
                config=config,
                started=started,
                chronicle=Run(),
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
    """Find a run on its server again, and provide what it needs until it is over.

    If another process leads it, this process watches and records; otherwise it leads. If the run is over, its folder is
    completed.

    Raises:
        ConfigError: it does not exist, or would not be the same run.
        messages.base.BusError: the server cannot be reached, or failed.
    """
    saved, roles = load_config(folder.config), roles_here(config)
    async with AsyncExitStack() as stack:
        bus, address = await stack.enter_async_context(_meeting(config, folder, roles, start))
        await check_rights(bus, roles)
        if not await has_stream(bus, folder.run_id):
            raise refusal(f"run {folder.run_id!r} is not on this server", "ksearch nodes lists the runs that are")
        chronicle = await read_chronicle(bus, folder.run_id)
        started = chronicle.started
        if started is None:
            raise refusal(f"run {folder.run_id!r} ended before it began", "start it again with ksearch run")
        check_model(started.task, config.candidate_language, writer_dialect(config.model, os.environ))
        check_same_run(saved, config, started)
        lineup = lineup_of(config, os.environ, writes_here="coder" in roles)
        check_can_serve(
            roles, config.candidate_language, await _own_target(started.task, config, roles), started.target
        )
        start.doing = "looking for a planner that leads the run"
        leader = await live_leader(bus, started.run_id)
        is_over = leader is None and is_spent(chronicle, config.search.budget)
        if is_over and not folder.in_use():
            start.doing = "recording the events since the last session"
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
        workers = await stack.enter_async_context(
            open_workers(started.task, config.candidate_language, folder.artifacts, config.workers)
        )
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
    """Lead a run over NATS, and record it, until it ends; if another process leads it, only record it.

    If this process loses its lease and another planner takes over, it stands by and records.

    Raises:
        messages.base.KsearchError: the failure; an exception group for several.
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
    member = await _joined(actors, post.bus, presence)

    async def plan() -> None:
        await lead(post.bus, post.model, run_id=session.started.run_id, holder=member.name, terms=terms)
        led.set()

    actors.start_soon(plan)


async def _say_opening(session: Session, bus: Bus) -> None:
    """Publish the session's first event."""
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
    start.doing = "connecting to the server"
    if config.nats != EMBEDDED:
        role: AccessRole = "admin" if roles else "planner"
        async with open_bus(config.nats, os.environ, role=role) as bus, _metrics(config, bus, start):
            start.doing = "reading the run" if folder.journal.exists() else "checking the reference"
            yield bus, config.nats or ""
        return
    from actors.bus.nats.local_server import ServerSettings, serve_nats  # noqa: PLC0415

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
    """Serve metrics to Prometheus, if configured."""
    if config.metrics.port is None:
        yield
        return
    from ksearch_async.follow.metrics import metrics_served, read_fleet  # noqa: PLC0415

    def say(url: str) -> None:
        start.say(f"metrics at {url}")

    async with metrics_served(config.metrics.port, config.metrics.host, partial(read_fleet, bus), say=say):
        yield


@asynccontextmanager
async def claimed(bus: Bus, run_id: str) -> AsyncIterator[None]:
    """Claim a run's place on the server, and release it if the run does not begin."""
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


def resumption(chronicle: Run, config: RunConfig, lineup: Lineup) -> RunResumed | None:
    """Return the event with which a run continues; None if its planner died and nothing has changed."""
    started = chronicle.started
    same = config.search.budget == chronicle.state.settings.budget and lineup == chronicle.state.lineup
    goes_on = chronicle.finished is None and not chronicle.was_asked_to_rest
    if started is None or (goes_on and same):
        return None
    return RunResumed(run_id=started.run_id, budget=config.search.budget, lineup=lineup)


async def _own_target(task: TaskSpec, config: RunConfig, roles: frozenset[Role]) -> Target | None:
    if not roles & {"builder", "evaluator"}:
        return None
    return await find_target(task, config.candidate_language, config.workers.device)


def _own(roles: frozenset[Role], workers: Workers, bus: Bus, task: TaskSpec, folder: RunFolder) -> OwnWorkers:
    """Return the workers of this process; artifacts are sent over the bus."""
    if task.source == "program":
        return OwnWorkers(roles, workers.builder, workers.evaluator)
    store = folder.artifacts
    return OwnWorkers(
        roles, ShippingBuilder(bus, workers.builder, store), FetchingEvaluator(bus, workers.evaluator, store)
    )
