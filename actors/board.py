"""Which runs there are, as their planners say, and which queues a worker takes jobs from, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import anyio
import structlog
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.changes import Changes
from actors.fairness import FairShares
from messages.base import Role
from messages.errors import BusError
from messages.presence import RUNS, RunCard, decode_card, run_key
from messages.subjects import build_jobs, evaluate_jobs, write_jobs

READ_EVERY_S = 1.0
"""How often the runs are read: how late, at most, a worker hears of a new one."""

log = structlog.get_logger(__name__)


class Queues(Protocol):
    """From where a worker takes jobs."""

    def now(self) -> tuple[str, ...]:
        """Return the queues in the order in which they are to be asked; none: there is nothing to do."""

    async def changed(self, since: Sequence[str]) -> None:
        """Wait until there are other queues than these, whatever their order."""

    def asking(self, offered: Sequence[str]) -> AbstractContextManager[None]:
        """Take note, as long as the block is open, that somebody asks these queues in this order."""

    def took(self, queue: str, offered: Sequence[str]) -> None:
        """Take note that a job of this queue was taken when these were asked in this order."""

    def charge(self, queue: str, cost_s: float) -> None:
        """Take note that a job of this queue has ended, after so many seconds of work."""


class FixedQueues:
    """The same queues always, the first one first: for a run of one process."""

    def __init__(self, *queues: str) -> None:
        self._queues = queues

    def now(self) -> tuple[str, ...]:
        """See `Queues.now`."""
        return self._queues

    async def changed(self, since: Sequence[str]) -> None:  # noqa: ARG002 - they never do
        """See `Queues.changed`."""
        await anyio.sleep_forever()

    def asking(self, offered: Sequence[str]) -> AbstractContextManager[None]:  # noqa: ARG002 - no shares to keep
        """See `Queues.asking`."""
        return nullcontext()

    def took(self, queue: str, offered: Sequence[str]) -> None:
        """See `Queues.took`."""

    def charge(self, queue: str, cost_s: float) -> None:
        """See `Queues.charge`."""


class SharedQueues:
    """The queues of all runs on the board that a worker can serve, each run with its fair share of the worker."""

    def __init__(
        self,
        board: Board,
        *,
        role: Role,
        serves: Callable[[RunCard], bool],
        tier: str = "",
        shares: FairShares | None = None,
    ) -> None:
        """Begin.

        Args:
            board: where the runs are.
            role: what the worker does: coder, builder or evaluator.
            serves: says whether the worker can do a run's jobs.
            tier: of a coder; empty: that of each run.
            shares: the account of who got what; None: a new one.
        """
        self._board = board
        self._role = role
        self._serves = serves
        self._tier = tier
        self._shares = shares or FairShares()

    def now(self) -> tuple[str, ...]:
        """See `Queues.now`."""
        self._shares.offer(self._weights())
        return self._shares.order()

    async def changed(self, since: Sequence[str]) -> None:
        """See `Queues.changed`."""
        while self._weights().keys() == set(since):
            await self._board.changed()

    @contextmanager
    def asking(self, offered: Sequence[str]) -> Iterator[None]:
        """See `Queues.asking`."""
        first = offered[0] if offered else ""
        self._shares.claim(first)
        try:
            yield
        finally:
            self._shares.release(first)

    def took(self, queue: str, offered: Sequence[str]) -> None:
        """See `Queues.took`."""
        self._shares.took(queue, offered)

    def charge(self, queue: str, cost_s: float) -> None:
        """See `Queues.charge`."""
        self._shares.charge(queue, cost_s)

    def _weights(self) -> dict[str, int]:
        cards = self._board.cards.values()
        return {queue_of(self._role, card, self._tier): card.weight for card in cards if self._serves(card)}


class Board:
    """The runs that go on, read again and again."""

    def __init__(self, bus: Bus, *, read_every_s: float = READ_EVERY_S) -> None:
        self._bus = bus
        self._read_every_s = read_every_s
        self._changes = Changes()
        self._cards: dict[str, RunCard] = {}
        self._refused: dict[str, bytes] = {}
        """Entries that are no cards, so that each is told of once."""
        self._is_away = False

    @property
    def cards(self) -> Mapping[str, RunCard]:
        """The runs that are not finished, by id. While the bus is away: as they were last."""
        return self._cards

    async def changed(self) -> None:
        """Wait until a run has come or gone, or its card says something else."""
        await self._changes.next()

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read the runs about once a second until cancelled; says `started` when it has tried once."""
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
        """Return what an entry says; None if that is no card of this run, or names queues that cannot be."""
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
        ValueError: the card cannot be part of a queue's name, or this role has no queues.
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
