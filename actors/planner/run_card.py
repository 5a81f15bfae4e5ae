"""The run's card: the entry that says which run it is, who leads it, and what progress it has made.

It serves people and workers that look for work; the run does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog
from msgspec.structs import replace

from actors.bus.base import Bus, ConflictError
from actors.clock import utc_now
from actors.planner.core.budget import is_priced, spent_usd
from actors.planner.core.state import SearchState
from actors.planner.jobs import further_tiers
from messages.base import BusError, copied
from messages.events import RunStarted
from messages.facts import RunFinished
from messages.presence import RunCard, decode_card, encode_entry, run_key

EVERY_S = 2.0
"""Interval between checks for news."""

log = structlog.get_logger(__name__)


class CardKeeper:
    """Writes one run's card while this process leads the run."""

    def __init__(
        self,
        bus: Bus,
        started: RunStarted,
        holder: str,
        state: Callable[[], SearchState],
        *,
        every_s: float = EVERY_S,
        now: Callable[[], str] = utc_now,
    ) -> None:
        """Prepare the card of a run: `state` returns its search, `now` the current time."""
        self._bus = bus
        self._started = started
        self._holder = holder
        self._state = state
        self._every_s = every_s
        self._now = now
        self._key = run_key(started.run_id)
        self._revision = 0
        self._submitted_at = ""
        self._said: RunCard | None = None

    async def keep(self) -> None:
        """Write news until cancelled. While the bus is unreachable the card stays unchanged."""
        while True:
            try:
                await self._write(self._card(None))
            except BusError as error:
                log.warning("run card not written", run=self._started.run_id, error=str(error))
            await anyio.sleep(self._every_s)

    async def close(self, finished: RunFinished) -> None:
        """Write the run's end, unless an earlier leader has done so. Raises `BusError` if that fails."""
        found = await self._find()
        if found is None or found.state != "finished":
            await self._write(self._card(finished))

    async def _write(self, card: RunCard) -> None:
        if card == self._said:
            return
        while True:
            if not self._revision:
                await self._find()
            stamped = replace(card, submitted_at=self._submitted_at, updated_at=self._now())
            try:
                self._revision = await self._bus.put(self._key, encode_entry(stamped), revision=self._revision)
            except ConflictError:
                self._revision = 0  # an earlier leader's last entry, or ours after a lost answer
            else:
                self._said = card
                return

    async def _find(self) -> RunCard | None:
        """Find and continue the existing card, which says when the run was submitted."""
        entry = await self._bus.get(self._key)
        found = decode_card(entry.value) if entry else None
        self._revision = entry.revision if entry else 0
        self._submitted_at = found.submitted_at if found else self._now()
        return found

    def _card(self, finished: RunFinished | None) -> RunCard:
        started, state, incumbent = self._started, self._state(), self._state().incumbent
        return copied(
            RunCard,
            started,
            task_name=started.task.name,
            language=started.description.language,
            state="finished" if finished else "paused" if state.paused else "running",
            stopped_by=finished.stopped_by if finished else state.stopped_by or "",
            planner=self._holder,
            branches=state.settings.branches,
            rounds=state.rounds,
            max_rounds=state.settings.budget.max_rounds,
            credit=incumbent.credit if incumbent else None,
            usage=state.usage,
            cost_usd=spent_usd(state) if is_priced(state.lineup) else None,
            planner_calls=state.usage_planner.calls,
            planner_s=state.planner_s,
            tiers=further_tiers(started, state.lineup),
            speedup=incumbent.speedup if incumbent else None,
            submitted_at="",
            updated_at="",
        )
