"""The loop of every worker: take a job, do it with heartbeats, publish its result, acknowledge it.

The order matters: the job of a dead worker is redelivered, and the next worker first looks for a published result.

In a single-process run (no member), a permanent error, such as a wrong key, is published as a permanent `JobLost` and
ends the run; a failing bus ends the process. A member of a distributed run leaves such jobs to others and avoids their
queue (`actors.worker.fairness`); if the bus is unreachable, it keeps the result and waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, Required, TypeAlias, TypedDict, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from actors.bus.base import MAX_EVENT_BYTES, Bus, CancelledRunError, Delivery, UnknownQueueError
from actors.supervision import see_through
from actors.tracing import Attribute, note, span, trace_headers
from actors.worker.member import Member
from actors.worker.taking import Queues, Taking
from messages.base import BoundaryError, BusError, EvaluatorError, ModelError, Role
from messages.codec import CodecError, NewerVersionError, decode_command, encode
from messages.commands import BuildCandidate, Command, EvaluateCandidate, WriteCandidate
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, Event, JobKind, JobLost
from messages.subjects import run_of

log = structlog.get_logger(__name__)


class Heartbeats:
    """Prevents the redelivery of jobs that are being done."""

    def __init__(self, tasks: TaskGroup, interval_s: float, beat: Callable[[Delivery], Awaitable[None]]) -> None:
        """Initialize; `beat` refreshes one job on the bus and raises only `CancelledRunError`, if it was cancelled."""
        self._tasks = tasks
        self._interval_s = interval_s
        self._beat = beat

    @contextmanager
    def keeping(self, delivery: Delivery, attempt: anyio.CancelScope) -> Iterator[None]:
        """Refresh a job while the block is open; cancel `attempt` if the job was cancelled."""
        beats = anyio.CancelScope()
        self._tasks.start_soon(self._keep, delivery, attempt, beats)
        try:
            yield
        finally:
            beats.cancel()

    async def _keep(self, delivery: Delivery, attempt: anyio.CancelScope, beats: anyio.CancelScope) -> None:
        with beats:
            while True:
                await anyio.sleep(self._interval_s)
                try:
                    await self._beat(delivery)
                except CancelledRunError as error:
                    log.info("job dropped", job=delivery.msg_id, error=str(error))
                    attempt.cancel()
                    return


MAX_ATTEMPTS = 4
"""Failed attempts after which a job is lost. If workers die silently, the queue's `max_deliver` decides."""
MAX_DELAY_S = 30.0
"""Longest pause after a failed attempt."""
PARTING_S = 2.0
"""Time limit for a stopped worker to hand back its job."""
DEADLINE_S = 3600.0
"""Time limit for a job. Handlers have tighter limits of their own; reaching this one means that they failed."""
RESULT_WAIT_S = 600.0
"""Time to retry publishing a result to an unreachable bus before the job is handed back."""
_FIRST_PAUSE_S = 0.5
_PASSED_ON_S = 0.5
"""Redelivery delay of a job passed to others, so that our own slots avoid it."""
_KINDS: dict[type, JobKind] = {
    WriteCandidate: "write",
    BuildCandidate: "build",
    EvaluateCandidate: "evaluate",
}

C = TypeVar("C", bound=Command)


class OutdatedError(BoundaryError):
    """This process is of an older release than the job."""


Outcome: TypeAlias = Event | BoundaryError | None
"""The published event, the reason for handing the job back, or None if the job was cancelled."""


class Service(TypedDict, total=False):
    """Options of `serve` that coders, builders and evaluators share."""

    queues: Required[Queues]
    slots: int
    """Maximum concurrent jobs; 1 if not given."""
    member: Member | None
    """Presence of the process in a distributed run; None in a single-process run."""
    task_status: TaskStatus[None]
    """Started when the first pull is about to begin."""


