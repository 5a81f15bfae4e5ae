"""Nodes as processes of their own, over a real server: they come and go, and what one builds another judges."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import Process

from actors.bus.base import Bus, QueueSpec
from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from evaluators.hardware.target import probe_target
from evaluators.simulated import SIMULATED
from ksearch_async.fleet.status import Node, read_roster
from messages.base import Role
from messages.codec import decode_body, encode
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built, CandidateBuilt, CandidateEvaluated, Event
from messages.presence import RunCard, encode_entry, run_key
from messages.subjects import build_jobs, evaluate_jobs
from messages.tasks import Target
from messages.verdicts import Measured, Verdict
from tests.evaluators.patience import patiently
from tests.evaluators.words import RIGHT, SMALL_TASK, cpp

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "r1"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with serve_nats(ServerSettings(store=tmp_path / "nats", sync="never")) as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    async with open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        yield bus


async def open_run(bus: Bus, target: Target) -> None:
    """Do what the planner of a run does before its first job."""
    await bus.open_stream(RUN)
    for queue in (build_jobs(RUN, "cpp", target.arch), evaluate_jobs(RUN, "cpp", target.arch)):
        await bus.declare_queue(QueueSpec(name=queue, run_id=RUN))
    card = RunCard(
        run_id=RUN, task_name="small", language="cpp", target=target, submitted_at="2026-01-01", updated_at="2026-01-01"
    )
    await bus.put(run_key(RUN), encode_entry(card), revision=0)


def evaluation(number: int, target: Target = SIMULATED) -> EvaluateCandidate:
    return EvaluateCandidate(
        job_id=f"e{number}",
        run_id=RUN,
        task=SMALL_TASK,
        candidate=cpp(f"candidate {number}"),
        artifact_id="ab",
        target=target,
    )


async def ask_for_evaluation(bus: Bus, job: EvaluateCandidate) -> None:
    await bus.submit(evaluate_jobs(RUN, "cpp", job.target.arch), encode(job), msg_id=job.job_id)


class Nodes:
    """Starts `ksearch` processes for one server, and keeps what they say."""

    def __init__(self, server: NatsServer, bus: Bus, folder: Path) -> None:
        self._url = server.url
        self._bus = bus
        self._folder = folder
        self._processes: list[Process] = []

    async def start(self, role: str, *flags: str, environment: Mapping[str, str] | None = None) -> Process:
        said = self._folder / f"{role}-{len(self._processes)}.log"
        with said.open("wb") as log:
            process = await anyio.open_process(
                [sys.executable, "-m", "ksearch_async", role, "--nats", self._url, *flags],
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        self._processes.append(process)
        return process

    async def until(self, role: Role, condition: Callable[[list[Node]], bool]) -> list[Node]:
        """Return the nodes of a role once they are as wanted."""
        with anyio.fail_after(60):
            while True:
                nodes = [node for node in (await read_roster(self._bus)).nodes if node.presence.role == role]
                if condition(nodes):
                    return nodes
                await anyio.sleep(0.1)

    async def shown(self, *flags: str) -> str:
        done = await anyio.run_process(
            [sys.executable, "-m", "ksearch_async", "nodes", "--nats", self._url, *flags], check=True
        )
        return done.stdout.decode()

    async def end(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def following(bus: Bus) -> AsyncIterator[Callable[[int], Awaitable[list[Event]]]]:
    """Lend a reader of a run's next results."""
    events = bus.events(RUN)

    async def read(count: int) -> list[Event]:
        found: list[Event] = []
        with anyio.fail_after(60):
            while len(found) < count:
                body = decode_body((await anext(events)).payload)
                assert isinstance(body, CandidateBuilt | CandidateEvaluated), body
                found.append(body)
        return found

    try:
        yield read
    finally:
        await events.aclose()


