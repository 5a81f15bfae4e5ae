"""Figures of a fleet, and the endpoint at which Prometheus reads them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors.bus.nats import QueueDepth
from actors.worker.member import Histogram
from ksearch_async.follow import metrics
from ksearch_async.follow.metrics import Metrics, Reading, metrics_of, metrics_socket, metrics_url, serve_metrics
from messages.base import BusError, ConfigError, Role, Usage
from messages.presence import Busy, Presence, RunCard, Tally, WorkerState
from messages.tasks import Target

AT = "2026-01-31T12:00:00+00:00"
QUEUE = QueueDepth(
    queue="ks.job.evaluate.sm-90.cpp.r1", run_id="r1", waiting=7, in_hand=2, oldest_s=12.5, redelivered=1, dead=3
)


def presence(role: Role, name: str, *, tally: Tally, state: WorkerState = "ready", device: str = "") -> Presence:
    return Presence(
        name=name,
        role=role,
        host="h1",
        pid=1,
        version="0.1.0",
        state=state,
        device=device,
        slots=2,
        tally=tally,
        busy=(Busy(job_id="r1-e4", run_id="r1", since=AT),),
        started_at=AT,
        seen_at=AT,
    )


def card(run_id: str, target: Target) -> RunCard:
    return RunCard(
        run_id=run_id,
        task_name="rmsnorm",
        language="cpp",
        target=target,
        rounds=3,
        max_rounds=40,
        credit=1.5,
        usage=Usage(calls=9, prompt_tokens=900, completion_tokens=90),
        cost_usd=0.25,
        planner_calls=2,
        planner_s=9.0,
        submitted_at=AT,
        updated_at=AT,
    )


EVALUATOR = presence(
    "evaluator", "evaluator-a", device="NVIDIA H200", tally=Tally(done=5, failed=1, busy_s=30, uptime_s=60)
)
CODER = presence(
    "coder",
    "coder-a",
    tally=Tally(done=4, uptime_s=60, busy_s=24, model_calls=4, model_s=24.0, prompt_tokens=800, completion_tokens=80),
)


def fleet() -> Metrics:
    idle = presence("evaluator", "evaluator-b", device="NVIDIA H200", tally=Tally(uptime_s=30))
    gone = presence("evaluator", "evaluator-c", device="NVIDIA H200", state="left", tally=Tally(done=9, uptime_s=9))
    target = Target(device="NVIDIA H200", arch="sm-90", toolchain="nvcc 13", march="")
    return metrics_of([idle, EVALUATOR, gone, CODER], [card("r1", target)], [QUEUE])


def test_a_devices_utilisation_is_work_per_slot_and_second_of_all_who_are_on_it() -> None:
    (device,) = fleet().devices
    assert (device.evaluators, device.slots, device.done) == (2, 4, 5)
    assert device.busy_ratio == pytest.approx(30 / (2 * 60 + 2 * 30))


def test_who_has_left_is_not_counted_and_who_just_came_has_no_ratio() -> None:
    new = presence("builder", "builder-a", tally=Tally())
    workers = metrics_of([new, presence("builder", "builder-b", state="left", tally=Tally(uptime_s=9))]).workers
    assert [(worker.name, worker.busy_ratio) for worker in workers] == [("builder-a", None)]


def test_latency_and_spend_are_told_per_coder_and_per_run() -> None:
    told = fleet()
    coder, *_ = told.workers
    assert coder.model is not None
    assert (coder.model.calls, coder.model.mean_s, coder.model.prompt_tokens) == (4, 6.0, 800)
    assert all(worker.model is None for worker in told.workers if worker.role == "evaluator")
    (run,) = told.runs
    assert (run.model_calls, run.prompt_tokens, run.completion_tokens) == (9, 900, 90)


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(seconds)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.sum == 12.0


@asynccontextmanager
async def endpoint(*readings: Reading | BusError) -> AsyncIterator[str]:
    """Serve these readings, one per scrape."""
    left = list(readings)

    async def read() -> Reading:
        await anyio.lowlevel.checkpoint()
        reading = left.pop(0)
        if isinstance(reading, BusError):
            raise reading
        return reading

    listener = metrics_socket(0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve_metrics, listener, read)
        yield metrics_url(listener)
        tasks.cancel_scope.cancel()


async def scraped(url: str) -> dict[str, dict[str, float]]:
    """Return name → labels → value, as Prometheus would read them."""
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(url)
    assert response.status_code == 200, response.text
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = " ".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


@pytest.mark.anyio
async def test_a_scrape_tells_of_the_process_and_of_the_fleet() -> None:
    histogram = Histogram()
    histogram.observe(3.0)
    own = metrics_of([EVALUATOR]).workers[0]
    async with endpoint(Reading(own=own, job_s=histogram, fleet=fleet())) as url:
        told = await scraped(url)
    assert told["ksearch_jobs_total"] == {"outcome=done role=evaluator": 5.0, "outcome=failed role=evaluator": 1.0}
    assert told["ksearch_device_busy_ratio"] == {"device=NVIDIA H200": 0.25}
    assert told["ksearch_job_seconds_bucket"]["le=5.0 role=evaluator"] == 1.0
    assert told["ksearch_job_seconds_count"] == {"role=evaluator": 1.0}
    assert told["ksearch_queue_depth"] == {"queue=evaluate.sm-90.cpp run=r1": 7.0}
    assert told["ksearch_queue_oldest_seconds"] == {"queue=evaluate.sm-90.cpp run=r1": 12.5}
    assert told["ksearch_queue_dead_letters"] == {"queue=evaluate.sm-90.cpp run=r1": 3.0}
    assert told["ksearch_workers"] == {"role=coder state=ready": 1.0, "role=evaluator state=ready": 2.0}
    assert told["ksearch_run_model_tokens_total"] == {"kind=prompt run=r1": 900.0, "kind=completion run=r1": 90.0}
    assert told["ksearch_run_cost_usd_total"] == {"run=r1": 0.25}
    assert told["ksearch_run_planner_seconds_sum"] == {"run=r1": 9.0}
    assert told["ksearch_run_planner_seconds_count"] == {"run=r1": 2.0}
    assert "ksearch_model_seconds_sum" not in told


@pytest.mark.anyio
async def test_a_coders_scrape_tells_how_long_its_model_took() -> None:
    async with endpoint(Reading(own=metrics_of([CODER]).workers[0])) as url:
        told = await scraped(url)
    assert told["ksearch_model_seconds_sum"] == {"role=coder": 24.0}
    assert told["ksearch_model_seconds_count"] == {"role=coder": 4.0}
    assert told["ksearch_model_tokens_total"] == {"kind=prompt role=coder": 800.0, "kind=completion role=coder": 80.0}


@pytest.mark.anyio
async def test_a_scrape_while_the_bus_is_away_fails_and_the_next_is_answered() -> None:
    async with endpoint(BusError("no server"), Reading()) as url, httpx.AsyncClient(trust_env=False) as client:
        refused = await client.get(url)
        assert (refused.status_code, refused.text) == (503, "the bus cannot be read: no server\n")
        assert (await client.get(url)).status_code == 200


def test_a_port_that_is_taken_is_refused_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port} for metrics"):
            metrics_socket(port)
    with pytest.raises(ConfigError, match="70000 is no port"):
        metrics_socket(70000)


def test_without_the_extra_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None if name == "prometheus_client" else find_spec(name))
    with pytest.raises(ConfigError) as refused:
        metrics_socket(0)
    assert refused.value.__notes__ == ["pip install 'ksearch-async[metrics]'"]
