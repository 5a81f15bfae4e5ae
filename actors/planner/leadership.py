"""Leadership of a run: one process at a time has its lease and leads it; others are on standby.

The entry `lease.<run>` contains its holder's name and expires unless renewed. The holder counts its time from before
each renewal, so by its own clock it stops before another process can begin. A lease alone gives no safety (clocks
differ, processes freeze); the fence on decisions does. A leader that loses either returns to standby.
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
"""Time limit for releasing a lease; after that it is left to expire."""
_STEADY_S = 30.0
"""A leadership that lasted this long does not count as a failure."""
_FAILURES = 5
"""Consecutive bus failures, soon after taking the lease, that end the process."""

log = structlog.get_logger(__name__)


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The timing parameters of a lease."""

    ttl_s: int = 10
    renew_s: float = 3.0
    retry_s: float = 0.5
    """Pause before a failed renewal is tried again."""
    poll_s: float = 0.5
    """Interval at which a standby process checks the lease."""


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
    """Wait for a run's lease, lead the run, and release the lease; return to standby whenever it is lost.

    Any number of processes may do so for the same run; all return the fact that ended it. `terms` must be the same for
    all; `watches_workers` reports jobs without workers, if workers announce themselves. Reports `started` once this
    process has declared the run's queues for the first time.

    Raises:
        messages.base.BusError: the bus fails at each leadership, although the lease can be obtained.
        messages.base.ProtocolError: the stream is not that of a run.
    """
    terms = terms or LeaseTerms()
    once, failures = Once(task_status), 0
    while True:
        lease = Lease(bus, run_id, holder, terms)
        await lease.take()
        began = anyio.current_time()
        mandate = Mandate(
            holder=holder, session=secrets.token_hex(4), check=lease.check, watches_workers=watches_workers
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease.keep)
                finished = await plan_run(bus, model, run_id=run_id, mandate=mandate, task_status=once)
                tasks.cancel_scope.cancel()
            return finished
        except (BusError, BaseExceptionGroup) as error:
            cause = _bus_error(error)
            if cause is None:
                raise
            is_steady = isinstance(cause, ConflictError) or anyio.current_time() - began >= _STEADY_S
            failures = 0 if is_steady else failures + 1
            if failures >= _FAILURES:
                raise cause from error
            log.warning("leads no longer; stands by", run=run_id, planner=holder, error=str(cause))
        finally:
            await lease.give_back()
        await anyio.sleep(terms.poll_s)


class Lease:
    """The lease of one run, as seen by one process."""

    def __init__(self, bus: Bus, run_id: str, holder: str, terms: LeaseTerms) -> None:
        self.holder = holder
        self._bus = bus
        self._run_id = run_id
        self._key = lease_key(run_id)
        self._terms = terms
        self._revision = 0
        self._until = float("-inf")

    def check(self) -> None:
        """Raise `ConflictError` if the lease is not held."""
        if anyio.current_time() >= self._until:
            raise ConflictError(f"the lease of run {self._run_id!r} is not held, or was not renewed in time")

    async def take(self) -> None:
        """Wait until the lease is free and take it, even while the bus is unreachable."""
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
            await self.give_back()  # the last request may have been granted
            raise

    async def keep(self) -> None:
        """Renew the lease until cancelled; raise `ConflictError` if it is lost."""
        while True:
            await anyio.sleep(self._terms.renew_s)
            with anyio.CancelScope(deadline=self._until):
                await self._renew()
            self.check()

    async def give_back(self) -> None:
        """Release the lease if this process holds it; shielded from cancellation and limited in time."""
        self._until = float("-inf")
        with anyio.move_on_after(PARTING_S, shield=True):
            try:
                revision = await self._own_revision()
                if revision is not None:
                    await self._bus.delete(self._key, revision=revision)
            except BusError as error:
                log.info("lease left to expire", run=self._run_id, planner=self.holder, error=str(error))

    async def _try_to_take(self) -> bool:
        entry = await self._bus.get(self._key)
        if entry is not None and entry.value != self.holder.encode():
            return False
        try:
            await self._put(entry.revision if entry else 0)
        except ConflictError:
            return False
        return True

    async def _renew(self) -> None:
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
    causes = _leaves(error)
    found = [cause for cause in causes if isinstance(cause, BusError)]
    if len(found) < len(causes):
        return None
    return next((cause for cause in found if isinstance(cause, ConflictError)), found[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
