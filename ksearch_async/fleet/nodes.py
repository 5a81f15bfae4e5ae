"""A node: a process with one role (coder, builder or evaluator) that serves all runs of a server.

1. It shows that it is there (`proving`) and reads which runs there are.
2. It proves itself: see `evaluators/judge/proof.py`. Who can do nothing is `unfit`, and ends.
3. It is `ready`, and takes jobs of those runs that it can serve, each run its share; runs come and go meanwhile.
4. Asked to leave, it takes no more, finishes what it has within its grace, hands back the rest, and says `left`.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from actors.builder import serve_builds
from actors.bus.base import Bus
from actors.bus.nats.connection import NotAllowedError
from actors.clock import utc_now
from actors.coder.actor import serve_writes
from actors.evaluator import serve_evaluations
from actors.llm.base import Answer, Model, Request
from actors.worker.member import Member
from actors.worker.taking import Board, Queues, SharedQueues
from evaluators.base import Builder, BuildReport, EvaluationReport, Evaluator
from ksearch_async import __version__
from ksearch_async.errors import refusal
from ksearch_async.fleet.workers import Device
from messages.base import ConfigError, EvaluatorError, KsearchError, Language, Role
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.presence import Presence, RunCard, Served, encode_entry, node_key, takes_jobs_of
from messages.tasks import Target
from messages.verdicts import Measured, Scored, Verdict, fate_of, reason_of

GRACE_S = 120.0
AGAIN_S = 1.0
"""Seconds. A second signal that comes sooner after the first is the same request: Slurm sends it to a script and its
children."""
_IDLE_LOOK_S = 0.5
_NAME_LENGTH = 64

log = structlog.get_logger(__name__)


Ending: TypeAlias = Literal["left", "unfit", "cut short"]
"""`left`: it finished what it had. `cut short`: it handed jobs back."""


class NodeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long a node stays."""

    grace_s: float = GRACE_S
    """Seconds to finish jobs in hand once it is asked to leave."""
    idle_s: float | None = None
    """Seconds without a job after which it leaves; None: never."""
    again_s: float = AGAIN_S


