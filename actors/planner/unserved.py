"""Jobs that wait while nobody is there who could do them: said to people, once and then now and then, with the reason.

The search waits for such jobs without a limit: an evaluator may be started at any time. Nothing here changes that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import anyio
import msgspec
import structlog

from actors.bus.base import Bus
from actors.planner.core.state import SearchState
from actors.planner.jobs import further_tiers, queues_of
from messages.base import BusError, Language, Role
from messages.events import JobKind, JobsUnserved, RunStarted
from messages.facts import BuildRequested, ConfirmationRequested, EvaluationRequested, InitialRequested, WriteRequested
from messages.presence import NODES, Presence, RunCard, WorkerState, decode_presence, takes_jobs_of
from messages.subjects import role_of
from messages.tasks import Target

EVERY_S = 5.0
"""How often it is looked who is there."""
PATIENCE_S = 20.0
"""How long jobs may wait before that is said: processes come and go, and prove themselves first."""
AGAIN_S = 300.0
"""How soon it is said again while nothing changes."""
_STATES: dict[WorkerState, str] = {"proving": "that proves itself first", "leaving": "that leaves", "unfit": "unfit"}
_KINDS: dict[Role, JobKind] = {"coder": "write", "builder": "build", "evaluator": "evaluate"}

log = structlog.get_logger(__name__)


class _Wait(msgspec.Struct):
    since: float
    said_at: float | None = None


class UnservedWatch:
    """Watches one run's jobs. Who leads a run asks it every now and then what is to be said."""

    def __init__(self, started: RunStarted, *, patience_s: float = PATIENCE_S, again_s: float = AGAIN_S) -> None:
        self._queues: dict[Role, str] = {role_of(queue): queue for queue in queues_of(started)}
        self._wanted = _card_of(started)
        self._patience_s = patience_s
        self._again_s = again_s
        self._waits: dict[Role, _Wait] = {}

    def look(self, state: SearchState, presences: Iterable[Presence], now: float) -> list[JobsUnserved]:
        """Return what is to be said now.

        Args:
            state: the search as it is.
            presences: who says that they are there.
            now: seconds on a clock that only goes forward.
        """
        there = [presence for presence in presences if presence.state != "left"]
        found = []
        for role, queue in self._queues.items():
            if not self._is_unserved(role, state, there):
                self._waits.pop(role, None)
                continue
            wait = self._waits.setdefault(role, _Wait(now))
            is_due = wait.said_at is None or now - wait.said_at >= self._again_s
            if now - wait.since >= self._patience_s and is_due:
                wait.said_at = now
                found.append(
                    JobsUnserved(
                        kind=_KINDS[role],
                        queue=queue,
                        role=role,
                        waiting_s=round(now - wait.since, 1),
                        detail=missing_words(role, self._wanted, there),
                    )
                )
        return found

    def _is_unserved(self, role: Role, state: SearchState, there: list[Presence]) -> bool:
        in_hand = {busy.job_id for presence in there for busy in presence.busy}
        if not waiting_jobs(role, state) - in_hand:
            return False
        return not any(
            presence.role == role and presence.state == "ready" and takes_jobs_of(presence, self._wanted)
            for presence in there
        )


async def report_unserved(
    bus: Bus,
    started: RunStarted,
    state: Callable[[], SearchState],
    say: Callable[[JobsUnserved], Awaitable[object]],
) -> None:
    """Watch a run's jobs until cancelled.

    Args:
        bus: where processes say that they are there.
        started: the run's first event.
        state: returns the search as it is now.
        say: publishes what is found.
    """
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


def waiting_jobs(role: Role, state: SearchState) -> set[str]:
    """Return the ids of the jobs that were sent to this role and have no answer."""
    wanted = {
        "coder": WriteRequested,
        "builder": BuildRequested,
        "evaluator": EvaluationRequested | InitialRequested | ConfirmationRequested,
    }
    return {job_id for job_id, job in state.jobs.items() if not job.withheld and isinstance(job.request, wanted[role])}


def missing_words(role: Role, card: RunCard, there: Iterable[Presence]) -> str:
    """Say who is missing, who is there instead and why that does not help, and what to start."""
    others = Counter(_why_not(presence, card) for presence in there if presence.role == role)
    seen = ", ".join(f"{count} {role}{'s' if count > 1 else ''} {why}" for why, count in sorted(others.items()))
    return f"needed is {_needed(role, card)}; at hand: {seen or 'nobody'}; start one with {_command(role, card)}"


def _why_not(presence: Presence, card: RunCard) -> str:
    if presence.state != "ready":
        detail = f": {presence.detail}" if presence.detail else ""
        return _STATES.get(presence.state, presence.state) + detail
    if presence.role == "coder":
        return f"of tier {presence.tier}"
    served = {_served_words(presence.role, each.language, each.target, card.target) for each in presence.served}
    return f"for {' and '.join(sorted(served))}" if served else "that serves nothing"


def _needed(role: Role, card: RunCard) -> str:
    if role == "coder":
        return f"tier {card.tier}"
    if role == "builder":
        return f"{card.language}, {card.target.arch}, {card.target.toolchain}"
    return f"{card.language} on {_device_words(card.target)}"


def _served_words(role: Role, language: Language, own: Target, wanted: Target) -> str:
    """Say what is served, in detail as far as that makes the difference."""
    if role == "builder":
        return f"{language}, {own.arch}, {own.toolchain}"
    return f"{language} on {_device_words(own) if own.device == wanted.device else own.device}"


def _device_words(target: Target) -> str:
    march = f"-march={target.march}" if target.march else ""
    return ", ".join(part for part in dict.fromkeys((target.device, target.toolchain, march)) if part)


def _command(role: Role, card: RunCard) -> str:
    tier = f" --tier {card.tier}" if role == "coder" and card.tier != "default" else ""
    return f"ksearch {role} --nats URL{tier}"


def _card_of(started: RunStarted) -> RunCard:
    """Return as much of the run's card as says who may do its jobs."""
    return RunCard(
        run_id=started.run_id,
        task_name=started.task.name,
        language=started.description.language,
        target=started.target,
        tier=started.tier,
        tiers=further_tiers(started, started.lineup),
        submitted_at="",
        updated_at="",
    )
