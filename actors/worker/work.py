"""The loop of every worker: take a job, do it with heartbeats, publish its result, acknowledge it.

Each job's first beat comes one interval after it was taken; one that ends sooner costs an entry in a queue.

In that order. A worker that dies in between leaves a job that is delivered again, and a result that the stream keeps
once, under the job's id; whoever gets the job again looks for that first. What a job means is the handler's.

What happens when something fails depends on whether there are others who could do better:

- In a run of one process (no member) there are none. An error of the surroundings that will not pass, a wrong key or no
  compiler, is published as `JobLost` with `permanent` and so ends the run; a bus that fails ends the process.
- A member of a distributed run hands such a job to others and keeps away from its queue (`actors.worker.fairness`):
one host
  with a wrong key must not end everybody's run. A bus that is away is waited for, with the result in hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

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
    """Keeps jobs ours while they are being done."""

    def __init__(self, interval_s: float, beat: Callable[[Delivery], Awaitable[None]]) -> None:
        """Say how.

        Args:
            interval_s: between two beats of a job.
            beat: tells the bus of one job; raises `CancelledRunError` if nobody wants it any more, and nothing else.
        """
        self._interval_s = interval_s
        self._beat = beat
        self._kept: deque[_Kept] = deque()
        """In the order of their next beats: all intervals are the same. Ended ones stay until their beat is due."""
        self._begun = anyio.Event()

    @contextmanager
    def keeping(self, delivery: Delivery, attempt: anyio.CancelScope) -> Iterator[None]:
        """Keep a job for as long as the block; cancel `attempt` if nobody wants it any more."""
        kept = _Kept(delivery, attempt, anyio.current_time() + self._interval_s)
        self._kept.append(kept)
        self._begun.set()
        try:
            yield
        finally:
            kept.is_over = True

    async def run(self) -> None:
        """Beat until cancelled."""
        async with anyio.create_task_group() as beats:
            while True:
                while self._kept:
                    await anyio.sleep_until(self._kept[0].due)
                    kept = self._kept.popleft()
                    if not kept.is_over:
                        beats.start_soon(self._keep, kept)
                self._begun = anyio.Event()
                await self._begun.wait()

    async def _keep(self, kept: _Kept) -> None:
        try:
            await self._beat(kept.delivery)
        except CancelledRunError as error:
            if not kept.is_over:
                log.info("job dropped", job=kept.delivery.msg_id, error=str(error))
                kept.attempt.cancel()
            return
        if not kept.is_over:
            kept.due = anyio.current_time() + self._interval_s
            self._kept.append(kept)
            self._begun.set()


class _Kept:
    def __init__(self, delivery: Delivery, attempt: anyio.CancelScope, due: float) -> None:
        self.delivery = delivery
        self.attempt = attempt
        self.due = due
        self.is_over = False


MAX_ATTEMPTS = 4
"""After so many failures of the infrastructure a job is given up, with the last one's words. A worker that dies says
nothing; then the queue's `max_deliver` decides."""
MAX_DELAY_S = 30.0
"""Longest time for which a job rests after the infrastructure failed it."""
PARTING_S = 2.0
"""How long a worker that is stopped may take to hand its job back."""
DEADLINE_S = 3600.0
"""Longest time that a job may take. Heartbeats would keep a job that hangs for ever; whatever a handler does has closer
limits of its own (model time-outs, compiler and evaluation limits), so this one means that they failed."""
RESULT_WAIT_S = 600.0
"""For how long a result is offered to a bus that is away, before the job is handed back: an answer was paid for."""
_FIRST_PAUSE_S = 0.5
_PASSED_ON_S = 0.5
"""How long a job rests that others are to do: until our own slots have heard that they must not."""
_KINDS: dict[type[Command], JobKind] = {
    WriteCandidate: "write",
    BuildCandidate: "build",
    EvaluateCandidate: "evaluate",
}

