"""Workers whose host, handler or result is at fault leave jobs to others, and say why."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from anyio.abc import TaskStatus

from actors.bus.base import MAX_EVENT_BYTES, Bus
from messages.base import EvaluatorError
from messages.codec import encode
from messages.commands import BuildCandidate
from messages.events import Built, CandidateBuilt, JobLost
from tests.actors.builders import Handler, Timed, said, waiting, working
from tests.actors.words import build_job, built, card, memory_bus, open_build_run, put_card, submit_build

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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
