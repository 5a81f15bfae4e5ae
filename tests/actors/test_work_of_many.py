"""Workers that are members: many runs at once, a bus and surroundings that fail, and leaving."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from anyio.abc import TaskStatus
from structlog.testing import capture_logs

from actors.board import Board, SharedQueues
from actors.bus.base import MAX_EVENT_BYTES, NO_HEADERS, Bus, QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.store import MemoryStore
from actors.member import Member
from actors.work import serve
from messages.base import Role
from messages.codec import Body, decode_body, encode
from messages.commands import BuildCandidate
from messages.errors import BusError, EvaluatorError
from messages.events import Built, CandidateBuilt, JobLost
from messages.presence import WorkerState
from tests.actors.words import (
    build_job,
    builds,
    built,
    card,
    memory_bus,
    open_build_run,
    presence,
    put_card,
    shown,
    submit_build,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

Handler = Callable[[BuildCandidate], Awaitable[CandidateBuilt]]


class Timed:
    """Builds anything in a second; notes what, and when it began."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.begun: list[tuple[str, float]] = []
        self._takes_s = takes_s

    async def __call__(self, command: BuildCandidate) -> CandidateBuilt:
        self.begun.append((command.job_id, anyio.current_time()))
        await anyio.sleep(self._takes_s)
        return built(command)

    @property
    def jobs(self) -> list[str]:
        return [job_id for job_id, _ in self.begun]


class Worker:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.returned = anyio.Event()


@asynccontextmanager
async def working(
    bus: Bus,
    handle: Handler,
    *,
    name: str = "builder-1",
    slots: int = 1,
    state: WorkerState = "ready",
    deadline_s: float = 3600.0,
) -> AsyncIterator[Worker]:
    """Have a process that builds for all runs on the board."""
    board = Board(bus)
    worker = Worker(Member(bus, presence(name, state=state)))
    queues = SharedQueues(board, role="builder", serves=lambda _: True)

    async def start(*, task_status: TaskStatus[None]) -> None:
        await serve(
            bus,
            queues,
            handle,
            expects=BuildCandidate,
            role="builder",
            slots=slots,
            deadline_s=lambda _: deadline_s,
            member=worker.member,
            task_status=task_status,
        )
        worker.returned.set()

    async with anyio.create_task_group() as tasks:
        await tasks.start(board.follow)
        await tasks.start(worker.member.keep)
        await tasks.start(start)
        yield worker
        tasks.cancel_scope.cancel()


async def said(bus: Bus, run_id: str, count: int, within_s: float = 1000.0) -> dict[str, Body]:
    """Return the first events of a run by id, once there are so many."""
    found: dict[str, Body] = {}
    events = bus.events(run_id)
    with anyio.fail_after(within_s):
        async for posted in events:
            found[posted.msg_id] = decode_body(posted.payload)
            if len(found) == count:
                break
    await events.aclose()
    return found


async def waiting(bus: Bus, run_id: str) -> list[tuple[str, int]]:
    """Return the jobs that can be had now, with their attempts."""
    found = []
    with anyio.move_on_after(0.1):
        while True:
            delivery = await bus.pull(builds(run_id))
            found.append((delivery.msg_id, delivery.attempt))
    return found


async def test_jobs_of_all_runs_are_done_and_told_on_their_own_runs_streams_with_the_workers_name() -> None:
    bus = memory_bus()
    for run_id in ("r1", "r2"):
        await open_build_run(bus, run_id)
        await submit_build(bus, 1, run_id)
    async with working(bus, Timed()):
        for run_id in ("r1", "r2"):
            told = await said(bus, run_id, 1)
            answer = msgspec.structs.replace(built(build_job(1, run_id)), worker="builder-1")
            assert told == {f"{run_id}-x1.r": answer}


async def test_a_run_that_begins_while_workers_wait_is_served_within_two_seconds() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    async with working(bus, handle):
        await anyio.sleep(50)
        await open_build_run(bus, "r2")
        await submit_build(bus, 1, "r2")
        await anyio.sleep(2)
        await submit_build(bus, 1, "r1")
        await anyio.sleep(2)
    assert handle.jobs == ["r2-x1", "r1-x1"]


