"""What only a bus with a real server shows: traces across it, messages of newer releases and of the wrong people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.builder import serve_builds
from actors.bus.base import Delivery
from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import ServerSettings, serve_nats
from actors.bus.stream import body_of
from actors.coder.actor import serve_writes
from actors.evaluator import serve_evaluations
from actors.planner.actor import plan_run
from actors.planner.jobs import queues_of
from actors.worker.taking import FixedQueues
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from messages.base import ProtocolError
from messages.codec import Body, encode
from messages.events import CandidateEvaluated, JobLost, RunStarted
from messages.facts import Decided, RunFinished
from messages.settings import Budget, SearchSettings
from messages.verdicts import Wrong
from tests.actors.planner.rig import Rig, landscape, scripted
from tests.actors.test_tracing import assert_attempts_are_traces, recorded

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "rig"
ROUNDS = 6
FORGED = CandidateEvaluated(job_id="x", candidate_id="c", verdict=Wrong(reason="no"), device="d")


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[NatsBus]:
    settings = ServerSettings(store=tmp_path / "nats", sync="never")
    async with serve_nats(settings) as server, open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        yield bus


@pytest.fixture
async def started(bus: NatsBus) -> RunStarted:
    """A run that nobody leads yet."""
    started = Rig(SearchSettings(branches=2, budget=Budget(max_rounds=ROUNDS)), run_id=RUN).started
    await bus.open_stream(RUN)
    await bus.publish(RUN, encode(started), msg_id=f"{RUN}.started")
    return started


@asynccontextmanager
async def led(bus: NatsBus, then: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Have the run led; `then` is called at its end."""
    planner, _ = scripted()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:

            async def lead(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                await plan_run(bus, planner, run_id=RUN, task_status=task_status)
                then()

            await tasks.start(lead)
            yield
            tasks.cancel_scope.cancel()


async def work(bus: NatsBus, started: RunStarted) -> None:
    """Do all jobs until cancelled."""
    write, build, evaluate = (FixedQueues(queue) for queue in queues_of(started))
    _, coder = scripted()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_writes(bus, coder, queues=write, slots=2))
        tasks.start_soon(lambda: serve_builds(bus, SimulatedBuilder(), queues=build))
        tasks.start_soon(lambda: serve_evaluations(bus, SimulatedEvaluator(landscape), queues=evaluate))


async def finish(bus: NatsBus, started: RunStarted, first: Callable[[], Awaitable[None]] | None = None) -> list[Body]:
    """Lead the run to its end, and return what its stream holds. `first` is done before anybody works."""
    over = anyio.Event()
    async with led(bus, over.set):
        if first is not None:
            await first()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, bus, started)
            await over.wait()
            tasks.cancel_scope.cancel()
    return await bodies(bus)


async def bodies(bus: NatsBus) -> list[Body]:
    last, found = await bus.open_stream(RUN), []
    events = bus.events(RUN)
    async for posted in events:
        body = body_of(posted)
        found += [] if body is None else [body]
        if posted.seq == last:
            break
    await events.aclose()
    return found


def newer(tag: str, **fields: object) -> bytes:
    """Return a message as a later release might write it."""
    return msgspec.msgpack.encode({"type": f"{tag}.v9", **fields})


def ended(found: list[Body]) -> RunFinished:
    (end,) = [
        fact for body in found if isinstance(body, Decided) for fact in body.facts if isinstance(fact, RunFinished)
    ]
    return end


async def test_an_attempt_is_one_trace_across_the_server(bus: NatsBus, started: RunStarted) -> None:
    with recorded() as spans:
        await finish(bus, started)
        assert_attempts_are_traces(spans.get_finished_spans(), rounds=ROUNDS)


async def test_an_answer_of_a_newer_release_costs_its_job_and_the_search_goes_on(
    bus: NatsBus, started: RunStarted
) -> None:
    answered: list[str] = []

    async def answer() -> None:
        delivery = await bus.pull(queues_of(started)[0])
        payload = newer("candidate.written", job_id=delivery.msg_id)
        await bus.publish(RUN, payload, msg_id=f"{delivery.msg_id}.r", role="coder")
        await delivery.ack()
        answered.append(delivery.msg_id)

    found = await finish(bus, started, answer)
    assert [(lost.job_id, lost.kind, lost.permanent) for lost in found if isinstance(lost, JobLost)] == [
        (answered[0], "write", False)
    ]
    assert (ended(found).stopped_by, ended(found).rounds) == ("rounds", ROUNDS)


async def test_who_takes_a_run_over_gives_up_what_was_answered_in_a_way_that_it_cannot_read(
    bus: NatsBus, started: RunStarted
) -> None:
    async with led(bus):
        delivery = await bus.pull(queues_of(started)[0])
    payload = newer("candidate.written", job_id=delivery.msg_id)
    await bus.publish(RUN, payload, msg_id=f"{delivery.msg_id}.r", role="coder")
    await delivery.ack()
    found = await finish(bus, started)
    assert [lost.job_id for lost in found if isinstance(lost, JobLost)] == [delivery.msg_id]
    assert ended(found).rounds == ROUNDS


async def test_a_job_is_not_given_up_for_what_somebody_else_says_under_its_id(
    bus: NatsBus, started: RunStarted
) -> None:
    held: list[Delivery] = []

    async def forge() -> None:
        held.append(await bus.pull(queues_of(started)[0]))
        answer_id = f"{held[0].msg_id}.r"
        await bus.publish(RUN, encode(FORGED), msg_id=answer_id, role="builder")
        await bus.publish(RUN, b"\xc1", msg_id=answer_id, role="evaluator")
        await held[0].nak()

    found = await finish(bus, started, forge)
    assert not [lost for lost in found if isinstance(lost, JobLost)]
    assert not [body for body in found if isinstance(body, CandidateEvaluated) and body.job_id == FORGED.job_id]
    assert ended(found).rounds == ROUNDS


async def test_a_planner_does_not_lead_a_run_that_a_newer_release_has_led(bus: NatsBus, started: RunStarted) -> None:
    await bus.publish(RUN, newer("decision", cause=1), msg_id=f"{RUN}.d1", expected_last_decision=0)
    planner, _ = scripted()
    with anyio.fail_after(20), pytest.raises(ProtocolError, match="record 2 of run 'rig' is of a newer release"):
        await plan_run(bus, planner, run_id=RUN)


async def test_an_older_reader_takes_an_event_with_a_field_that_it_does_not_know(bus: NatsBus) -> None:
    await bus.open_stream(RUN)
    fields = msgspec.msgpack.decode(encode(JobLost(job_id="j", kind="build", error="no")))
    await bus.publish(RUN, msgspec.msgpack.encode({**fields, "since": 5}), msg_id="j.r", role="builder")
    (lost,) = await bodies(bus)
    assert lost == JobLost(job_id="j", kind="build", error="no")
