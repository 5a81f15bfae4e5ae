"""Metrics of a fleet and its runs: `ksearch nodes --json` prints them, `GET /metrics` serves them to Prometheus.

The endpoint needs `pip install ksearch-async[metrics]`. It has no authentication, so it listens on loopback by default;
it reports names, counts and times, never the content of jobs. Labels are few and bounded: roles, outcomes, devices, and
the current queues and runs.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import TaskStatus

from actors.bus.nats import NatsBus, QueueDepth
from actors.worker.member import Histogram
from ksearch_async.errors import refusal
from ksearch_async.fleet.status import Roster, read_roster
from ksearch_async.runs.run import taken
from messages.base import BusError, Role
from messages.presence import Presence, RunCard, WorkerState
from messages.subjects import run_of

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = "127.0.0.1"
_HIGHEST_PORT = 65535


class ModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """Model calls of a process since it started."""

    calls: int
    mean_s: float | None
    """Seconds to an answer, retries included; null: there was none."""
    prompt_tokens: int
    completion_tokens: int


class WorkerUse(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a process since it started."""

    name: str
    role: Role
    state: WorkerState
    device: str
    slots: int
    in_hand: int
    busy_ratio: float | None
    """Seconds of work / (slots x seconds since its start), 0 to 1; null: it has only just started."""
    done: int
    failed: int
    redelivered: int
    model: ModelUse | None
    """Null: it calls no model."""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluators on one kind of device of one host, together."""

    host: str
    device: str
    evaluators: int
    slots: int
    busy_ratio: float | None
    done: int


class RunUse(msgspec.Struct, frozen=True, kw_only=True):
    """Effort of a run so far."""

    run: str
    state: str
    rounds: int
    max_rounds: int
    credit: float | None
    model_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """Cost of its model calls; null: a price is not known."""
    planner_calls: int
    planner_mean_s: float | None
    """Mean seconds to an answer of the planner's model; null: there was none."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """All metrics."""

    workers: tuple[WorkerUse, ...]
    devices: tuple[DeviceUse, ...]
    queues: tuple[QueueDepth, ...]
    runs: tuple[RunUse, ...]


async def read_metrics(bus: NatsBus) -> Metrics:
    """Collect all nodes, all runs and their queues."""
    return await metrics_beside(await read_roster(bus), bus)


async def metrics_beside(roster: Roster, bus: NatsBus) -> Metrics:
    """Read the queues, and combine them with a roster."""
    presences, cards = [node.presence for node in roster.nodes], [run.card for run in roster.runs]
    return metrics_of(presences, cards, await bus.measure())


def metrics_of(
    presences: Iterable[Presence], cards: Iterable[RunCard] = (), queues: Iterable[QueueDepth] = ()
) -> Metrics:
    """Return the figures of processes that are present; those that have left are not counted."""
    there = [presence for presence in presences if presence.state != "left"]
    return Metrics(
        workers=tuple(worker_use(presence) for presence in sorted(there, key=lambda one: (one.role, one.name))),
        devices=_devices(there),
        queues=tuple(sorted(queues, key=lambda one: one.queue)),
        runs=tuple(_run_use(card) for card in sorted(cards, key=lambda one: one.run_id)),
    )


def worker_use(presence: Presence) -> WorkerUse:
    """Return the figures of one process."""
    return taken(
        WorkerUse,
        presence.tally,
        name=presence.name,
        role=presence.role,
        state=presence.state,
        device=presence.device,
        slots=presence.slots,
        in_hand=len(presence.busy),
        busy_ratio=_busy_ratio([presence]),
        model=_model_use(presence),
    )


def _model_use(presence: Presence) -> ModelUse | None:
    tally = presence.tally
    if presence.role not in ("coder", "planner"):
        return None
    mean_s = tally.model_s / tally.model_calls if tally.model_calls else None
    return taken(ModelUse, tally, calls=tally.model_calls, mean_s=mean_s)


def _place(presence: Presence) -> tuple[str, str]:
    return presence.host, presence.device


def _busy_ratio(presences: Sequence[Presence]) -> float | None:
    busy_s = sum(one.tally.busy_s for one in presences)
    able_s = sum(one.slots * one.tally.uptime_s for one in presences)
    return min(busy_s / able_s, 1.0) if able_s > 0 else None


