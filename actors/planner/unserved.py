"""Reports waiting jobs that no worker can do, with the reason: once, and again at intervals.

The search waits for them without limit, since an evaluator may be started at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import anyio
import msgspec
import structlog

from actors.bus.base import Bus
from actors.planner.core.state import SearchState
from actors.planner.jobs import KINDS, further_tiers, queues_of
from messages.base import BusError, Language, Role
from messages.events import JobsUnserved, RunStarted
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    InitialRequested,
    WriteRequested,
)
from messages.presence import NODES, Presence, RunCard, WorkerState, decode_presence, takes_jobs_of
from messages.subjects import role_of
from messages.tasks import Target

EVERY_S = 5.0
PATIENCE_S = 20.0
"""Waiting time before a report: processes come and go, and run a self-test first."""
AGAIN_S = 300.0
"""Pause before the same report is repeated."""
_STATES: dict[WorkerState, str] = {"proving": "that proves itself first", "leaving": "that leaves", "unfit": "unfit"}

log = structlog.get_logger(__name__)


class _Wait(msgspec.Struct):
    since: float
    said_at: float | None = None


class UnservedWatch:
    """Watches one run's jobs."""

    def __init__(self, started: RunStarted, *, patience_s: float = PATIENCE_S, again_s: float = AGAIN_S) -> None:
        self._queues: dict[Role, str] = {role_of(queue): queue for queue in queues_of(started)}
        # The parts of the run's card that determine who may do its jobs.
        self._wanted = RunCard(
            run_id=started.run_id,
            task_name=started.task.name,
            language=started.description.language,
            target=started.target,
            tier=started.tier,
            tiers=further_tiers(started, started.lineup),
            submitted_at="",
            updated_at="",
        )
        self._patience_s = patience_s
        self._again_s = again_s
        self._waits: dict[Role, _Wait] = {}

    def look(self, state: SearchState, presences: Iterable[Presence], now: float) -> list[JobsUnserved]:
        """Return the reports due at `now` (monotonic clock), given the processes that announced themselves."""
        there = [presence for presence in presences if presence.state != "left"]
        in_hand = {busy.job_id for presence in there for busy in presence.busy}
        found = []
        for role, queue in self._queues.items():
            served = any(
                presence.role == role and presence.state == "ready" and takes_jobs_of(presence, self._wanted)
                for presence in there
            )
            if served or not _waiting_jobs(role, state) - in_hand:
                self._waits.pop(role, None)
                continue
            wait = self._waits.setdefault(role, _Wait(now))
            is_due = wait.said_at is None or now - wait.said_at >= self._again_s
            if now - wait.since >= self._patience_s and is_due:
                wait.said_at = now
                waiting_s, detail = round(now - wait.since, 1), _missing_words(role, self._wanted, there)
                found.append(JobsUnserved(kind=KINDS[role], queue=queue, role=role, waiting_s=waiting_s, detail=detail))
        return found


async def report_unserved(
    bus: Bus,
    started: RunStarted,
    state: Callable[[], SearchState],
    say: Callable[[JobsUnserved], Awaitable[object]],
) -> None:
    """Watch a run's jobs until cancelled; `state` returns the search, `say` publishes a report."""
    watch = UnservedWatch(started)
    while True:
        await anyio.sleep(EVERY_S)
        try:
            entries = await bus.entries(NODES)
        except BusError as error:
            log.warning("cannot see who is there", run=started.run_id, error=str(error))
            continue
        presences = [found for entry in entries.values() if (found := decode_presence(entry.value)) is not None]
        for unserved in watch.look(state(), presences, anyio.current_time()):
            log.info("jobs wait for a worker", run=started.run_id, role=unserved.role)
            await say(unserved)


def _waiting_jobs(role: Role, state: SearchState) -> set[str]:
    wanted = {
        "coder": WriteRequested,
        "builder": BuildRequested,
        "evaluator": EvaluationRequested | InitialRequested | ConfirmationRequested,
    }
    return {job_id for job_id, job in state.jobs.items() if not job.withheld and isinstance(job.request, wanted[role])}


def _missing_words(role: Role, card: RunCard, there: Iterable[Presence]) -> str:
    """Describe the needed worker, the present ones and why they do not qualify, and what to start."""
    others = Counter(_why_not(presence, card) for presence in there if presence.role == role)
    seen = ", ".join(f"{count} {role}{'s' if count > 1 else ''} {why}" for why, count in sorted(others.items()))
    needed = f"tier {card.tier}" if role == "coder" else _served_words(role, card.language, card.target, card.target)
    tier = f" --tier {card.tier}" if role == "coder" and card.tier != "default" else ""
    return f"needed is {needed}; at hand: {seen or 'nobody'}; start one with ksearch {role} --nats URL{tier}"


def _why_not(presence: Presence, card: RunCard) -> str:
    if presence.state != "ready":
        detail = f": {presence.detail}" if presence.detail else ""
        return _STATES.get(presence.state, presence.state) + detail
    if presence.role == "coder":
        return f"of tier {presence.tier}"
    served = {_served_words(presence.role, each.language, each.target, card.target) for each in presence.served}
    return f"for {' and '.join(sorted(served))}" if served else "that serves nothing"


def _served_words(role: Role, language: Language, own: Target, wanted: Target) -> str:
    """Describe what is served, in detail only where the details differ."""
    if role == "builder":
        return f"{language}, {own.arch}, {own.toolchain}"
    return f"{language} on {_device_words(own) if own.device == wanted.device else own.device}"


def _device_words(target: Target) -> str:
    march = f"-march={target.march}" if target.march else ""
    return ", ".join(part for part in dict.fromkeys((target.device, target.toolchain, march)) if part)
