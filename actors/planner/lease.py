"""Leadership of a run: one process at a time has its lease, leads it, and gives the lease back; others stand by.

The entry `lease.<run>` holds its holder's name and expires unless it is renewed. Whoever cannot renew it in time stops
leading, and counts that time from before it asked: by its own clock it stops before anybody else can begin. Clocks
differ and processes are frozen, so a lease alone gives no safety. The fence of the decisions does: they are one chain,
and whoever decides without knowing the last decision is refused. A leader that learns of either is a standby again.
"""

from __future__ import annotations

import secrets

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from actors.bus.base import Bus, ConflictError
from actors.llm.base import Model
from actors.planner.actor import Mandate, plan_run
from actors.supervision import Once
from messages.base import BusError
from messages.facts import RunFinished
from messages.presence import lease_key

PARTING_S = 2.0
"""How long giving a lease back may take; if it takes longer, the lease expires by itself."""
_STEADY_S = 30.0
"""A leadership that lasted so long was no failure, however it ended."""
_FAILURES = 5
"""So many failures of the bus in a row, each soon after a lease was taken, are not the bus being away."""

log = structlog.get_logger(__name__)


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a lease."""

    ttl_s: int = 10
    """After so long without renewal it is anybody's."""
    renew_s: float = 3.0
    retry_s: float = 0.5
    """Until a renewal that failed is tried again."""
    poll_s: float = 0.5
    """How often a standby looks whether it is free."""


async def lead(
    bus: Bus,
    model: Model,
    *,
    run_id: str,
    holder: str,
    terms: LeaseTerms | None = None,
    watches_workers: bool = True,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> RunFinished:
    """Wait for a run's lease, lead the run, and give the lease back; stand by again whenever it is lost.

    Any number of processes may do so for the same run; all return when it is over.

    Args:
        bus: where the run's stream is; the stream begins with `run.started.v1`.
        model: answers the planner's questions.
        run_id: which run.
        holder: name of this process, unique.
        terms: the lease's times, the same for all who may lead.
        watches_workers: report jobs that no worker is there for; only where workers say that they are there.
        task_status: told when the run's queues are declared by us for the first time.

    Returns:
        The fact that ended the run.

    Raises:
        messages.base.BusError: the bus fails whenever it is to be led, though the lease can be had.
        messages.base.ProtocolError: the stream is not that of a run.
    """
    terms = terms or LeaseTerms()
    once, failures = Once(task_status), 0
    while True:
        lease = Lease(bus, run_id, holder, terms)
        await lease.take()
        began = anyio.current_time()
        try:
            return await _lead_under(lease, bus, model, run_id, watches_workers=watches_workers, task_status=once)
        except (BusError, BaseExceptionGroup) as error:
            cause = _bus_error(error)
            if cause is None:
                raise
            is_steady = isinstance(cause, ConflictError) or anyio.current_time() - began >= _STEADY_S
            failures = 0 if is_steady else failures + 1
            if failures >= _FAILURES:
                raise cause from error
            log.warning("leads no longer; stands by", run=run_id, planner=holder, error=str(cause))
        await anyio.sleep(terms.poll_s)


async def _lead_under(
    lease: Lease, bus: Bus, model: Model, run_id: str, *, watches_workers: bool, task_status: TaskStatus[None]
) -> RunFinished:
    mandate = Mandate(
        holder=lease.holder, session=secrets.token_hex(4), check=lease.check, watches_workers=watches_workers
    )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lease.keep)
            finished = await plan_run(bus, model, run_id=run_id, mandate=mandate, task_status=task_status)
            tasks.cancel_scope.cancel()
        return finished
    finally:
        await lease.give_back()


class Lease:
    """The lease of one run, as one process sees it."""

    def __init__(self, bus: Bus, run_id: str, holder: str, terms: LeaseTerms) -> None:
        self.holder = holder
        self._bus = bus
        self._run_id = run_id
        self._key = lease_key(run_id)
        self._terms = terms
        self._revision = 0
        self._until = float("-inf")

    def check(self) -> None:
        """Accept that it is held.

        Raises:
            ConflictError: it is not, or no longer.
        """
        if anyio.current_time() >= self._until:
            raise ConflictError(f"the lease of run {self._run_id!r} is not held, or was not renewed in time")

    async def take(self) -> None:
        """Wait until nobody has it, and take it. While the bus is away, wait too."""
        is_away = False
        try:
            while True:
                try:
                    if await self._try_to_take():
                        return
                    is_away = False
                except BusError as error:
                    if not is_away:
                        log.warning("waits for the bus", run=self._run_id, planner=self.holder, error=str(error))
                    is_away = True
                await anyio.sleep(self._terms.poll_s)
        except anyio.get_cancelled_exc_class():
            await self.give_back()  # what was asked for last may have been granted
            raise

    async def keep(self) -> None:
        """Renew it until cancelled.

        Raises:
            ConflictError: it is lost.
        """
        while True:
            await anyio.sleep(self._terms.renew_s)
            with anyio.CancelScope(deadline=self._until):
                await self._renew()
            self.check()

    async def give_back(self) -> None:
        """Let somebody else have it at once, if it is ours. Shielded from cancellation, and bounded in time."""
        self._until = float("-inf")
        with anyio.move_on_after(PARTING_S, shield=True):
            try:
                revision = await self._own_revision()
                if revision is not None:
                    await self._bus.delete(self._key, revision=revision)
            except BusError as error:
                log.info("lease left to expire", run=self._run_id, planner=self.holder, error=str(error))

    async def _try_to_take(self) -> bool:
        """Take it if it is free, or is still ours from before."""
        entry = await self._bus.get(self._key)
        if entry is not None and entry.value != self.holder.encode():
            return False
        try:
            await self._put(entry.revision if entry else 0)
        except ConflictError:
            return False
        return True

    async def _renew(self) -> None:
        """Renew it, again and again until the bus says that it is done.

        Raises:
            ConflictError: somebody else has it, or nobody.
        """
        while True:
            try:
                await self._put(self._revision)
            except ConflictError:
                revision = await self._own_revision()
                if revision is None:
                    self._until = float("-inf")
                    raise
                self._revision = revision  # an earlier renewal was done, and its answer lost
            except BusError as error:
                log.warning("lease not renewed", run=self._run_id, planner=self.holder, error=str(error))
                await anyio.sleep(self._terms.retry_s)
            else:
                return

    async def _put(self, revision: int) -> None:
        asked_at = anyio.current_time()
        value = self.holder.encode()
        self._revision = await self._bus.put(self._key, value, revision=revision, ttl_s=self._terms.ttl_s)
        self._until = asked_at + self._terms.ttl_s

    async def _own_revision(self) -> int | None:
        entry = await self._bus.get(self._key)
        return entry.revision if entry is not None and entry.value == self.holder.encode() else None


def _bus_error(error: BaseException) -> BusError | None:
    """Return what the bus said, if nothing else went wrong; of several the loss of the leadership."""
    causes = _leaves(error)
    found = [cause for cause in causes if isinstance(cause, BusError)]
    if not found or len(found) < len(causes):
        return None
    return next((cause for cause in found if isinstance(cause, ConflictError)), found[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