C = TypeVar("C", bound=Command)


class OutdatedError(BoundaryError):
    """This process is of an older release than the job; a newer one can do it."""


Outcome: TypeAlias = Event | BoundaryError | None
"""What was published; or why the job was handed back; or None: nobody wants a result."""


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
    """Do the jobs of some queues until cancelled, or until the member leaves and what is in hand is done.

    A `BoundaryError` of the handler puts the job back with a delay, for another try here or elsewhere; the last of
    `MAX_ATTEMPTS`, and without a member a permanent one, is published as `JobLost`. Any other exception is a bug: it
    ends this function, and the job is handed back.

    Args:
        bus: where queues and streams are.
        queues: whose jobs, in which order. Results go to the stream of the run to which a queue belongs.
        handle: does one job and returns the event that tells of it.
        expects: the command that the queues hold; anything else is dead-lettered.
        role: who publishes.
        slots: jobs done at once.
        heartbeat_s: how often the bus hears that a job is being worked on; a third of its ack time-out or less.
        deadline_s: how long a job may take; longer is a failure of the infrastructure.
        member: the process's presence in a distributed run; None: a run of one process.
        task_status: told when the first pull is about to begin.
    """
    taking = Taking(bus, queues, member)
    worker = _Worker(
        bus, handle, expects, taking, role=role, heartbeat_s=heartbeat_s, deadline_s=deadline_s, member=member
    )

    async def work() -> None:
        while (delivery := await taking.next()) is not None:
            await worker.do(delivery)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.beat)
        async with anyio.create_task_group() as working:
            for _ in range(slots):
                working.start_soon(work)
            task_status.started()
        tasks.cancel_scope.cancel()


