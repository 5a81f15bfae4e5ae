"""Metrics of a fleet and its runs, and the Prometheus endpoint that serves them.

`ksearch nodes --json` prints these, `metrics_endpoint` serves them.

It has no authentication, and tells names, counts and times, never what jobs hold: loopback unless told otherwise.
Labels are few and their values bounded: roles, outcomes, devices, and the queues and runs that are there now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from actors.bus.nats import NatsBus, QueueDepth
from ksearch_async.fleet.status import Roster, read_roster
from messages.base import Role
from messages.presence import Presence, RunCard, WorkerState


class ModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a process asked of models since it started."""

    calls: int
    mean_s: float | None
    """Seconds to an answer, retries included; null: there was none."""
    prompt_tokens: int
    completion_tokens: int


class WorkerUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has done since it started."""

    name: str
    role: Role
    state: WorkerState
    device: str
    slots: int
    in_hand: int
    busy_ratio: float | None
    """Seconds of work / (slots x seconds that it is there), 0 to 1; null: it has only just started."""
    done: int
    failed: int
    redelivered: int
    model: ModelUse | None
    """Null: it asks none."""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluators on one kind of device of one host, together."""

    host: str
    device: str
    evaluators: int
    slots: int
    busy_ratio: float | None
    done: int


class RunUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has cost so far."""

    run: str
    state: str
    rounds: int
    max_rounds: int
    credit: float | None
    model_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """Of its model calls; null: a price is not known."""
    planner_calls: int
    planner_mean_s: float | None
    """Seconds to an answer of the planner's model; null: there was none."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    workers: tuple[WorkerUse, ...]
    devices: tuple[DeviceUse, ...]
    queues: tuple[QueueDepth, ...]
    runs: tuple[RunUse, ...]


async def read_metrics(bus: NatsBus) -> Metrics:
    """Look at everybody who is there, at all runs and at their queues.

    Raises:
        messages.base.BusError: the bus cannot be read.
    """
    return await metrics_beside(await read_roster(bus), bus)


async def metrics_beside(roster: Roster, bus: NatsBus) -> Metrics:
    """Look at the queues, beside a roster that was read just now.

    Raises:
        messages.base.BusError: the bus cannot be read.
    """
    presences, cards = [node.presence for node in roster.nodes], [run.card for run in roster.runs]
    return metrics_of(presences, cards, await bus.measure())


def metrics_of(
    presences: Iterable[Presence], cards: Iterable[RunCard] = (), queues: Iterable[QueueDepth] = ()
) -> Metrics:
    """Return the figures of those who are there; who has left counts no more."""
    there = [presence for presence in presences if presence.state != "left"]
    return Metrics(
        workers=tuple(worker_use(presence) for presence in sorted(there, key=lambda one: (one.role, one.name))),
        devices=_devices(there),
        queues=tuple(sorted(queues, key=lambda one: one.queue)),
        runs=tuple(_run_use(card) for card in sorted(cards, key=lambda one: one.run_id)),
    )


def worker_use(presence: Presence) -> WorkerUse:
    """Return the figures of one process."""
    tally = presence.tally
    return WorkerUse(
        name=presence.name,
        role=presence.role,
        state=presence.state,
        device=presence.device,
        slots=presence.slots,
        in_hand=len(presence.busy),
        busy_ratio=_busy_ratio([presence]),
        done=tally.done,
        failed=tally.failed,
        redelivered=tally.redelivered,
        model=_model_use(presence),
    )


def _model_use(presence: Presence) -> ModelUse | None:
    tally = presence.tally
    if presence.role not in ("coder", "planner"):
        return None
    return ModelUse(
        calls=tally.model_calls,
        mean_s=tally.model_s / tally.model_calls if tally.model_calls else None,
        prompt_tokens=tally.prompt_tokens,
        completion_tokens=tally.completion_tokens,
    )


def _place(presence: Presence) -> tuple[str, str]:
    return presence.host, presence.device


def _busy_ratio(presences: Sequence[Presence]) -> float | None:
    busy_s = sum(one.tally.busy_s for one in presences)
    able_s = sum(one.slots * one.tally.uptime_s for one in presences)
    return min(busy_s / able_s, 1.0) if able_s > 0 else None


def _run_use(card: RunCard) -> RunUse:
    return RunUse(
        run=card.run_id,
        state=card.state,
        rounds=card.rounds,
        max_rounds=card.max_rounds,
        credit=card.credit,
        model_calls=card.usage.calls,
        prompt_tokens=card.usage.prompt_tokens,
        completion_tokens=card.usage.completion_tokens,
        cost_usd=card.cost_usd,
        planner_calls=card.planner_calls,
        planner_mean_s=card.planner_s / card.planner_calls if card.planner_calls else None,
    )


def _devices(presences: Iterable[Presence]) -> tuple[DeviceUse, ...]:
    evaluators = sorted((one for one in presences if one.role == "evaluator"), key=_place)
    return tuple(
        DeviceUse(
            host=host,
            device=device,
            evaluators=len(group),
            slots=sum(one.slots for one in group),
            busy_ratio=_busy_ratio(group),
            done=sum(one.tally.done for one in group),
        )
        for (host, device), members in groupby(evaluators, key=_place)
        for group in [list(members)]
    )
