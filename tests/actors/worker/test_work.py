from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from actors.bus.base import Delivery, Posted, QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.worker.taking import FixedQueues
from actors.worker.work import serve
from messages.base import BusError, EvaluatorError, ModelError
from messages.codec import decode_body, encode
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built, CandidateBuilt, JobLost
from messages.tasks import Candidate, SourceFile, Target, TaskSpec

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

RUN = "r1"
QUEUE = "ks.job.build.x86-64.cpp.r1"
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 13", device="CPU")
CANDIDATE = Candidate(language="cpp", entry_point="f", files=(SourceFile(path="a.cpp", text="int x;"),))
Handler = Callable[[BuildCandidate], Awaitable[CandidateBuilt]]


def job(number: int) -> BuildCandidate:
    return BuildCandidate(job_id=f"j{number}", run_id=RUN, candidate=CANDIDATE, target=TARGET)


def built(command: BuildCandidate) -> CandidateBuilt:
    return CandidateBuilt(
        job_id=command.job_id,
        candidate_id=command.candidate.candidate_id,
        outcome=Built(artifact_id="a"),
        target=command.target,
    )


class Bench:
    """A bus with one queue, a worker on it, and what both did."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.bus = MemoryBus(lambda _: self.store)

    @asynccontextmanager
    async def working(self, handle: Handler, *, slots: int = 1, heartbeat_s: float = 10.0) -> AsyncIterator[MemoryBus]:
        await self.bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN, ack_wait_s=30, max_deliver=4))
        await self.bus.open_stream(RUN)

        async def start(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            queues = FixedQueues(QUEUE)
            await serve(
                self.bus,
                queues,
                handle,
                expects=BuildCandidate,
                role="builder",
                slots=slots,
                heartbeat_s=heartbeat_s,
                task_status=task_status,
            )

        async with anyio.create_task_group() as tasks:
            await tasks.start(start)
            yield self.bus
            tasks.cancel_scope.cancel()

    async def do_one(self, handle: Handler) -> None:
        async with self.working(handle) as bus:
            await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
            await anyio.sleep(100)

    def events(self) -> list[Posted]:
        return list(self.store.read(0, 1000))

    async def pull(self, within_s: float = 1000) -> Delivery:
        with anyio.fail_after(within_s):
            return await self.bus.pull(QUEUE)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_job_becomes_one_event_under_its_id_and_is_gone(bench: Bench) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        return built(command)

    async with bench.working(handle) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(100)
    assert [(posted.msg_id, decode_body(posted.payload)) for posted in bench.events()] == [("j1.r", built(job(1)))]
    with anyio.move_on_after(100):
        pytest.fail(f"{(await bus.pull(QUEUE)).msg_id} is still there")


async def test_the_result_is_durable_before_the_job_is_acknowledged(bench: Bench) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        return built(command)

    async def refuse(*args: object, **kwargs: object) -> int:
        raise BusError("disk full")

    bench.bus.publish = refuse  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup):
        await bench.do_one(handle)
    assert (await bench.pull()).msg_id == "j1"


async def test_a_result_that_is_there_when_the_worker_is_stopped_is_published_nevertheless(bench: Bench) -> None:
    stop = anyio.CancelScope()

    async def finish_while_stopped(command: BuildCandidate) -> CandidateBuilt:
        stop.cancel()
        return built(command)

    with stop:
        await bench.do_one(finish_while_stopped)
    assert stop.cancelled_caught
    assert await bench.bus.find(RUN, "j1.r", role="builder") is not None


async def test_slots_work_at_once_and_no_more_than_that(bench: Bench) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        await anyio.sleep(10)
        return built(command)

    async with bench.working(handle, slots=3) as bus:
        for number in range(6):
            await bus.submit(QUEUE, encode(job(number)), msg_id=f"j{number}")
        counts = []
        for _ in range(3):
            await anyio.sleep(9)
            counts.append(len(bench.events()))
    assert counts == [0, 3, 6]


async def test_a_long_job_is_kept_by_heartbeats(bench: Bench) -> None:
    begun: list[str] = []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        begun.append(command.job_id)
        await anyio.sleep(200)
        return built(command)

    async with bench.working(handle, slots=2) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(300)
    assert begun == ["j1"]
    assert len(bench.events()) == 1


async def test_the_work_for_a_cancelled_run_stops_at_the_next_heartbeat(bench: Bench) -> None:
    stopped_at: list[float] = []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        try:
            await anyio.sleep(1000)
        finally:
            stopped_at.append(anyio.current_time())
        return built(command)

    async with bench.working(handle) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(25)
        await bus.cancel_run(RUN)
        await anyio.sleep(100)
    assert stopped_at == [pytest.approx(30)]
    assert bench.events() == []


async def test_an_error_that_may_pass_is_tried_again_later_each_time_after_a_longer_rest(bench: Bench) -> None:
    tried_at: list[float] = []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        tried_at.append(anyio.current_time())
        if len(tried_at) < 4:
            raise EvaluatorError("device busy")
        return built(command)

    await bench.do_one(handle)
    pauses = [after - before for before, after in pairwise(tried_at)]
    assert pauses == [pytest.approx(pause) for pause in (1, 2, 4)]
    assert len(bench.events()) == 1


async def test_a_job_that_always_fails_is_given_up_with_the_last_error(bench: Bench) -> None:
    tries: list[str] = []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        tries.append(command.job_id)
        raise ModelError(f"overloaded, try {len(tries)}")

    async with bench.working(handle) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(100)
    lost = JobLost(job_id="j1", kind="build", error="overloaded, try 4", permanent=False)
    assert [(posted.msg_id, decode_body(posted.payload)) for posted in bench.events()] == [("j1.r", lost)]


@pytest.mark.parametrize("kind", [ModelError, EvaluatorError])
async def test_an_error_that_will_not_pass_is_an_event_and_not_tried_again(
    bench: Bench, kind: type[ModelError | EvaluatorError]
) -> None:
    tries: list[str] = []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        tries.append(command.job_id)
        raise kind("wrong key", permanent=True)

    async with bench.working(handle) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(100)
    assert tries == ["j1"]
    lost = JobLost(job_id="j1", kind="build", error="wrong key", permanent=True)
    assert [(posted.msg_id, decode_body(posted.payload)) for posted in bench.events()] == [("j1.r", lost)]


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"\xc1", "cannot be read: "),
        (
            encode(
                EvaluateCandidate(
                    job_id="j1",
                    run_id=RUN,
                    task=TaskSpec(name="t", source="kernelbench", text=""),
                    candidate=CANDIDATE,
                    artifact_id="a",
                    target=TARGET,
                )
            ),
            "EvaluateCandidate is no BuildCandidate",
        ),
    ],
    ids=["junk", "another command"],
)
async def test_a_job_that_is_none_is_dead_lettered_and_the_worker_goes_on(
    bench: Bench, payload: bytes, complaint: str
) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        return built(command)

    async with bench.working(handle) as bus:
        await bus.submit(QUEUE, payload, msg_id="j1")
        await bus.submit(QUEUE, encode(job(2)), msg_id="j2")
        with anyio.fail_after(100):
            letter = await bus.next_dead_letter(RUN)
        await anyio.sleep(1)
    assert letter.reason.startswith(complaint)
    assert [posted.msg_id for posted in bench.events()] == ["j2.r"]


async def test_a_bug_in_a_handler_reaches_the_supervisor_and_the_job_is_handed_back(bench: Bench) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await bench.do_one(handle)
    assert caught.group_contains(ZeroDivisionError)
    assert (await bench.pull(within_s=5)).attempt == 2


async def test_a_worker_that_is_stopped_hands_its_jobs_back_for_others_to_do_at_once(bench: Bench) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        await anyio.sleep(1000)
        return built(command)

    async with bench.working(handle) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(1)
    assert (await bench.pull(within_s=5)).attempt == 2


async def test_a_job_done_twice_is_one_event(bench: Bench) -> None:
    async def handle(command: BuildCandidate) -> CandidateBuilt:
        return built(command)

    async with bench.working(handle) as bus:
        for _ in range(2):
            await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
            await anyio.sleep(10)
    assert len(bench.events()) == 1


async def test_a_job_that_comes_again_while_it_is_in_work_here_is_not_done_beside_itself(bench: Bench) -> None:
    begun: list[str] = []

    async def handle(command: BuildCandidate) -> CandidateBuilt:
        begun.append(command.job_id)
        await anyio.sleep(40)
        return built(command)

    # A bus that hears nothing of a job gives it to the next who asks, here the same worker.
    async with bench.working(handle, slots=2, heartbeat_s=1000) as bus:
        await bus.submit(QUEUE, encode(job(1)), msg_id="j1")
        await anyio.sleep(200)
    assert begun == ["j1"]
    assert len(bench.events()) == 1