async def test_a_run_without_its_queue_yet_stops_nobody_and_is_served_when_it_has_one() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await put_card(bus, card("r0"))
    async with working(bus, handle, slots=2):
        await submit_build(bus, 1, "r1")
        await anyio.sleep(5)
        assert handle.jobs == ["r1-x1"]
        await open_build_run(bus, "r0")
        await submit_build(bus, 1, "r0")
        await anyio.sleep(3)
    assert handle.jobs == ["r1-x1", "r0-x1"]


async def test_a_worker_with_nothing_but_an_absent_queue_does_not_spin() -> None:
    bus = CountingPulls(lambda _: MemoryStore())
    await put_card(bus, card("r0"))
    async with working(bus, Timed(), slots=4):
        await anyio.sleep(100)
    assert bus.pulls <= 100 * 4 * 4


class CountingPulls(MemoryBus):
    pulls = 0

    async def pull(self, *queues: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.pulls += 1
        return await super().pull(*queues)


async def test_a_run_whose_queues_are_dropped_in_the_middle_costs_nobody_else_anything() -> None:
    bus, handle = memory_bus(), Timed(takes_s=40.0)
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle) as worker:
        await anyio.sleep(5)
        await bus.delete_run("r1")
        await open_build_run(bus, "r2")
        await submit_build(bus, 1, "r2")
        await said(bus, "r2", 1)
        worker.member.leave()
        await worker.returned.wait()
        assert worker.member.presence.tally.done == 1
    assert handle.jobs == ["r1-x1", "r2-x1"]
    assert handle.begun[1][1] == pytest.approx(10.0, abs=1.0), "dropped at the first heartbeat"


async def test_a_job_of_another_run_than_its_queues_is_dead_lettered_with_the_reason() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await bus.submit(builds("r1"), encode(build_job(1, "r2")), msg_id="r2-x1")
    async with working(bus, handle):
        with anyio.fail_after(10):
            letter = await bus.next_dead_letter("r1")
    assert letter.reason == "it is of run 'r2', in the queue of run 'r1'"
    assert handle.jobs == []


async def test_a_job_under_another_id_than_its_own_is_dead_lettered() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await bus.submit(builds("r1"), encode(build_job(1, "r1")), msg_id="r1-x2")
    async with working(bus, handle):
        with anyio.fail_after(10):
            letter = await bus.next_dead_letter("r1")
    assert letter.reason == "it is job 'r1-x1', submitted as 'r1-x2'"


async def test_a_job_that_was_answered_before_its_worker_died_is_not_done_again() -> None:
    bus, handle = memory_bus(), Timed()
    queue = await open_build_run(bus, "r1")
    job_id = await submit_build(bus, 1, "r1")
    await bus.pull(queue)
    await bus.publish("r1", encode(built(build_job(1, "r1"))), msg_id=f"{job_id}.r")
    async with working(bus, handle) as worker:
        await anyio.sleep(100)
        assert worker.member.presence.tally.redelivered == 1
    assert handle.jobs == []
    assert await waiting(bus, "r1") == []


async def test_a_process_that_proves_itself_takes_nothing_until_it_is_ready() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle, state="proving") as worker:
        await anyio.sleep(60)
        assert handle.jobs == []
        worker.member.ready()
        await anyio.sleep(0.5)
        assert handle.jobs == ["r1-x1"]
        worker.member.unfit("times nothing")
        await submit_build(bus, 2, "r1")
        await anyio.sleep(60)
        assert handle.jobs == ["r1-x1"]


async def test_a_process_that_leaves_finishes_what_it_has_takes_nothing_more_and_returns() -> None:
    bus, handle = memory_bus(), Timed(takes_s=20.0)
    await open_build_run(bus, "r1")
    async with working(bus, handle, slots=3) as worker:
        for number in range(2):
            await submit_build(bus, number, "r1")
        await anyio.sleep(1)
        worker.member.leave()
        await submit_build(bus, 2, "r1")
        await anyio.sleep(5)
        told = await shown(bus)
        assert told is not None
        assert (told.state, len(told.busy)) == ("leaving", 2)
        with anyio.fail_after(15):
            await worker.returned.wait()
        assert worker.member.presence.tally.done == 2
    assert await waiting(bus, "r1") == [("r1-x2", 1)]


