"""Taking jobs: the queues of a worker, their order, and when it takes none."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus

from actors.bus.base import Bus, Delivery, UnknownQueueError
from actors.bus.waiting import Changes
from actors.worker.fairness import Breaker, FairShares, Limits
from actors.worker.member import Member
from messages.base import BusError, Role
from messages.presence import RUNS, RunCard, decode_card, run_key
from messages.subjects import build_jobs, evaluate_jobs, run_of, write_jobs

READ_EVERY_S = 1.0
"""Interval between reads of the active runs."""

log = structlog.get_logger(__name__)


class FixedQueues:
    """A fixed list of queues in order of preference, for a single-process run."""

    def __init__(self, *queues: str) -> None:
        self._queues = queues

    def now(self) -> tuple[str, ...]:
        """Return the queues in polling order; empty if there is nothing to do."""
        return self._queues

    async def changed(self, since: Sequence[str]) -> None:  # noqa: ARG002 - they never do
        """Wait until the set of queues differs from this."""
        await anyio.sleep_forever()

    def asking(self, offered: Sequence[str]) -> AbstractContextManager[None]:  # noqa: ARG002 - no shares to keep
        """Record, while the block is open, that a slot polls these queues in this order."""
        return nullcontext()

    def took(self, queue: str, offered: Sequence[str]) -> None:
        """Record that, of these queues polled in this order, this one yielded a job."""

    def charge(self, queue: str, cost_s: float) -> None:
        """Record that a job of this queue ended after some seconds of work."""


class SharedQueues:
    """Queues of all runs on the board that a worker can serve, with a fair share for each run.

    Has the methods of `FixedQueues`.
    """

    def __init__(
        self,
        board: Board,
        *,
        role: Role,
        serves: Callable[[RunCard], bool],
        tier: str = "",
        shares: FairShares | None = None,
    ) -> None:
        """Initialize; `serves` tells if the worker can do a run's jobs, `tier` is a coder's (empty: each run's)."""
        self._board = board
        self._role = role
        self._serves = serves
        self._tier = tier
        self._shares = shares = shares or FairShares()
        self.took = shares.took
        self.charge = shares.charge

    def now(self) -> tuple[str, ...]:
        """See `FixedQueues.now`."""
        self._shares.offer(self._weights())
        return self._shares.order()

    async def changed(self, since: Sequence[str]) -> None:
        """See `FixedQueues.changed`."""
        while self._weights().keys() == set(since):
            await self._board.changed()

    @contextmanager
    def asking(self, offered: Sequence[str]) -> Iterator[None]:
        """See `FixedQueues.asking`."""
        first = offered[0] if offered else ""
        self._shares.claim(first)
        try:
            yield
        finally:
            self._shares.release(first)

    def _weights(self) -> dict[str, int]:
        cards = self._board.cards.values()
        return {queue_of(self._role, card, self._tier): card.weight for card in cards if self._serves(card)}


Queues: TypeAlias = FixedQueues | SharedQueues
"""Where a worker takes jobs from."""


class Board:
    """The active runs, polled periodically."""

    def __init__(self, bus: Bus, *, read_every_s: float = READ_EVERY_S) -> None:
        self._bus = bus
        self._read_every_s = read_every_s
        self._changes = Changes()
        self._cards: dict[str, RunCard] = {}
        self._refused: dict[str, bytes] = {}
        """Invalid run cards by key, kept so that each is reported once."""
        self._is_away = False

    @property
    def cards(self) -> Mapping[str, RunCard]:
        """The unfinished runs by id, as last read if the bus is unreachable."""
        return self._cards

    async def changed(self) -> None:
        """Wait until a run is added or removed, or its card changes."""
        await self._changes.next()

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read the runs about once a second until cancelled; call `started` after the first attempt."""
        while True:
            await self._read()
            task_status.started()
            task_status = anyio.TASK_STATUS_IGNORED
            await anyio.sleep(self._read_every_s)

    async def _read(self) -> None:
        try:
            entries = await self._bus.entries(RUNS)
        except BusError as error:
            if not self._is_away:
                log.warning("the runs cannot be read; trying again", error=str(error))
            self._is_away = True
            return
        if self._is_away:
            log.info("the runs can be read again")
        self._is_away = False
        cards = {}
        for key, entry in entries.items():
            card = self._card(key, entry.value)
            if card is not None and card.state != "finished":
                cards[card.run_id] = card
        if cards != self._cards:
            self._cards = cards
            self._changes.note()

    def _card(self, key: str, value: bytes) -> RunCard | None:
        card = decode_card(value)
        if card is not None and _is_sound(key, card):
            self._refused.pop(key, None)
            return card
        if self._refused.get(key) != value:
            log.warning("run left out: its card cannot be read", key=key)
            self._refused[key] = value
        return None


def queue_of(role: Role, card: RunCard, tier: str = "") -> str:
    """Return the queue from which workers of this role (coders: of this tier) serve a run.

    Raises:
        ValueError: the card's values do not form a valid queue name, or the role has no queues.
    """
    match role:
        case "coder":
            return write_jobs(card.run_id, tier or card.tier)
        case "builder":
            return build_jobs(card.run_id, card.language, card.target.arch)
        case "evaluator":
            return evaluate_jobs(card.run_id, card.language, card.target.arch)
        case "planner":
            raise ValueError("planners take no jobs")


def _is_sound(key: str, card: RunCard) -> bool:
    roles: tuple[Role, ...] = ("coder", "builder", "evaluator")
    try:
        return run_key(card.run_id) == key and all(queue_of(role, card) for role in roles)
    except ValueError:
        return False


ABSENT_S = 1.0
"""Time for which a missing queue is skipped."""
AWAY_S = 1.0
"""Pause after a bus failure."""
_PARTING_S = 2.0
"""Time limit for a stopped worker to hand back a job that it has just received."""
_LOOK_S = 0.25
"""Time to poll each queue alone, to find the missing one."""


class Taking:
    """Takes jobs for the slots of one worker. Without a member every failure is raised."""

    def __init__(self, bus: Bus, queues: Queues, member: Member | None, limits: Limits | None = None) -> None:
        self._bus = bus
        self._queues = queues
        self._member = member
        self._breaker = Breaker(limits)
        self._turned = Changes()
        """Signals a decision of the breaker."""
        self._absent: dict[str, float] = {}
        """Missing queues, and the time until which they are skipped."""
        self._tried: set[str] = set()
        """Queues that one slot polls for a trial job; other slots skip them."""
        self._is_away = False
        self._told: dict[str, str] = {}
        """Last reported reasons for not taking jobs, by queue."""
        self._is_hindered = False
        if member is not None:
            member.hinder("")

    async def next(self) -> Delivery | None:
        """Wait for a job; return None if the worker is leaving. Raises `BusError` only without a member."""
        if self._member is None:
            offered = self._queues.now()
            return self._noted(await self._bus.pull(*offered), offered)
        while not self._member.is_leaving:
            wanted = self._queues.now()
            offered = self._offered(wanted) if self._member.is_ready else ()
            trials = set(offered) & self._breaker.reasons.keys()
            self._tried |= trials
            try:
                with self._queues.asking(offered):
                    delivery = await self._wait(wanted, offered)
                if delivery is not None:
                    return self._noted(delivery, offered)
            finally:
                self._tried -= trials
        return None

    def ended(self, queue: str, cost_s: float) -> None:
        """Record that a job of this queue ended after this duration."""
        self._queues.charge(queue, cost_s)
        self._breaker.undecided(queue)
        self._tell(queue)

    def succeeded(self, queue: str) -> None:
        """Record that a job of this queue was done."""
        self._breaker.succeeded(queue)

    def failed(self, queue: str, reason: str, *, permanent: bool) -> None:
        """Record that a job of this queue failed through no fault of its own."""
        self._breaker.failed(queue, reason, anyio.current_time(), permanent=permanent)
        self._tell(queue)

    def _noted(self, delivery: Delivery, offered: tuple[str, ...]) -> Delivery:
        self._queues.took(delivery.queue, offered)
        self._breaker.took(delivery.queue)
        return delivery

    def _offered(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        now = anyio.current_time()
        self._breaker.keep_only(wanted)
        self._show()
        self._absent = {queue: until for queue, until in self._absent.items() if until > now}
        left_out = self._absent.keys() | self._tried
        return tuple(queue for queue in wanted if queue not in left_out and self._breaker.admits(queue, now))

    async def _wait(self, wanted: tuple[str, ...], offered: tuple[str, ...]) -> Delivery | None:
        """Wait for a job from the `offered` queues; None: something changed, so look again."""
        found: Delivery | None = None
        failure: BusError | None = None
        now = anyio.current_time()
        due = min([math.inf, *self._absent.values(), *self._breaker.ends_of_rests(now)])
        try:
            with anyio.CancelScope(deadline=due):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._until_changed, wanted, tasks.cancel_scope)
                    try:
                        if not offered:
                            await anyio.sleep_forever()
                        found = await self._bus.pull(*offered)
                    except BusError as error:
                        failure = error
                    tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            if found is not None:  # it came at the very moment: nobody else would get it before its ack time-out
                with anyio.move_on_after(_PARTING_S, shield=True):
                    await found.nak()
            raise
        if isinstance(failure, UnknownQueueError):
            return await self._without_absent(offered)
        if failure is not None:
            await self._bridge(failure)
        elif found is not None and self._is_away:
            log.info("the bus gives jobs again")
            self._is_away = False
        return found

    async def _until_changed(self, wanted: tuple[str, ...], pull: anyio.CancelScope) -> None:
        """End a wait when the queues, the member's state or the breaker's decisions change."""

        async def first(change: Callable[[], Awaitable[None]]) -> None:
            await change()
            pull.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first, lambda: self._queues.changed(wanted))
            tasks.start_soon(first, self._turned.next)
            if self._member is not None:
                tasks.start_soon(first, self._member.changed)

    async def _without_absent(self, offered: tuple[str, ...]) -> Delivery | None:
        """Skip the missing queue for a moment; return a job if another queue yields one."""
        for queue in offered:
            with anyio.move_on_after(_LOOK_S):
                try:
                    return await self._bus.pull(queue)
                except UnknownQueueError:
                    if queue not in self._absent:  # another slot may have found the same
                        log.info("queue not there yet, or no longer", queue=queue)
                    self._absent[queue] = anyio.current_time() + ABSENT_S
                except BusError as error:
                    await self._bridge(error)
        return None

    async def _bridge(self, error: BusError) -> None:
        if not self._is_away:
            log.warning("the bus gives no jobs; trying again", error=str(error))
        self._is_away = True
        await anyio.sleep(AWAY_S)

    def _tell(self, queue: str) -> None:
        """Report the avoided queues; wake waiting slots if this queue is affected."""
        concerned = queue in self._breaker.reasons or queue in self._told
        self._show()
        if concerned:
            self._turned.note()

    def _show(self) -> None:
        if self._member is None:
            return
        reasons = dict(self._breaker.reasons)
        wholly = bool(reasons) and all(queue in reasons for queue in self._queues.now())
        if (reasons, wholly) == (self._told, self._is_hindered):
            return
        for queue in reasons.keys() - self._told.keys():
            log.warning("keeps away from a run's jobs for a while", run=run_of(queue), reason=reasons[queue])
        self._told, self._is_hindered = reasons, wholly
        said = "; ".join(f"{run_of(queue)}: {reason}" for queue, reason in sorted(reasons.items()))
        self._member.hinder(said, wholly=wholly)