class Work(Protocol):
    """Roles of a node."""

    async def prove(self, member: Member) -> tuple[Served, ...]:
        """Do known jobs, and return what the node serves. Coders serve nothing by name.

        Raises:
            messages.base.KsearchError: nothing can be served; says why.
        """

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Do jobs until the member leaves and its jobs in hand are done, or until cancelled."""


def presence_of(
    role: Role, *, name: str | None, slots: int, device: str = "", tier: str = "", model: str = ""
) -> Presence:
    """Return the presence of a new process on this host."""
    now = utc_now()
    return Presence(
        name=unique_name(role, name),
        role=role,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        state="proving",
        device=device,
        slots=slots,
        tier=tier,
        model=model,
        started_at=now,
        seen_at=now,
    )


def unique_name(role: Role, name: str | None) -> str:
    """Return a name that no other process has: the given one, or role, host and process id; with a suffix."""
    plain = name or f"{role}-{socket.gethostname().partition('.')[0]}-{os.getpid()}"
    plain = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or role
    suffix = secrets.token_hex(2)
    return f"{plain[: _NAME_LENGTH - len(suffix) - 1]}-{suffix}"


async def show_once(bus: Bus, role: Role) -> None:
    """Register briefly as a process of this role, then unregister: being allowed to shows that the role may be taken.

    Raises:
        actors.bus.nats.connection.NotAllowedError: the server does not allow it.
        messages.base.BusError: the server failed.
    """
    gone = msgspec.structs.replace(presence_of(role, name=None, slots=1), state="left")
    key = node_key(role, gone.name)
    await bus.delete(key, revision=await bus.put(key, encode_entry(gone), revision=0, ttl_s=1))


async def check_may_be(bus: Bus, role: Role) -> None:
    """Check that a connection may serve this process.

    Raises:
        ConfigError: the server does not allow it.
        messages.base.BusError: the server failed.
    """
    try:
        await show_once(bus, role)
    except NotAllowedError as error:
        raise refusal(
            f"who signs in here may not be {'an' if role == 'evaluator' else 'a'} {role}: {error}",
            f"give the credentials of the role: the file credentials/{role} that `ksearch nats init` wrote",
        ) from error


async def run_node(bus: Bus, member: Member, work: Work, terms: NodeTerms) -> Ending:
    """Serve as a node until asked to leave, or until it is found unfit.

    Ctrl-C and SIGTERM ask it to leave. At the second signal, and when the grace is over, jobs in hand are handed back.
    """
    board = Board(bus)
    presence = member.presence
    ending: Ending = "cut short"
    with structlog.contextvars.bound_contextvars(worker=member.name):
        async with anyio.create_task_group() as tasks:
            now = anyio.CancelScope()
            await tasks.start(_heed_signals, member, now, terms)
            await tasks.start(member.keep)
            await tasks.start(board.follow)
            log.info("joined", role=presence.role, host=presence.host, pid=presence.pid)
            with now:
                ending = await _prove_and_serve(bus, member, board, work, terms)
            tasks.cancel_scope.cancel()
        tally = member.presence.tally
        log.info("left", done=tally.done, failed=tally.failed, redelivered=tally.redelivered)
    return ending


async def _prove_and_serve(bus: Bus, member: Member, board: Board, work: Work, terms: NodeTerms) -> Ending:
    role = member.presence.role
    try:
        served = await _proved(work, member)
    except KsearchError as error:
        member.unfit(str(error))
        return "unfit"
    if served is None:
        return "left"
    member.serves(served)
    member.ready()
    log.info("ready", slots=member.presence.slots, serves=_words(member.presence))

    def serves(card: RunCard) -> bool:
        return takes_jobs_of(member.presence, card)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell_runs, board, member)
        if terms.idle_s is not None:
            tasks.start_soon(_leave_when_idle, member, terms.idle_s)
        await work.serve(bus, SharedQueues(board, role=role, serves=serves, tier=member.presence.tier), member)
        tasks.cancel_scope.cancel()
    return "left"


async def _heed_signals(
    member: Member,
    now: anyio.CancelScope,
    terms: NodeTerms,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Leave at the first signal; stop now at the second, or when the grace is over."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async with anyio.create_task_group() as tasks:
            asked_at: float | None = None
            async for received in signals:
                if asked_at is None:
                    asked_at = anyio.current_time()
                    name = signal.Signals(received).name
                    log.info("leaving", why=name, jobs=len(member.presence.busy), grace_s=terms.grace_s)
                    member.leave()
                    tasks.start_soon(_end_grace, now, terms.grace_s)
                elif anyio.current_time() - asked_at >= terms.again_s:
                    log.info("stopping now: what is in hand is handed back")
                    now.cancel()
                    tasks.cancel_scope.cancel()
                    return


async def _end_grace(now: anyio.CancelScope, grace_s: float) -> None:
    await anyio.sleep(grace_s)
    log.warning("the grace is over: what is in hand is handed back", grace_s=grace_s)
    now.cancel()


async def _proved(work: Work, member: Member) -> tuple[Served, ...] | None:
    """Return what the node serves; None: it was asked to leave meanwhile."""
    served: tuple[Served, ...] | None = None
    failure: KsearchError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_leaving, member, tasks.cancel_scope)
        try:
            served = await work.prove(member)
        except KsearchError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return served


async def _until_leaving(member: Member, proof: anyio.CancelScope) -> None:
    while not member.is_leaving:
        await member.changed()
    proof.cancel()


async def _leave_when_idle(member: Member, idle_s: float) -> None:
    quiet_since = anyio.current_time()
    done = -1
    while not member.is_leaving:
        presence = member.presence
        if presence.busy or presence.tally.done + presence.tally.failed != done:
            quiet_since, done = anyio.current_time(), presence.tally.done + presence.tally.failed
        elif anyio.current_time() - quiet_since >= idle_s:
            log.info("leaving", why=f"no job for {idle_s:g} s")
            member.leave()
        await anyio.sleep(min(_IDLE_LOOK_S, idle_s))


async def _tell_runs(board: Board, member: Member) -> None:
    known: Mapping[str, RunCard] = {}
    while True:
        served = {run_id: card for run_id, card in board.cards.items() if takes_jobs_of(member.presence, card)}
        for run_id in served.keys() - known.keys():
            card = served[run_id]
            log.info("run joined", run=run_id, task=card.task_name, language=card.language, weight=card.weight)
        for run_id in known.keys() - served.keys():
            log.info("run over", run=run_id)
        known = served
        await board.changed()


def _words(presence: Presence) -> str:
    if presence.role == "coder":
        return f"tier {presence.tier}"
    return ", ".join(f"{each.language} on {each.target.device}" for each in presence.served)


_REASON_LENGTH = 120


class Coding:
    """A coder: writes candidates with one model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def prove(self, member: Member) -> tuple[Served, ...]:  # noqa: ARG002 - the first job shows it
        """Prove nothing: a model call costs money, and a coder with a failing model stops taking jobs by itself."""
        await anyio.lowlevel.checkpoint()
        return ()

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """See `ksearch_async.fleet.nodes.Work.serve`."""
        slots = member.presence.slots
        await serve_writes(bus, self, queues=queues, slots=slots, member=member, task_status=task_status)

    async def complete(self, request: Request) -> Answer:
        """Call the model, and log the call."""
        answer = await self._model.complete(request)
        tokens = answer.usage.completion_tokens
        log.info("answered", seconds=round(answer.latency_s, 2), model=answer.model, tokens=tokens)
        return answer

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        await self._model.aclose()


