"""The Prometheus endpoint of a process: `GET /metrics`. Needs the extra `metrics`."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskStatus

from actors.bus.nats import NatsBus, QueueDepth
from actors.llm.served.server import serve_app
from actors.worker.member import Histogram
from ksearch_async.errors import refusal
from messages.base import BusError
from messages.subjects import run_of

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.requests import Request
    from starlette.responses import Response
from ksearch_async.follow.metrics import (
    DeviceUse,
    Metrics,
    RunUse,
    WorkerUse,
    read_metrics,
)

LOOPBACK = "127.0.0.1"
_HIGHEST_PORT = 65535


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has to tell when it is asked."""

    own: WorkerUse | None = None
    job_s: Histogram | None = None
    """How long its jobs took."""
    fleet: Metrics | None = None
    """What it sees of the others; null in processes that may not look."""


@asynccontextmanager
async def metrics_served(
    port: int | None, host: str, read: Callable[[], Awaitable[Reading]], *, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve metrics while inside, if there is a port.

    Args:
        port: null: nothing is served. 0: a free one.
        host: address to listen at.
        read: called at each scrape.
        say: told the endpoint's address.

    Raises:
        ConfigError: the extra is not installed, or nobody can listen there.
    """
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
    """Return what one who may look sees of everybody.

    Raises:
        messages.base.BusError: the bus cannot be read.
    """
    return Reading(fleet=await read_metrics(bus))


def metrics_socket(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a socket for the endpoint; port 0: a free one.

    Raises:
        ConfigError: the extra is not installed, or nobody can listen there.
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
    """Answer scrapes until cancelled. A reading for which the bus is away is answered with 503.

    Args:
        listener: from `metrics_socket`.
        read: called at each scrape.
        task_status: told when scrapes are answered.
    """
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - an extra
    from starlette.applications import Starlette  # noqa: PLC0415 - only where it is served
    from starlette.responses import Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            reading = await read()
        except BusError as error:
            return Response(f"the bus cannot be read: {error}\n", status_code=503, media_type="text/plain")
        return Response(encode(_Collected(families_of(reading))), media_type=content_type)

    await serve_app(Starlette(routes=[Route("/metrics", metrics)]), listener, task_status=task_status)


class _Collected:
    """A reading in the form in which prometheus-client encodes a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def families_of(reading: Reading) -> Iterator[Metric]:
    """Yield a reading's metric families."""
    if reading.own is not None:
        yield from _own(reading.own, reading.job_s)
    if reading.fleet is not None:
        yield from _workers(reading.fleet.workers)
        yield from _device_families(reading.fleet.devices)
        yield from _queues(reading.fleet.queues)
        yield from _runs(reading.fleet.runs)


def _own(own: WorkerUse, job_s: Histogram | None) -> Iterator[Metric]:
    from prometheus_client.core import (  # noqa: PLC0415 - an extra
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        SummaryMetricFamily,
    )

    jobs = CounterMetricFamily("ksearch_jobs", "Jobs seen to, by how that ended.", labels=["role", "outcome"])
    jobs.add_metric([own.role, "done"], own.done)
    jobs.add_metric([own.role, "failed"], own.failed)
    yield jobs
    again = CounterMetricFamily(
        "ksearch_jobs_redelivered", "Jobs taken that another worker had before.", labels=["role"]
    )
    again.add_metric([own.role], own.redelivered)
    yield again
    for name, help_text, value in (
        ("ksearch_jobs_in_hand", "Jobs being worked on.", own.in_hand),
        ("ksearch_slots", "Jobs that may be worked on at once.", own.slots),
    ):
        gauge = GaugeMetricFamily(name, help_text, labels=["role"])
        gauge.add_metric([own.role], value)
        yield gauge
    if job_s is not None:
        seconds = HistogramMetricFamily("ksearch_job_seconds", "Seconds from taking a job to its end.", labels=["role"])
        seconds.add_metric([own.role], buckets=job_s.buckets(), sum_value=job_s.sum)
        yield seconds
    if own.device and own.busy_ratio is not None:
        busy = GaugeMetricFamily(
            "ksearch_device_busy_ratio", "Seconds of work per slot and second since the start.", labels=["device"]
        )
        busy.add_metric([own.device], own.busy_ratio)
        yield busy
    if own.model is not None:
        model = SummaryMetricFamily("ksearch_model_seconds", "Seconds to a model's answer.", labels=["role"])
        model.add_metric([own.role], count_value=own.model.calls, sum_value=(own.model.mean_s or 0.0) * own.model.calls)
        yield model
        tokens = CounterMetricFamily("ksearch_model_tokens", "Tokens asked and answered.", labels=["role", "kind"])
        tokens.add_metric([own.role, "prompt"], own.model.prompt_tokens)
        tokens.add_metric([own.role, "completion"], own.model.completion_tokens)
        yield tokens


def _workers(workers: Iterable[WorkerUse]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    counts: dict[tuple[str, str], int] = {}
    for worker in workers:
        counts[worker.role, worker.state] = counts.get((worker.role, worker.state), 0) + 1
    there = GaugeMetricFamily("ksearch_workers", "Processes that are there.", labels=["role", "state"])
    for labels, count in sorted(counts.items()):
        there.add_metric(labels, count)
    yield there


def _queues(queues: Iterable[QueueDepth]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    told: tuple[tuple[str, str, Callable[[QueueDepth], float]], ...] = (
        ("ksearch_queue_depth", "Jobs that wait for a worker.", lambda queue: queue.waiting),
        ("ksearch_queue_in_hand", "Jobs that a worker has in hand.", lambda queue: queue.in_hand),
        ("ksearch_queue_oldest_seconds", "Age of the oldest job.", lambda queue: queue.oldest_s),
        ("ksearch_queue_redelivered", "Jobs in hand that were given out before.", lambda queue: queue.redelivered),
        ("ksearch_queue_dead_letters", "Jobs of the run that no worker could do.", lambda queue: queue.dead),
    )
    rows = list(queues)
    for name, help_text, value_of in told:
        family = GaugeMetricFamily(name, help_text, labels=["queue", "run"])
        for queue in rows:
            family.add_metric([_without_run(queue.queue), queue.run_id], value_of(queue))
        yield family


def _without_run(queue: str) -> str:
    """Return kind, class and language of a queue: `evaluate.sm-90.cpp`."""
    return queue.removeprefix("ks.job.").removesuffix(f".{run_of(queue)}")


def _runs(runs: Iterable[RunUse]) -> Iterator[Metric]:
    from prometheus_client.core import (  # noqa: PLC0415 - an extra
        CounterMetricFamily,
        GaugeMetricFamily,
        SummaryMetricFamily,
    )

    rounds = GaugeMetricFamily("ksearch_run_rounds", "Evaluations that a run has spent.", labels=["run"])
    credit = GaugeMetricFamily("ksearch_run_credit", "Credit of the best candidate.", labels=["run"])
    calls = CounterMetricFamily("ksearch_run_model_calls", "Model calls of a run.", labels=["run"])
    tokens = CounterMetricFamily("ksearch_run_model_tokens", "Tokens of a run.", labels=["run", "kind"])
    dollars = CounterMetricFamily("ksearch_run_cost_usd", "US dollars that a run's models cost.", labels=["run"])
    planning = SummaryMetricFamily("ksearch_run_planner_seconds", "Seconds to a planner's answer.", labels=["run"])
    for run in runs:
        rounds.add_metric([run.run], run.rounds)
        calls.add_metric([run.run], run.model_calls)
        tokens.add_metric([run.run, "prompt"], run.prompt_tokens)
        tokens.add_metric([run.run, "completion"], run.completion_tokens)
        planning.add_metric(
            [run.run], count_value=run.planner_calls, sum_value=(run.planner_mean_s or 0.0) * run.planner_calls
        )
        if run.credit is not None:
            credit.add_metric([run.run], run.credit)
        if run.cost_usd is not None:
            dollars.add_metric([run.run], run.cost_usd)
    yield from (rounds, credit, calls, tokens, dollars, planning)


def _device_families(devices: Iterable[DeviceUse]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    busy = GaugeMetricFamily(
        "ksearch_fleet_busy_ratio", "Seconds of work per slot and second, by device.", labels=["host", "device"]
    )
    for device in devices:
        if device.busy_ratio is not None:
            busy.add_metric([device.host, device.device], device.busy_ratio)
    yield busy