async def test_a_job_in_hand_is_shown() -> None:
    bus = memory_bus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, Timed(takes_s=10.0)):
        await anyio.sleep(2)
        told = await shown(bus)
        assert told is not None
        assert [(busy.job_id, busy.run_id) for busy in told.busy] == [("r1-x1", "r1")]


async def test_lines_in_the_log_say_run_job_and_worker() -> None:
    bus = memory_bus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    from structlog.contextvars import merge_contextvars  # noqa: PLC0415

    with capture_logs(processors=[merge_contextvars]) as logs:
        async with working(bus, Timed()):
            await said(bus, "r1", 1)
    (taken,) = [line for line in logs if line["event"] == "job taken"]
    assert (taken["run"], taken["job"], taken["worker"]) == ("r1", "r1-x1", "builder-1")


# When the surroundings of one host are wrong


async def broken(_: BuildCandidate) -> CandidateBuilt:
    raise EvaluatorError("no compiler", permanent=True)


async def test_a_host_without_a_compiler_leaves_its_jobs_to_others_and_says_why_it_is_unfit() -> None:
    bus, handle = memory_bus(), Timed()
    await open_build_run(bus, "r1")
    async with working(bus, broken, name="bad", slots=4) as bad:
        for number in range(8):
            await submit_build(bus, number, "r1")
        await anyio.sleep(2)
        assert (bad.member.presence.state, bad.member.presence.detail) == ("unfit", "r1: no compiler")
        async with working(bus, handle, name="good"):
            told = await said(bus, "r1", 8, within_s=30)
    assert all(isinstance(body, CandidateBuilt) and body.worker == "good" for body in told.values())


async def test_a_host_that_was_wrong_tries_one_job_after_a_rest_and_goes_on_with_all_slots_if_it_is_done() -> None:
    bus, tried_at = memory_bus(), []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        tried_at.append(anyio.current_time())
        if anyio.current_time() < 100:
            raise EvaluatorError("no compiler", permanent=True)
        await anyio.sleep(10)
        return built(command)

    await open_build_run(bus, "r1")
    async with working(bus, handle, slots=4) as worker:
        await submit_build(bus, 0, "r1")
        await anyio.sleep(1)
        for number in range(1, 5):
            await submit_build(bus, number, "r1")
        await anyio.sleep(100)
        assert [round(at) for at in tried_at] == [0, 60]
        await said(bus, "r1", 5)
        assert [round(at) for at in tried_at[2:]] == [180, 190, 190, 190, 190]
        assert (worker.member.presence.state, worker.member.presence.detail) == ("ready", "")


async def test_a_trial_that_says_nothing_of_the_host_is_followed_by_another() -> None:
    bus, broken_until = memory_bus(), 30.0

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        if anyio.current_time() < broken_until:
            raise EvaluatorError("no compiler", permanent=True)
        return built(command)

    await open_build_run(bus, "r1")
    async with working(bus, handle):
        job_id = await submit_build(bus, 1, "r1")
        await anyio.sleep(50)
        await bus.publish("r1", encode(built(build_job(1, "r1"))), msg_id=f"{job_id}.r")
        await submit_build(bus, 2, "r1")
        assert set(await said(bus, "r1", 2, within_s=20)) == {"r1-x1.r", "r1-x2.r"}


async def test_a_host_that_cannot_serve_one_run_serves_the_others() -> None:
    bus = memory_bus()

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        if command.run_id == "r1":
            raise EvaluatorError("evaluator file is not here", permanent=True)
        return built(command)

    for run_id in ("r1", "r2"):
        await open_build_run(bus, run_id)
        await submit_build(bus, 1, run_id)
    async with working(bus, handle) as worker:
        await said(bus, "r2", 1, within_s=5)
        await anyio.sleep(5)
        state, detail = worker.member.presence.state, worker.member.presence.detail
        assert (state, detail) == ("ready", "r1: evaluator file is not here")
    assert await waiting(bus, "r1") == [("r1-x1", 2)]