class _OnDevice:
    """Serves the languages in which a device passes its proof."""

    def __init__(self, device: Device, artifacts: Path, languages: tuple[Language, ...]) -> None:
        self._device = device
        self._artifacts = artifacts
        self._languages = languages

    async def _proved(
        self, member: Member, prove: Callable[[Language, Target, Path], Awaitable[None]]
    ) -> tuple[Served, ...]:
        served, failures = [], []
        for language in self._languages or self._device.languages:
            begun = anyio.current_time()
            member.proving(f"a known {language} kernel")
            try:
                target = await self._device.probe(language)
                await prove(language, target, self._artifacts)
            except (EvaluatorError, ConfigError) as error:
                log.warning("does not serve a language", language=language, reason=str(error))
                failures.append(f"{language}: {error}")
            else:
                seconds = round(anyio.current_time() - begun, 1)
                log.info("proved", language=language, arch=target.arch, device=target.device, seconds=seconds)
                served.append(Served(language=language, target=target))
        if not served:
            raise EvaluatorError("; ".join(failures), permanent=True)
        return tuple(served)


class Building(_OnDevice):
    """A builder: compiles for the languages that its host supports."""

    _builder: Builder

    async def prove(self, member: Member) -> tuple[Served, ...]:
        """Build known kernels."""
        return await self._proved(member, self._device.prove_builder)

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """See `ksearch_async.fleet.nodes.Work.serve`."""
        self._builder = self._device.make_builder(bus, self._artifacts)
        slots = member.presence.slots
        await serve_builds(bus, self, queues=queues, slots=slots, member=member, task_status=task_status)

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Build a candidate, and log it."""
        report = await self._builder.build(job)
        outcome = report.outcome
        what = "built" if isinstance(outcome, Built) else shortened_reason(f"did not build: {outcome.reason}")
        log.info(what, seconds=round(report.wall_s, 2), cached=report.cached)
        return report


class Evaluating(_OnDevice):
    """An evaluator: judges on one device."""

    _evaluator: Evaluator

    async def prove(self, member: Member) -> tuple[Served, ...]:
        """Build, check and time known kernels, and find a wrong one wrong."""
        return await self._proved(member, self._device.prove_evaluator)

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """See `ksearch_async.fleet.nodes.Work.serve`."""
        slots = member.presence.slots
        self._evaluator = self._device.make_evaluator(bus, self._artifacts, slots=slots)
        try:
            await serve_evaluations(bus, self, queues=queues, slots=slots, member=member, task_status=task_status)
        finally:
            await self.aclose()

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Evaluate a candidate, and log it."""
        report = await self._evaluator.evaluate(job)
        log.info("evaluated", seconds=round(report.wall_s, 2), verdict=verdict_words(report.verdict))
        return report

    async def aclose(self) -> None:
        """See `Evaluator.aclose`."""
        await self._evaluator.aclose()


def verdict_words(verdict: Verdict) -> str:
    """Return a verdict in a few words: `measured 1.80x`, `wrong: tail columns`."""
    if isinstance(verdict, Measured):
        return f"measured {verdict.speedup_vs_reference:.2f}x" if verdict.speedup_vs_reference else "correct, not timed"
    if isinstance(verdict, Scored):
        return f"scored {verdict.score:g}"
    return shortened_reason(f"{fate_of(verdict)}: {reason_of(verdict)}")


def shortened_reason(text: str) -> str:
    """Return one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 1]}…"
