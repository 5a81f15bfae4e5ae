"""The loop that all workers share: pull a job, do it with heartbeats beside it, publish its result, acknowledge it.

In that order. A worker that dies in between leaves a job that is delivered again, and a result that the stream keeps
once, under the job's id. What a job means is the handler's; nothing here knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskStatus

from actors.bus.base import Bus, CancelledRunError, Delivery
from messages.codec import CodecError, decode_command, encode
from messages.commands import BuildCandidate, Command, EvaluateCandidate, WriteCandidate
from messages.errors import BoundaryError, EvaluatorError, ModelError
from messages.events import Event, JobKind, JobLost

MAX_ATTEMPTS = 4
"""After so many failures of the infrastructure a job is given up, with the last one's words. A worker that dies says
nothing; then the queue's `max_deliver` decides."""
MAX_DELAY_S = 30.0
"""Longest time for which a job rests after the infrastructure failed it."""
PARTING_S = 2.0
"""How long a worker that is stopped may take to hand its job back."""
_KINDS: dict[type[Command], JobKind] = {
    WriteCandidate: "write",
    BuildCandidate: "build",
    EvaluateCandidate: "evaluate",
}

C = TypeVar("C", bound=Command)

log = structlog.get_logger(__name__)


async def serve(
    bus: Bus,
    queue: str,
    handle: Callable[[C], Awaitable[Event]],
    *,
    expects: type[C],
    run_id: str,
    slots: int = 1,
    heartbeat_s: float = 10.0,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Do the jobs of a queue until cancelled.

    A `BoundaryError` of the handler puts the job back with a delay, for another try here or elsewhere; a permanent one,
    and the last of `MAX_ATTEMPTS`, is published as `JobLost`. Any other exception is a bug: it ends this function, and
    the job is handed back.

    Args:
        bus: where the queue and the run's stream are.
        queue: whose jobs.
        handle: does one job and returns the event that tells of it.
        expects: the command that the queue holds; anything else is dead-lettered.
        run_id: on whose stream results are published.
        slots: jobs done at once.
        heartbeat_s: how often the bus hears that a job is being worked on; a third of its ack time-out or less.
        task_status: told when the first pull is about to begin.
    """
    worker = _Worker(bus, handle, expects, run_id=run_id, heartbeat_s=heartbeat_s)

    async def work() -> None:
        while True:
            await worker.do(await bus.pull(queue))

    async with anyio.create_task_group() as tasks:
        for _ in range(slots):
            tasks.start_soon(work)
        task_status.started()


class _Worker(Generic[C]):
    def __init__(
        self, bus: Bus, handle: Callable[[C], Awaitable[Event]], expects: type[C], *, run_id: str, heartbeat_s: float
    ) -> None:
        self._bus = bus
        self._handle = handle
        self._expects = expects
        self._run_id = run_id
        self._heartbeat_s = heartbeat_s

    async def do(self, delivery: Delivery) -> None:
        """See one delivery to its end: acknowledged, handed back or given up."""
        is_settled = False
        try:
            await self._settle(delivery)
            is_settled = True
        finally:
            if not is_settled:
                with anyio.move_on_after(PARTING_S, shield=True):
                    await delivery.nak(delay_s(delivery.attempt))

    async def _settle(self, delivery: Delivery) -> None:
        try:
            command = decode_command(delivery.payload)
        except CodecError as error:
            await delivery.term(f"cannot be read: {error}")
            return
        if not isinstance(command, self._expects):
            await delivery.term(f"{type(command).__name__} is no {self._expects.__name__}")
            return
        log.info("job taken", job=command.job_id, attempt=delivery.attempt)
        outcome = await self._attempt(delivery, command)
        if isinstance(outcome, BoundaryError):
            if not _is_permanent(outcome) and delivery.attempt < MAX_ATTEMPTS:
                log.info("job failed", job=command.job_id, attempt=delivery.attempt, error=str(outcome))
                await delivery.nak(delay_s(delivery.attempt))
                return
            log.error("job lost", job=command.job_id, error=str(outcome))
            outcome = JobLost(
                job_id=command.job_id,
                kind=_KINDS[type(command)],
                error=str(outcome),
                permanent=_is_permanent(outcome),
                faults=outcome.faults if isinstance(outcome, ModelError) else (),
            )
        if outcome is not None:
            await self._bus.publish(self._run_id, encode(outcome), msg_id=f"{command.job_id}.r")
        await delivery.ack()

    async def _attempt(self, delivery: Delivery, command: C) -> Event | BoundaryError | None:
        """Have the job done. None: its run was cancelled meanwhile."""
        outcome: Event | BoundaryError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, delivery, tasks.cancel_scope)
            try:
                outcome = await self._handle(command)
            except BoundaryError as error:
                outcome = error
            tasks.cancel_scope.cancel()
        return outcome

    async def _keep(self, delivery: Delivery, attempt: anyio.CancelScope) -> None:
        """Keep the job ours; stop the attempt if nobody wants it any more."""
        try:
            while True:
                await anyio.sleep(self._heartbeat_s)
                await delivery.in_progress()
        except CancelledRunError:
            log.info("job dropped: its run was cancelled", job=delivery.msg_id)
            attempt.cancel()


def _is_permanent(error: BoundaryError) -> bool:
    return isinstance(error, ModelError | EvaluatorError) and error.permanent


def delay_s(attempt: int) -> float:
    """Return how long a job rests after its n-th failed attempt: 1 s, then twice as long each time."""
    return min(2.0 ** (attempt - 1), MAX_DELAY_S)