async def test_a_host_that_was_unfit_for_its_only_run_is_ready_for_the_next() -> None:
    bus = memory_bus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, broken) as worker:
        await anyio.sleep(2)
        assert worker.member.presence.state == "unfit"
        await put_card(bus, card("r2"))
        await anyio.sleep(2)
        assert (worker.member.presence.state, worker.member.presence.detail) == ("ready", "r1: no compiler")
        await put_card(bus, msgspec.structs.replace(card("r1"), state="finished"))
        await anyio.sleep(2)
        assert (worker.member.presence.state, worker.member.presence.detail) == ("ready", "")


async def test_a_job_that_all_hosts_fail_is_lost_and_does_not_end_the_run_by_itself() -> None:
    bus = memory_bus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            await tasks.start(hold, bus, broken, f"bad{number}")
        told = await said(bus, "r1", 1, within_s=30)
        tasks.cancel_scope.cancel()
    assert told == {"r1-x1.r": JobLost(job_id="r1-x1", kind="build", error="no compiler", permanent=False)}


async def hold(bus: Bus, handle: Handler, name: str, *, task_status: TaskStatus[None]) -> None:
    async with working(bus, handle, name=name):
        task_status.started()
        await anyio.sleep_forever()


async def test_a_job_that_hangs_is_failed_after_its_deadline_and_tried_again() -> None:
    bus, tried_at = memory_bus(), []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        tried_at.append(anyio.current_time())
        if len(tried_at) == 1:
            await anyio.sleep_forever()
        return built(command)

    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle, deadline_s=500.0) as worker:
        await said(bus, "r1", 1)
        assert worker.member.presence.tally.failed == 1
    assert tried_at[1] - tried_at[0] == pytest.approx(501.0, abs=0.1)


async def test_a_result_that_is_too_large_for_the_bus_is_a_lost_job_that_says_so() -> None:
    bus = memory_bus()

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        outcome = Built(artifact_id="a", log="x" * MAX_EVENT_BYTES)
        return msgspec.structs.replace(built(command), outcome=outcome)

    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle):
        (lost,) = (await said(bus, "r1", 1, within_s=10)).values()
    assert isinstance(lost, JobLost)
    assert "too large" in lost.error


# When the bus is away


class AwayBus(MemoryBus):
    """Fails whatever is asked of it while it is away; waits that had begun go on."""

    def __init__(self) -> None:
        super().__init__(lambda _: MemoryStore())
        self.away = False
        self.publishes = 0

    def check(self) -> None:
        if self.away:
            raise BusError("no connection")

    async def publish(
        self,
        run_id: str,
        payload: bytes,
        *,
        msg_id: str,
        role: Role = "planner",
        headers: Mapping[str, str] = NO_HEADERS,
        expected_last_decision: int | None = None,  # noqa: ARG002 - workers decide nothing
    ) -> int:
        self.publishes += 1
        self.check()
        return await super().publish(run_id, payload, msg_id=msg_id, role=role, headers=headers)

    async def pull(self, *queues: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.check()
        return await super().pull(*queues)

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        self.check()
        return await super().put(key, value, revision=revision, ttl_s=ttl_s)


async def test_a_result_is_kept_while_the_bus_is_away_and_the_job_is_done_once() -> None:
    bus, handle = AwayBus(), Timed(takes_s=5.0)
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle) as worker:
        await anyio.sleep(1)
        bus.away = True
        await anyio.sleep(300)
        bus.away = False
        await said(bus, "r1", 1, within_s=31)
        await anyio.sleep(1)
        assert worker.member.presence.tally.done == 1
    assert handle.jobs == ["r1-x1"]
    assert await waiting(bus, "r1") == []


async def test_a_result_that_no_bus_takes_for_long_is_given_up_and_the_job_comes_back() -> None:
    bus, handle = AwayBus(), Timed(takes_s=5.0)
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle) as worker:
        await anyio.sleep(1)
        bus.away = True
        await anyio.sleep(700)
        assert worker.member.presence.busy == ()
        bus.away = False
        await said(bus, "r1", 1, within_s=60)
    assert handle.jobs == ["r1-x1", "r1-x1"]
    assert bus.publishes < 60