@pytest.fixture
async def nodes(server: NatsServer, bus: Bus, tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(server, bus, tmp_path)
    yield nodes
    with anyio.CancelScope(shield=True):
        await nodes.end()


@pytest.mark.long
async def test_an_evaluator_that_comes_in_the_middle_takes_work_and_one_that_is_ended_finishes_its_job(
    bus: Bus, nodes: Nodes
) -> None:
    await open_run(bus, SIMULATED)
    for number in range(40):
        await ask_for_evaluation(bus, evaluation(number))
    flags = ("--device", "simulated:0.2", "--slots", "1")
    async with following(bus) as read:
        first = await nodes.start("evaluator", *flags)
        seen = await read(3)
        await nodes.start("evaluator", *flags)
        while len({event.worker for event in seen if isinstance(event, CandidateEvaluated)}) < 2:
            seen += await read(1)
        first.send_signal(signal.SIGTERM)
        with anyio.fail_after(20):
            assert await first.wait() == 0
        seen += await read(40 - len(seen))
    assert len({event.job_id for event in seen if isinstance(event, CandidateEvaluated)}) == 40
    both = await nodes.until("evaluator", lambda found: sum(node.presence.tally.done for node in found) == 40)
    assert sorted(node.presence.state for node in both) == ["left", "ready"]
    assert [node.presence.tally.failed + node.presence.tally.redelivered for node in both] == [0, 0]
    told = json.loads(await nodes.shown("--json"))
    assert sorted(node["state"] for node in told["nodes"]) == ["left", "ready"]
    assert [run["missing"] for run in told["runs"]] == [["coder", "builder"]]
    table = await nodes.shown()
    assert "ready" in table
    assert "left" in table


async def test_a_node_with_a_broken_compiler_is_unfit_and_takes_nothing(bus: Bus, nodes: Nodes) -> None:
    target = await anyio.to_thread.run_sync(probe_target, "cpp")
    await open_run(bus, target)
    await ask_for_evaluation(bus, evaluation(1, target))
    broken = {"KSEARCH_CXX": "/bin/false"}
    node = await nodes.start("evaluator", "--language", "cpp", environment=broken)
    with anyio.fail_after(30):
        assert await node.wait() == 3
    (shown,) = await nodes.until("evaluator", lambda found: bool(found) and found[0].has_ended)
    assert shown.is_unfit
    assert "--version failed" in shown.presence.detail
    assert "unfit" in await nodes.shown()
    with anyio.fail_after(10):
        assert (await bus.pull(evaluate_jobs(RUN, "cpp", target.arch))).attempt == 1


async def test_what_is_built_on_one_host_is_judged_on_another(bus: Bus, nodes: Nodes, tmp_path: Path) -> None:
    target = await anyio.to_thread.run_sync(probe_target, "cpp")
    await open_run(bus, target)
    for role in ("builder", "evaluator"):
        await nodes.start(role, "--language", "cpp", "--slots", "1", "--artifacts", str(tmp_path / f"{role}s-store"))
    build = BuildCandidate(job_id="b1", run_id=RUN, candidate=cpp(RIGHT), target=target)
    async with following(bus) as read:
        await bus.submit(build_jobs(RUN, "cpp", target.arch), encode(build), msg_id=build.job_id)
        (built,) = await read(1)
        assert isinstance(built, CandidateBuilt)
        assert isinstance(built.outcome, Built)
        assert built.outcome.blob
        asked: list[CandidateEvaluated] = []

        async def evaluate() -> Verdict:
            assert isinstance(built, CandidateBuilt)
            assert isinstance(built.outcome, Built)
            job = msgspec.structs.replace(
                evaluation(len(asked) + 1, target),
                candidate=build.candidate,
                artifact_id=built.outcome.artifact_id,
                artifact_blob=built.outcome.blob,
            )
            await ask_for_evaluation(bus, job)
            (evaluated,) = await read(1)
            assert isinstance(evaluated, CandidateEvaluated)
            asked.append(evaluated)
            return evaluated.verdict

        assert isinstance(await patiently(evaluate), Measured)
    assert built.worker.startswith("builder-")
    assert asked[-1].worker.startswith("evaluator-")
    stores = [
        sorted(path.name for path in (tmp_path / f"{role}s-store").iterdir()) for role in ("builder", "evaluator")
    ]
    assert stores == [[built.outcome.artifact_id]] * 2


async def test_a_server_that_is_not_there_is_one_clear_line(nodes: Nodes, tmp_path: Path) -> None:
    done = await anyio.run_process(
        [sys.executable, "-m", "ksearch_async", "builder", "--nats", "nats://127.0.0.1:9"], check=False
    )
    assert done.returncode == 3
    assert done.stderr.decode().startswith("error: ")
    assert "127.0.0.1:9" in done.stderr.decode().splitlines()[0]