async def serve(
    bus: Bus,
    queues: Queues,
    handle: Callable[[C], Awaitable[Event]],
    *,
    expects: type[C],
    role: Role,
    slots: int = 1,
    heartbeat_s: float = 10.0,
    deadline_s: Callable[[C], float] = lambda _: DEADLINE_S,
    member: Member | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Do the jobs of some queues until cancelled, or until the member leaves and the jobs in hand are done.

    A `BoundaryError` of the handler hands the job back with a delay. At the last of `MAX_ATTEMPTS`, or if it is
    permanent and there is no member, it is published as `JobLost`. Any other exception is a bug: it ends this function,
    and the job is handed back.

    Args:
        bus: bus with the queues and streams.
        queues: queues to take jobs from. Results go to the stream of the queue's run.
        handle: does one job and returns its event.
        expects: the command type in the queues; anything else is dead-lettered.
        role: role of the publisher.
        slots: maximum number of concurrent jobs.
        heartbeat_s: at most a third of the ack time-out.
        deadline_s: time limit for a job; exceeding it is an infrastructure failure.
        member: see `Service`.
        task_status: see `Service`.
    """
    async with anyio.create_task_group() as tasks:
        taking = Taking(bus, queues, member)
        worker = _Worker(bus, handle, expects, role, deadline_s, member, taking, tasks, heartbeat_s)

        async def work() -> None:
            while (delivery := await taking.next()) is not None:
                await worker.do(delivery)

        async with anyio.create_task_group() as working:
            for _ in range(slots):
                working.start_soon(work)
            task_status.started()
        tasks.cancel_scope.cancel()


@dataclass
class _Worker(Generic[C]):
    bus: Bus
    handle: Callable[[C], Awaitable[Event]]
    expects: type[C]
    role: Role
    deadline_s: Callable[[C], float]
    member: Member | None
    taking: Taking
    tasks: TaskGroup
    heartbeat_s: float

    def __post_init__(self) -> None:
        self._name = self.member.name if self.member else ""
        self._heartbeats = Heartbeats(self.tasks, self.heartbeat_s, lambda job: self._tell("kept", job.in_progress))
        self._answering: set[str] = set()
        """Ids of the jobs that this worker has in hand."""

    async def do(self, delivery: Delivery) -> None:
        """Process one delivery to its end. A member survives an unreachable bus and a deleted run."""
        run_id, began = run_of(delivery.queue), anyio.current_time()
        who = {"worker": self._name} if self._name else {}
        with structlog.contextvars.bound_contextvars(run=run_id, job=delivery.msg_id, **who):
            outcome: Outcome = None
            is_settled = False
            if self.member is not None:
                self.member.took(delivery.msg_id, run_id, attempt=delivery.attempt)
            try:
                command = self._read(delivery, run_id)
                if isinstance(command, str):
                    log.warning("job refused", reason=command)
                    await delivery.term(command)
                elif isinstance(command, OutdatedError):
                    outcome = await self._hand_back(delivery, command)
                else:
                    outcome = await self._attempt(delivery, command)
                is_settled = True
            except BusError as error:
                if self.member is None:
                    raise
                if isinstance(error, UnknownQueueError):
                    log.info("job dropped: its run is gone", error=str(error))
                else:
                    log.warning("the bus is away: the job is handed back", error=str(error))
                    await self._tell("handed back", delivery.nak, delay_s(delivery.attempt))
                    outcome = error
                is_settled = True
            finally:
                self._note(delivery, outcome, anyio.current_time() - began)
                if not is_settled:
                    with anyio.move_on_after(PARTING_S, shield=True):
                        await self._tell("handed back", delivery.nak, delay_s(delivery.attempt))

    def _note(self, delivery: Delivery, outcome: Outcome, cost_s: float) -> None:
        failed = isinstance(outcome, BoundaryError | JobLost)
        if isinstance(outcome, JobLost):
            self.taking.failed(delivery.queue, outcome.error, permanent=outcome.permanent)
        elif outcome is not None and not failed:
            self.taking.succeeded(delivery.queue)
        self.taking.ended(delivery.queue, cost_s)
        if self.member is not None:
            result = None if isinstance(outcome, BoundaryError) else outcome
            self.member.finished(delivery.msg_id, result, failed=failed)

    async def _is_answered(self, delivery: Delivery, command: C) -> bool:
        """Settle the delivery and return True if the job has a result or is already in hand here."""
        # A job may also be resubmitted after its acknowledgement, and models' answers are paid for.
        may_be_answered = delivery.attempt > 1 or (self.member is not None and self.role == "coder")
        if may_be_answered and await self.bus.find(command.run_id, f"{command.job_id}.r", role=self.role) is not None:
            log.info("job was answered before")
            await self._tell("acknowledged", delivery.ack)
            return True
        if command.job_id in self._answering:
            # After a server crash, a job may be redelivered while its answer is still waiting to be published.
            log.info("job is being answered here")
            await self._tell("handed back", delivery.nak, delay_s(delivery.attempt))
            return True
        return False

    async def _hand_back(self, delivery: Delivery, error: BoundaryError) -> BoundaryError:
        log.info("job failed", attempt=delivery.attempt, error=str(error))
        if not isinstance(error, BusError):  # before others see the job: our own slots shall not take it again
            self.taking.failed(delivery.queue, str(error), permanent=_is_permanent(error))
        await delivery.nak(_PASSED_ON_S if _is_permanent(error) else delay_s(delivery.attempt))
        return error

    def _read(self, delivery: Delivery, run_id: str) -> C | str | OutdatedError:
        try:
            command = decode_command(delivery.payload)
        except NewerVersionError as error:
            return f"cannot be read: {error}" if self.member is None else OutdatedError(str(error))
        except CodecError as error:
            return f"cannot be read: {error}"
        if not isinstance(command, self.expects):
            return f"{type(command).__name__} is no {self.expects.__name__}"
        if command.run_id != run_id:
            return f"it is of run {command.run_id!r}, in the queue of run {run_id!r}"
        if command.job_id != delivery.msg_id:
            return f"it is job {command.job_id!r}, submitted as {delivery.msg_id!r}"
        return command

    async def _attempt(self, delivery: Delivery, command: C) -> Outcome:
        """Do the job unless it is answered, publish its result and acknowledge it, with heartbeats until then."""
        ids: dict[str, Attribute] = {"run": command.run_id, "job": command.job_id, "worker": self._name}
        kind = _KINDS[type(command)]
        with span(kind, ids | {"attempt": delivery.attempt}, side="consumer", headers=delivery.headers):
            log.info("job taken", attempt=delivery.attempt)
            outcome: Outcome = None
            if not await self._is_answered(delivery, command):
                attempt = anyio.CancelScope()
                self._answering.add(command.job_id)
                try:
                    with self._heartbeats.keeping(delivery, attempt):
                        with attempt:
                            outcome = await self._result(delivery, command)
                        if outcome is not None and not isinstance(outcome, BoundaryError):
                            outcome = await self._publish(command, outcome)
                finally:
                    self._answering.discard(command.job_id)
                if isinstance(outcome, BoundaryError):
                    await self._hand_back(delivery, outcome)
                else:
                    await self._tell("acknowledged", delivery.ack)
            note(outcome=_word_for(outcome))
            return outcome

    async def _result(self, delivery: Delivery, command: C) -> Event | BoundaryError:
        """Do the job. Returns its event, or the error for which it should be retried."""
        kind, limit_s = _KINDS[type(command)], self.deadline_s(command)
        error: BoundaryError = EvaluatorError(f"{kind} job {command.job_id!r} had not ended after {limit_s:g} s")
        with anyio.move_on_after(limit_s):
            try:
                result = await self.handle(command)
            except BoundaryError as failure:
                error = failure
            else:
                if self._name and isinstance(result, CandidateWritten | CandidateBuilt | CandidateEvaluated):
                    return msgspec.structs.replace(result, worker=self._name)
                return result
        if delivery.attempt < MAX_ATTEMPTS and (self.member is not None or not _is_permanent(error)):
            return error
        return self._lost(command, error)

    def _lost(self, command: C, error: BoundaryError) -> JobLost:
        log.error("job lost", error=str(error))
        permanent = self.member is None and _is_permanent(error)
        faults = error.faults if isinstance(error, ModelError) else ()
        kind = _KINDS[type(command)]
        return JobLost(job_id=command.job_id, kind=kind, error=str(error), permanent=permanent, faults=faults)

    async def _publish(self, command: C, result: Event) -> Event:
        """Publish and return a result, even when stopped: it was paid for. A member waits for an unreachable bus."""
        payload = encode(result)
        if len(payload) > MAX_EVENT_BYTES:
            result = self._lost(command, EvaluatorError(f"its result has {len(payload)} bytes: too large for the bus"))
            payload = encode(result)
        say = partial(
            self.bus.publish,
            command.run_id,
            payload,
            msg_id=f"{command.job_id}.r",
            role=self.role,
            headers=trace_headers(),
        )
        until, pause_s = anyio.current_time() + RESULT_WAIT_S, _FIRST_PAUSE_S
        while True:
            try:
                await see_through(say, within_s=PARTING_S)
            except UnknownQueueError:
                raise
            except BusError as error:
                if self.member is None or anyio.current_time() >= until:
                    raise
                if pause_s == _FIRST_PAUSE_S:
                    log.warning("result not published yet; trying again", error=str(error))
            else:
                return result
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_DELAY_S)

    async def _tell(self, what: str, call: Callable[..., Awaitable[None]], *arguments: float) -> None:
        """Report on a job to the bus. On failure, the ack time-out redelivers the job and its result is found.

        Raises `CancelledRunError` if the job was cancelled.
        """
        try:
            await call(*arguments)
        except CancelledRunError:
            raise
        except BusError as error:
            log.warning(f"job could not be {what}", error=str(error))


def _is_permanent(error: BoundaryError) -> bool:
    return isinstance(error, OutdatedError) or (isinstance(error, ModelError | EvaluatorError) and error.permanent)


def _word_for(outcome: Outcome) -> str:
    if isinstance(outcome, BoundaryError):
        return "handed back"
    return "dropped" if outcome is None else "lost" if isinstance(outcome, JobLost) else "done"


def delay_s(attempt: int) -> float:
    """Return the pause after the n-th failed attempt: 1 s, then doubled."""
    return min(2.0 ** (attempt - 1), MAX_DELAY_S)