async def test_workers_that_wait_outlive_a_bus_that_is_away_and_it_is_told_once_each() -> None:
    bus, handle = AwayBus(), Timed()
    await open_build_run(bus, "r1")
    bus.away = True
    with capture_logs() as logs:
        async with working(bus, handle, slots=3):
            await anyio.sleep(100)
            bus.away = False
            await submit_build(bus, 1, "r1")
            await said(bus, "r1", 1, within_s=5)
    assert Counter(line["event"] for line in logs if line["log_level"] == "warning") == {
        "the bus gives no jobs; trying again": 1,
        "cannot show that this process is there; trying again": 1,
    }


async def test_a_worker_that_is_stopped_while_the_bus_is_away_stops() -> None:
    bus = AwayBus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    with anyio.fail_after(20):
        async with working(bus, Timed(takes_s=5.0)):
            await anyio.sleep(1)
            bus.away = True
            await anyio.sleep(10)


# Several runs at once


@pytest.mark.parametrize("weights", [(1, 1), (3, 1)])
@pytest.mark.parametrize("slots", [1, 4])
async def test_a_small_run_beside_one_with_ten_times_the_work_gets_its_share_of_two_evaluators(
    weights: tuple[int, int], slots: int
) -> None:
    bus, handle = memory_bus(), Timed(takes_s=2.0)
    for run_id, weight, jobs in (("small", weights[0], 200), ("large", weights[1], 2000)):
        await open_build_run(bus, run_id, weight=weight)
        for number in range(jobs):
            await submit_build(bus, number, run_id)
    async with working(bus, handle, name="b1", slots=slots), working(bus, handle, name="b2", slots=slots):
        await anyio.sleep(200 / slots)
    done = Counter(job_id.split("-")[0] for job_id in handle.jobs)
    fair = sum(done.values()) * weights[0] / sum(weights)
    assert done["small"] == pytest.approx(fair, rel=0.1)
    assert sum(done.values()) == pytest.approx(200, abs=2 * slots), "no slot was idle"


@pytest.mark.parametrize(("weights", "expected"), [((1, 1), 32), ((3, 1), 48)])
async def test_slots_that_are_free_at_once_are_shared_at_once(weights: tuple[int, int], expected: int) -> None:
    bus, handle = memory_bus(), Timed(takes_s=10.0)
    for run_id, weight in zip(("r1", "r2"), weights, strict=True):
        await open_build_run(bus, run_id, weight=weight)
        for number in range(400):
            await submit_build(bus, number, run_id)
    async with working(bus, handle, slots=64):
        for taken in (64, 128, 192):
            await anyio.sleep(5)
            assert len(handle.jobs) == taken
            latest = Counter(job_id.split("-")[0] for job_id in handle.jobs[-64:])
            assert latest["r1"] == pytest.approx(expected, abs=2)
            await anyio.sleep(5)


async def test_a_run_alone_has_all_workers_and_one_that_comes_its_share_at_once() -> None:
    bus, handle = memory_bus(), Timed(takes_s=2.0)
    await open_build_run(bus, "r1")
    for number in range(400):
        await submit_build(bus, number, "r1")
    async with working(bus, handle, slots=4):
        await anyio.sleep(50)
        assert len(handle.jobs) == pytest.approx(100, abs=8)
        await open_build_run(bus, "r2")
        for number in range(400):
            await submit_build(bus, number, "r2")
        began = len(handle.jobs)
        await anyio.sleep(50)
    since = Counter(job_id.split("-")[0] for job_id in handle.jobs[began:])
    assert since["r2"] == pytest.approx(since["r1"], rel=0.1)


async def test_a_queue_that_was_declared_but_has_no_card_is_not_served() -> None:
    bus, handle = memory_bus(), Timed()
    await bus.open_stream("r1")
    await bus.declare_queue(QueueSpec(name=builds("r1"), run_id="r1"))
    await submit_build(bus, 1, "r1")
    async with working(bus, handle):
        await anyio.sleep(20)
    assert handle.jobs == []