def _run_use(card: RunCard) -> RunUse:
    return taken(
        RunUse,
        card,
        run=card.run_id,
        model_calls=card.usage.calls,
        prompt_tokens=card.usage.prompt_tokens,
        completion_tokens=card.usage.completion_tokens,
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


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A process's answer to a scrape."""

    own: WorkerUse | None = None
    job_s: Histogram | None = None
    """Durations of its jobs."""
    fleet: Metrics | None = None
    """Its metrics of the other processes; None if it may not read them."""


@asynccontextmanager
async def metrics_served(
    port: int | None, host: str, read: Callable[[], Awaitable[Reading]], *, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve metrics while the context is open, if there is a port."""
    if port is None:
        yield
        return
    with metrics_socket(port, host) as listener:
        async with anyio.create_task_group() as tasks:
            await tasks.start(serve_metrics, listener, read)
            say(metrics_url(listener))
            yield
            tasks.cancel_scope.cancel()


async def read_fleet(bus: NatsBus) -> Reading:
    """Return the metrics of all nodes, for a client with the right to read them."""
    return Reading(fleet=await read_metrics(bus))


def metrics_socket(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a socket for the endpoint; port 0: a free one.

    Raises:
        ConfigError: the optional dependency is not installed, or the port cannot be bound.
    """
    if find_spec("prometheus_client") is None:
        raise refusal("--metrics-port needs prometheus-client", "pip install 'ksearch-async[metrics]'")
    hint = "give another --metrics-port, or 0 for a free one"
    if not 0 <= port <= _HIGHEST_PORT:
        raise refusal(f"--metrics-port {port} is no port", hint)
    try:
        return socket.create_server((host, port), backlog=64)
    except OSError as error:
        raise refusal(f"cannot listen on {host}:{port} for metrics: {error.strerror}", hint) from error


def metrics_url(listener: socket.socket) -> str:
    """Return the endpoint's address."""
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}/metrics"


async def serve_metrics(
    listener: socket.socket,
    read: Callable[[], Awaitable[Reading]],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer scrapes until cancelled, with 503 while the bus cannot be reached."""
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - an extra
    from starlette.applications import Starlette  # noqa: PLC0415 - only where it is served
    from starlette.responses import Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    from actors.llm.served.server import serve_app  # noqa: PLC0415

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            reading = await read()
        except BusError as error:
            return Response(f"the bus cannot be read: {error}\n", status_code=503, media_type="text/plain")
        return Response(encode(_Collected(families_of(reading))), media_type=content_type)

    await serve_app(Starlette(routes=[Route("/metrics", metrics)]), listener, task_status=task_status)


class _Collected:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def families_of(reading: Reading) -> Iterator[Metric]:
    """Yield a reading's metric families."""
    if reading.own is not None:
        yield from _own(reading.own, reading.job_s)
    if reading.fleet is not None:
        yield _workers(reading.fleet.workers)
        yield _device_families(reading.fleet.devices)
        yield from _queues(reading.fleet.queues)
        yield from _runs(reading.fleet.runs)


def _family(
    kind: str, name: str, help_text: str, labels: Sequence[str], *rows: tuple[Sequence[str], *tuple[Any, ...]]
) -> Metric:
    """Return a family of metrics: `Counter`, `Gauge`, `Histogram` or `Summary`, and its rows of labels and values."""
    from prometheus_client import core  # noqa: PLC0415 - an extra

    family: Metric = getattr(core, f"{kind}MetricFamily")(name, help_text, labels=labels)
    for row in rows:
        family.add_metric(*row)  # type: ignore[attr-defined]
    return family


def _own(own: WorkerUse, job_s: Histogram | None) -> Iterator[Metric]:
    role, outcomes = [own.role], (("done", own.done), ("failed", own.failed))
    jobs = [([own.role, outcome], count) for outcome, count in outcomes]
    yield _family("Counter", "ksearch_jobs", "Jobs seen to, by how that ended.", ["role", "outcome"], *jobs)
    again = (role, own.redelivered)
    yield _family("Counter", "ksearch_jobs_redelivered", "Jobs taken that another worker had before.", ["role"], again)
    yield _family("Gauge", "ksearch_jobs_in_hand", "Jobs being worked on.", ["role"], (role, own.in_hand))
    yield _family("Gauge", "ksearch_slots", "Jobs that may be worked on at once.", ["role"], (role, own.slots))
    if job_s is not None:
        seconds = (role, job_s.buckets(), job_s.sum)
        yield _family("Histogram", "ksearch_job_seconds", "Seconds from taking a job to its end.", ["role"], seconds)
    if own.device and own.busy_ratio is not None:
        told, busy = "Seconds of work per slot and second since the start.", ([own.device], own.busy_ratio)
        yield _family("Gauge", "ksearch_device_busy_ratio", told, ["device"], busy)
    if (model := own.model) is not None:
        took = (role, model.calls, (model.mean_s or 0.0) * model.calls)
        yield _family("Summary", "ksearch_model_seconds", "Seconds to a model's answer.", ["role"], took)
        kinds = (("prompt", model.prompt_tokens), ("completion", model.completion_tokens))
        tokens = [([own.role, kind], count) for kind, count in kinds]
        yield _family("Counter", "ksearch_model_tokens", "Tokens asked and answered.", ["role", "kind"], *tokens)


def _workers(workers: Iterable[WorkerUse]) -> Metric:
    counts = Counter((worker.role, worker.state) for worker in workers)
    return _family("Gauge", "ksearch_workers", "Processes that are there.", ["role", "state"], *sorted(counts.items()))


def _queues(queues: Iterable[QueueDepth]) -> Iterator[Metric]:
    told: tuple[tuple[str, str, Callable[[QueueDepth], float]], ...] = (
        ("ksearch_queue_depth", "Jobs that wait for a worker.", lambda queue: queue.waiting),
        ("ksearch_queue_in_hand", "Jobs that a worker has in hand.", lambda queue: queue.in_hand),
        ("ksearch_queue_oldest_seconds", "Age of the oldest job.", lambda queue: queue.oldest_s),
        ("ksearch_queue_redelivered", "Jobs in hand that were given out before.", lambda queue: queue.redelivered),
        ("ksearch_queue_dead_letters", "Jobs of the run that no worker could do.", lambda queue: queue.dead),
    )
    named = [([_without_run(queue.queue), queue.run_id], queue) for queue in queues]
    for name, help_text, value_of in told:
        rows = [(labels, value_of(queue)) for labels, queue in named]
        yield _family("Gauge", name, help_text, ["queue", "run"], *rows)


def _without_run(queue: str) -> str:
    """Return kind, class and language of a queue: `evaluate.sm-90.cpp`."""
    return queue.removeprefix("ks.job.").removesuffix(f".{run_of(queue)}")


def _runs(runs: Sequence[RunUse]) -> Iterator[Metric]:
    rounds = [([run.run], run.rounds) for run in runs]
    yield _family("Gauge", "ksearch_run_rounds", "Evaluations that a run has spent.", ["run"], *rounds)
    bests = [([run.run], run.credit) for run in runs if run.credit is not None]
    yield _family("Gauge", "ksearch_run_credit", "Credit of the best candidate.", ["run"], *bests)
    calls = [([run.run], run.model_calls) for run in runs]
    yield _family("Counter", "ksearch_run_model_calls", "Model calls of a run.", ["run"], *calls)
    tokens = [
        ([run.run, kind], count)
        for run in runs
        for kind, count in (("prompt", run.prompt_tokens), ("completion", run.completion_tokens))
    ]
    yield _family("Counter", "ksearch_run_model_tokens", "Tokens of a run.", ["run", "kind"], *tokens)
    dollars = [([run.run], run.cost_usd) for run in runs if run.cost_usd is not None]
    yield _family("Counter", "ksearch_run_cost_usd", "US dollars that a run's models cost.", ["run"], *dollars)
    took = [([run.run], run.planner_calls, (run.planner_mean_s or 0.0) * run.planner_calls) for run in runs]
    yield _family("Summary", "ksearch_run_planner_seconds", "Seconds to a planner's answer.", ["run"], *took)


def _device_families(devices: Iterable[DeviceUse]) -> Metric:
    busy = [([one.host, one.device], one.busy_ratio) for one in devices if one.busy_ratio is not None]
    told = "Seconds of work per slot and second, by device."
    return _family("Gauge", "ksearch_fleet_busy_ratio", told, ["host", "device"], *busy)