class _Worker(Generic[C]):
    def __init__(
        self,
        bus: Bus,
        handle: Callable[[C], Awaitable[Event]],
        expects: type[C],
        taking: Taking,
        *,
        role: Role,
        heartbeat_s: float,
        deadline_s: Callable[[C], float],
        member: Member | None,
    ) -> None:
        self._bus = bus
        self._handle = handle
        self._expects = expects
        self._taking = taking
        self._role: Role = role
        self._answering: set[str] = set()
        """Ids of the jobs that this worker has in hand."""
        self._heartbeats = Heartbeats(heartbeat_s, self._keep)
        self._deadline_s = deadline_s
        self._member = member
        self._name = member.name if member else ""

    async def beat(self) -> None:
        """Keep the jobs in hand ours; ends only by cancellation."""
        await self._heartbeats.run()

    async def do(self, delivery: Delivery) -> None:
        """See one delivery to its end: acknowledged, handed back or given up."""
        run_id, began = run_of(delivery.queue), anyio.current_time()
        who = {"worker": self._name} if self._name else {}
        with structlog.contextvars.bound_contextvars(run=run_id, job=delivery.msg_id, **who):
            outcome: Outcome = None
            is_settled = False
            if self._member is not None:
                self._member.took(delivery.msg_id, run_id, attempt=delivery.attempt)
            try:
                outcome = await self._settle_or_bridge(delivery, run_id)
                is_settled = True
            finally:
                self._note(delivery, outcome, anyio.current_time() - began)
                if not is_settled:
                    with anyio.move_on_after(PARTING_S, shield=True):
                        await self._tell("handed back", delivery.nak, delay_s(delivery.attempt))

    def _note(self, delivery: Delivery, outcome: Outcome, cost_s: float) -> None:
        """Keep account of how a job ended."""
        failed = isinstance(outcome, BoundaryError | JobLost)
        if isinstance(outcome, JobLost):
            self._taking.failed(delivery.queue, outcome.error, permanent=outcome.permanent)
        elif outcome is not None and not failed:
            self._taking.succeeded(delivery.queue)
        self._taking.ended(delivery.queue, cost_s)
        if self._member is not None:
            result = None if isinstance(outcome, BoundaryError) else outcome
            self._member.finished(delivery.msg_id, result, failed=failed)

    async def _settle_or_bridge(self, delivery: Delivery, run_id: str) -> Outcome:
        """Settle a job. A member outlives a bus that is away, and a run that is gone."""
        try:
            return await self._settle(delivery, run_id)
        except UnknownQueueError as error:
            if self._member is None:
                raise
            log.info("job dropped: its run is gone", error=str(error))
            return None
        except BusError as error:
            if self._member is None:
                raise
            log.warning("the bus is away: the job is handed back", error=str(error))
            await self._tell("handed back", delivery.nak, delay_s(delivery.attempt))
            return error

    async def _settle(self, delivery: Delivery, run_id: str) -> Outcome:
        command = self._read(delivery, run_id)
        if isinstance(command, str):
            log.warning("job refused", reason=command)
            await delivery.term(command)
            return None
        if isinstance(command, OutdatedError):
            return await self._hand_back(delivery, command)
        ids: dict[str, Attribute] = {"run": run_id, "job": command.job_id, "worker": self._name}
        with span(_kind_of(command), ids | {"attempt": delivery.attempt}, side="consumer", headers=delivery.headers):
            outcome = await self._answer(delivery, command, run_id)
            note(outcome=_word_for(outcome))
            return outcome

    async def _answer(self, delivery: Delivery, command: C, run_id: str) -> Outcome:
        log.info("job taken", attempt=delivery.attempt)
        # A job may also be submitted again after it was acknowledged, and models' answers are paid for.
        may_be_answered = delivery.attempt > 1 or (self._member is not None and self._role == "coder")
        if may_be_answered and await self._bus.find(run_id, _result_id(command), role=self._role) is not None:
            log.info("job was answered before")
            await self._tell("acknowledged", delivery.ack)
            return None
        if command.job_id in self._answering:
            # After a crash of the server a job may come again while its answer still waits to be published.
            log.info("job is being answered here")
            await self._tell("handed back", delivery.nak, delay_s(delivery.attempt))
            return None
        self._answering.add(command.job_id)
        try:
            outcome = await self._attempt(delivery, command, run_id)
        finally:
            self._answering.discard(command.job_id)
        if isinstance(outcome, BoundaryError):
            return await self._hand_back(delivery, outcome)
        await self._tell("acknowledged", delivery.ack)
        return outcome

    async def _hand_back(self, delivery: Delivery, error: BoundaryError) -> BoundaryError:
        log.info("job failed", attempt=delivery.attempt, error=str(error))
        if not isinstance(error, BusError):  # before others see the job: our own slots shall not take it again
            self._taking.failed(delivery.queue, str(error), permanent=_is_permanent(error))
        await delivery.nak(_PASSED_ON_S if _is_permanent(error) else delay_s(delivery.attempt))
        return error

    def _read(self, delivery: Delivery, run_id: str) -> C | str | OutdatedError:
        """Return the job, or why it is none, or why others may be able to do it."""
        try:
            command = decode_command(delivery.payload)
        except NewerVersionError as error:
            return f"cannot be read: {error}" if self._member is None else OutdatedError(str(error))
        except CodecError as error:
            return f"cannot be read: {error}"
        if not isinstance(command, self._expects):
            return f"{type(command).__name__} is no {self._expects.__name__}"
        if command.run_id != run_id:
            return f"it is of run {command.run_id!r}, in the queue of run {run_id!r}"
        if command.job_id != delivery.msg_id:
            return f"it is job {command.job_id!r}, submitted as {delivery.msg_id!r}"
        return command

    async def _attempt(self, delivery: Delivery, command: C, run_id: str) -> Outcome:
        """Have the job done and its result published, with heartbeats until then. None: nobody wants it any more."""
        outcome: Outcome = None
        attempt = anyio.CancelScope()
        with self._heartbeats.keeping(delivery, attempt):
            with attempt:
                outcome = await self._do(command)
            if isinstance(outcome, BoundaryError) and self._is_last(outcome, delivery):
                outcome = self._lost(command, outcome)
            if outcome is not None and not isinstance(outcome, BoundaryError):
                return await self._publish(run_id, command, outcome)
            return outcome

    async def _do(self, command: C) -> Event | BoundaryError:
        limit_s = self._deadline_s(command)
        with anyio.move_on_after(limit_s):
            try:
                return await self._handle(command)
            except BoundaryError as error:
                return error
        return EvaluatorError(f"{_kind_of(command)} job {command.job_id!r} had not ended after {limit_s:g} s")

    def _is_last(self, error: BoundaryError, delivery: Delivery) -> bool:
        """Say whether nobody is to try again."""
        return delivery.attempt >= MAX_ATTEMPTS or (self._member is None and _is_permanent(error))

    def _lost(self, command: C, error: BoundaryError) -> JobLost:
        log.error("job lost", error=str(error))
        return JobLost(
            job_id=command.job_id,
            kind=_kind_of(command),
            error=str(error),
            permanent=self._member is None and _is_permanent(error),
            faults=error.faults if isinstance(error, ModelError) else (),
        )

    async def _publish(self, run_id: str, command: C, result: Event) -> Event:
        """Publish a result, also when stopped: it was paid for. A member waits for a bus that is away.

        Returns:
            What was published.

        Raises:
            messages.base.BusError: the bus fails, for a member for `RESULT_WAIT_S`.
        """
        result = self._signed(result)
        payload = encode(result)
        if len(payload) > MAX_EVENT_BYTES:
            result = self._lost(command, EvaluatorError(f"its result has {len(payload)} bytes: too large for the bus"))
            payload = encode(result)
        say = partial(
            self._bus.publish, run_id, payload, msg_id=_result_id(command), role=self._role, headers=trace_headers()
        )
        until, pause_s = anyio.current_time() + RESULT_WAIT_S, _FIRST_PAUSE_S
        while True:
            try:
                await see_through(say, within_s=PARTING_S)
            except UnknownQueueError:
                raise
            except BusError as error:
                if self._member is None or anyio.current_time() >= until:
                    raise
                if pause_s == _FIRST_PAUSE_S:
                    log.warning("result not published yet; trying again", error=str(error))
            else:
                return result
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_DELAY_S)

    def _signed(self, result: Event) -> Event:
        """Have a result say who did the job."""
        if self._name and isinstance(result, CandidateWritten | CandidateBuilt | CandidateEvaluated):
            return msgspec.structs.replace(result, worker=self._name)
        return result

    async def _keep(self, delivery: Delivery) -> None:
        await self._tell("kept", delivery.in_progress)

    async def _tell(self, what: str, call: Callable[..., Awaitable[None]], *arguments: float) -> None:
        """Tell the bus of a job. Where that fails, the ack time-out brings the job back, and its result is found.

        Raises:
            CancelledRunError: nobody wants it any more.
        """
        try:
            await call(*arguments)
        except CancelledRunError:
            raise
        except BusError as error:
            log.warning(f"job could not be {what}", error=str(error))


def _kind_of(command: Command) -> JobKind:
    return _KINDS[type(command)]


def _result_id(command: Command) -> str:
    return f"{command.job_id}.r"


def _is_permanent(error: BoundaryError) -> bool:
    return isinstance(error, OutdatedError) or (isinstance(error, ModelError | EvaluatorError) and error.permanent)


def _word_for(outcome: Outcome) -> str:
    if isinstance(outcome, BoundaryError):
        return "handed back"
    return "dropped" if outcome is None else "lost" if isinstance(outcome, JobLost) else "done"


def delay_s(attempt: int) -> float:
    """Return how long a job rests after its n-th failed attempt: 1 s, then twice as long each time."""
    return min(2.0 ** (attempt - 1), MAX_DELAY_S)
