"""A cluster that loses the server on which everything depends. `scripts/bench_cluster` does it to a whole run."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from actors.bus.base import QueueSpec
from actors.bus.nats import NatsBus, NatsOptions, names, open_nats
from actors.bus.nats.local_server import ServerSettings, serve_nats
from messages.base import BusError
from messages.subjects import evaluate_jobs
from tests.cluster.stage import serve_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "r1"
QUEUE = evaluate_jobs(RUN, "cpp", "x86")
JOBS, TWICE = 60, 20
PATIENCE_S = 60.0


async def decide(planner: NatsBus, lost: anyio.Event, go_on: anyio.Event) -> None:
    """Publish decisions, each on the condition that it follows the last one, and a job with each."""
    last = 0
    for number in range(JOBS):
        if number == JOBS // 3:
            lost.set()
            await go_on.wait()
        last = await planner.publish(RUN, b"decision", msg_id=f"d{number}", expected_last_decision=last)
        assert await planner.submit(QUEUE, b"job", msg_id=f"j{number}")


async def evaluate(bus: NatsBus) -> None:
    while True:
        job = await bus.pull(QUEUE)
        if job.attempt == 1 or await bus.find(RUN, f"{job.msg_id}.r") is None:
            await bus.publish(RUN, b"result", msg_id=f"{job.msg_id}.r", role="evaluator")
        await job.ack()


async def read_all(bus: NatsBus) -> tuple[list[str], list[str]]:
    decisions, results = list[str](), list[str]()
    events = bus.events(RUN)
    async for posted in events:
        (decisions if posted.role == "planner" else results).append(posted.msg_id)
        if len(decisions) == len(results) == JOBS:
            break
    await events.aclose()
    return decisions, results


async def test_losing_the_leader_of_everything_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with (
        serve_cluster(tmp_path) as cluster,
        cluster.bus("planner") as planner,
        cluster.bus("evaluator") as evaluator,
        cluster.bus("watcher") as watcher,
    ):
        await planner.open_stream(RUN)
        await planner.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=5.0))
        lost, go_on = anyio.Event(), anyio.Event()
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(evaluate, evaluator)
                tasks.start_soon(decide, planner, lost, go_on)
                await lost.wait()
                await cluster.servers[(await cluster.leaders())[f"KS_EVT_{RUN}"]].kill()
                go_on.set()
                decisions, results = await read_all(planner)
                tasks.cancel_scope.cancel()
            assert decisions == [f"d{number}" for number in range(JOBS)]
            assert sorted(results) == sorted(f"j{number}.r" for number in range(JOBS))
            assert await read_all(watcher) == (decisions, results)


@pytest.mark.long
async def test_what_is_sent_again_while_the_other_servers_copy_it_is_stored_once(tmp_path: Path) -> None:
    """An answer that took too long: the message is on its way, and comes a second time."""
    async with serve_cluster(tmp_path) as cluster, cluster.bus("planner") as planner:
        await planner.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=5.0))
        duplicates = list[bool]()

        async def send(msg_id: str) -> None:
            headers = {names.ID: msg_id, names.MESSAGE_ID: msg_id, names.EXPECTED: "0"}
            subject, stream = f"{QUEUE}.{names.token_of(msg_id)}", names.job_stream(QUEUE)
            stored = await planner._connection.store(subject, b"job", headers, stream=stream, what="sending")
            duplicates.append(stored.duplicate)

        with anyio.fail_after(PATIENCE_S):
            for number in range(TWICE):
                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(send, f"j{number}")
        assert sorted(duplicates) == [False] * TWICE + [True] * 2 * TWICE


async def test_more_copies_than_there_are_servers_are_refused_at_once(tmp_path: Path) -> None:
    async with (
        serve_nats(ServerSettings(store=tmp_path)) as server,
        open_nats(NatsOptions(servers=(server.url,))) as bus,
    ):
        with anyio.fail_after(PATIENCE_S / 3), pytest.raises(BusError, match="replicas"):
            await bus.prepare(replicas=3)
