"""The workers that the process of a distributed run brings along: for this run alone, and gone with it."""

from __future__ import annotations

import os
from functools import partial
from typing import get_args

import msgspec
from anyio.abc import TaskGroup

from actors.board import FixedQueues
from actors.builder.actor import serve_builds
from actors.bus.base import Bus
from actors.bus.nats.link import NotAllowedError
from actors.coder.actor import serve_writes
from actors.evaluator.actor import serve_evaluations
from actors.llm.base import Model
from actors.member import Member
from actors.planner.jobs import queues_of, write_queues
from actors.supervision import supervise
from evaluators.base import Builder, Evaluator
from ksearch_async.config import RunConfig
from ksearch_async.connection import EMBEDDED
from ksearch_async.models import writer_names
from ksearch_async.nodes import presence_of, show_once
from ksearch_async.refusals import refusal, suggestion
from ksearch_async.session import Session
from ksearch_async.workers import slots_of
from messages.base import Language, Role
from messages.presence import Presence, Served
from messages.tasks import Target

WORKERS: tuple[Role, ...] = tuple(role for role in get_args(Role) if role != "planner")


def roles_here(config: RunConfig) -> frozenset[Role]:
    """Return which workers this process is to have.

    Raises:
        ConfigError: there is no such worker; or programs, which only this process can score, have none here.
    """
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
    """Accept builders and evaluators of this process that are for the run's target.

    Raises:
        ConfigError: they are not.
    """
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
    """Accept a connection whose owner may be all these workers besides leading a run.

    Raises:
        ConfigError: the server does not let them.
        messages.errors.BusError: the server failed.
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
        """Start them, each a member of its own, for the queues of this run."""
        config, device = session.config, session.started.target.device
        _, builds, evaluations = (FixedQueues(queue) for queue in queues_of(session.started))
        writes = FixedQueues(*write_queues(session.started, session.lineup))
        branches, limits = config.search.branches, config.workers
        if "coder" in self._roles:
            words = writer_names(config.model, os.environ)
            presence = presence_of("coder", name=None, slots=branches, tier=config.tier, model=words)
            member = await _joined(actors, bus, presence)
            entry = partial(serve_writes, bus, model, queues=writes, slots=branches, member=member)
            await actors.start(supervise, "coder", entry)
        if "builder" in self._roles:
            presence = _serving(presence_of("builder", name=None, slots=limits.builders), session)
            member = await _joined(actors, bus, presence)
            entry = partial(serve_builds, bus, self._builder, queues=builds, slots=limits.builders, member=member)
            await actors.start(supervise, "builder", entry)
        if "evaluator" in self._roles:
            presence = presence_of("evaluator", name=None, slots=slots_of(limits), device=device)
            member = await _joined(actors, bus, _serving(presence, session))
            entry = partial(
                serve_evaluations, bus, self._evaluator, queues=evaluations, slots=slots_of(limits), member=member
            )
            await actors.start(supervise, "evaluator", entry)


def _serving(presence: Presence, session: Session) -> Presence:
    served = Served(language=session.started.description.language, target=session.started.target)
    return msgspec.structs.replace(presence, served=(served,))


async def _joined(actors: TaskGroup, bus: Bus, presence: Presence) -> Member:
    """Have a member show that it is there, ready: its proof was the reference."""
    member = Member(bus, presence)
    member.ready()
    await actors.start(member.keep)
    return member
