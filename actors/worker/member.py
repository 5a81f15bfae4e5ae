"""Presence of a process on a shared bus: its role, work, durations, and departure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from actors.bus.base import Bus, ConflictError
from actors.bus.waiting import Changes
from actors.clock import utc_now
from evaluators.process.device_lease import waits
from messages.base import BusError
from messages.events import CandidateWritten, Event
from messages.presence import Busy, Presence, Served, Tally, WorkerState, encode_entry, node_key

BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 600.0)
"""Bucket bounds: compilations take seconds, evaluations up to 1 min, answers up to 10."""


class Histogram:
    """Counts of durations by bucket."""

    def __init__(self, bounds_s: tuple[float, ...] = BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by bound in Prometheus form; the last bound is `+Inf`."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


EVERY_S = 3.0
"""Interval between updates."""
SOONEST_S = 1.0
"""Shortest time between two updates."""
TTL_S = 15
"""TTL of an entry."""
LEFT_TTL_S = 600
"""TTL of the last entry."""
PARTING_S = 2.0
"""Time limit for writing the last entry."""

log = structlog.get_logger(__name__)


class _Held(msgspec.Struct, frozen=True):
    job_id: str
    run_id: str
    since: str
    began: float


class Member:
    """Presence of one process. Workers report taken and finished jobs here and ask whether to take more.

    An unreachable bus is logged once and stops nothing.
    """

    def __init__(
        self,
        bus: Bus,
        presence: Presence,
        *,
        every_s: float = EVERY_S,
        ttl_s: int = TTL_S,
        now: Callable[[], str] = utc_now,
    ) -> None:
        """Begin in the state of `presence`; nothing is written before `keep`."""
        self._bus = bus
        self._presence = presence
        self._every_s = every_s
        self._ttl_s = ttl_s
        self._now = now
        self._state: WorkerState = presence.state
        self._detail = presence.detail
        self._hindrance = ""
        self._is_hindered = False
        self._held: list[_Held] = []
        self._tally = presence.tally
        self._began = anyio.current_time()
        self.job_s = Histogram()
        """Durations of its jobs, from being taken to their end."""
        self._revision = 0
        self._is_away = False
        self._changes = Changes()
        self._news = anyio.Event()

    @property
    def name(self) -> str:
        """The process's name."""
        return self._presence.name

    @property
    def is_ready(self) -> bool:
        """True if the process may take jobs."""
        return self._state == "ready"

    @property
    def is_leaving(self) -> bool:
        """True if the process will never take another job."""
        return self._state in ("leaving", "left")

    @property
    def presence(self) -> Presence:
        """The process's current entry."""
        now = anyio.current_time()
        in_hand_s = sum(now - held.began for held in self._held)
        hindered = self._state == "ready" and self._hindrance
        waiting = "; ".join(f"waits for {wait}" for wait in waits()) if self._state == "ready" else ""
        return msgspec.structs.replace(
            self._presence,
            state="unfit" if hindered and self._is_hindered else self._state,
            detail=self._hindrance if hindered else self._detail or waiting,
            busy=tuple(Busy(job_id=held.job_id, run_id=held.run_id, since=held.since) for held in self._held),
            tally=msgspec.structs.replace(
                self._tally,
                busy_s=round(self._tally.busy_s + in_hand_s, 3),
                uptime_s=round(now - self._began, 3),
            ),
            seen_at=self._now(),
        )

    async def changed(self) -> None:
        """Wait until the process becomes ready, stops taking jobs, or leaves."""
        await self._changes.next()

    def proving(self, detail: str) -> None:
        """Pause taking jobs while a known job is run first."""
        self._turn("proving", detail)

    def ready(self) -> None:
        """Take jobs from now on."""
        self._turn("ready", "")

    def unfit(self, reason: str) -> None:
        """Take no jobs until `ready` is called, because results would be unreliable."""
        log.warning("takes no jobs", reason=reason)
        self._turn("unfit", reason)

    def leave(self) -> None:
        """Take no more jobs. `serve` finishes those in hand, then returns."""
        self._turn("leaving", "")

    def serves(self, served: tuple[Served, ...]) -> None:
        """Set the jobs the process can do."""
        self._presence = msgspec.structs.replace(self._presence, served=served)
        self._news.set()

    def hinder(self, reason: str, *, wholly: bool = False) -> None:
        """Set the shown reason for avoiding jobs (empty: none); `wholly` means that no job at all is taken."""
        self._hindrance, self._is_hindered = reason, wholly
        self._news.set()

    def took(self, job_id: str, run_id: str, *, attempt: int) -> None:
        """Record a taken job."""
        self._held.append(_Held(job_id, run_id, self._now(), anyio.current_time()))
        if attempt > 1:
            self._count(redelivered=1)
        self._news.set()

    def finished(self, job_id: str, result: Event | None, *, failed: bool = False) -> None:
        """Record a finished job: the published `result`, and whether the infrastructure `failed`."""
        held = next(held for held in self._held if held.job_id == job_id)
        self._held.remove(held)
        done, took_s = 1 if result is not None and not failed else 0, anyio.current_time() - held.began
        self.job_s.observe(took_s)
        self._count(done=done, failed=int(failed), busy_s=took_s)
        if isinstance(result, CandidateWritten):
            self._count(
                model_calls=result.usage.calls,
                model_s=result.latency_s,
                prompt_tokens=result.usage.prompt_tokens,
                completion_tokens=result.usage.completion_tokens,
            )
        self._news.set()

    async def keep(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Refresh the entry until cancelled, then record that the process left. Calls `started` after one attempt."""
        try:
            while True:
                self._news = anyio.Event()
                await self._show(self._ttl_s)
                task_status.started()
                task_status = anyio.TASK_STATUS_IGNORED
                await anyio.sleep(SOONEST_S)
                with anyio.move_on_after(self._every_s - SOONEST_S):
                    await self._news.wait()
        finally:
            self._turn("left", self._detail)
            with anyio.move_on_after(PARTING_S, shield=True):
                await self._show(LEFT_TTL_S)

    async def _show(self, ttl_s: int) -> None:
        try:
            await self._put(encode_entry(self.presence), ttl_s)
        except BusError as error:
            if not self._is_away:
                log.warning("cannot show that this process is there; trying again", error=str(error))
            self._is_away = True
        else:
            if self._is_away:
                log.info("this process shows again that it is there")
            self._is_away = False

    async def _put(self, value: bytes, ttl_s: int) -> None:
        """Write the entry, also if its revision differs because it expired or a reply was lost."""
        key = node_key(self._presence.role, self._presence.name)
        try:
            self._revision = await self._bus.put(key, value, revision=self._revision, ttl_s=ttl_s)
        except ConflictError:
            entry = await self._bus.get(key)
            self._revision = 0 if entry is None else entry.revision
            self._revision = await self._bus.put(key, value, revision=self._revision, ttl_s=ttl_s)

    def _turn(self, state: WorkerState, detail: str) -> None:
        if self.is_leaving and state != "left":
            return
        self._state, self._detail = state, detail
        self._changes.note()
        self._news.set()

    def _count(self, **more: float) -> None:
        known = msgspec.structs.asdict(self._tally)
        self._tally = Tally(**(known | {name: known[name] + value for name, value in more.items()}))
