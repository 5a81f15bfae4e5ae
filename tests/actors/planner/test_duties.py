"""What the planner of a distributed run owes to others: lost jobs found again, and missing workers reported."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import msgspec
import pytest

from actors.planner.core.state import Job, SearchState, put
from actors.planner.history import fold
from actors.planner.leadership import lead
from actors.planner.unserved import UnservedWatch
from messages.base import Role
from messages.codec import encode
from messages.events import Built, CandidateBuilt, JobLost, JobsUnserved
from messages.facts import BuildRequested, EvaluationRequested, LossNoted, WriteRequested
from messages.presence import Busy, Presence, Served, WorkerState, encode_entry, node_key
from messages.tasks import Target
from tests.actors.planner.rig import TARGET
from tests.actors.planner.setting import RUN, Setting

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_a_job_that_the_bus_has_lost_is_submitted_again() -> None:
    setting = Setting()
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await setting.until_rounds(5)
        setting.hands.loses_next = 3
        await setting.until_ended("p1")
    assert len(setting.hands.lost) == 3
    assert all(setting.hands.done[job_id] == 1 for job_id in setting.hands.lost)
    await setting.assert_whole()


async def test_an_answer_that_came_before_its_job_and_is_none_costs_the_job_and_not_the_run() -> None:
    setting = Setting()
    async with setting.going() as tasks:
        stray = CandidateBuilt(job_id=f"{RUN}-w20", candidate_id="c", outcome=Built(artifact_id="a"), target=TARGET)
        ids = [f"{RUN}-w{number}" for number in range(10, 60, 7)]
        for job_id in ids:
            await setting.bus.publish(RUN, encode(msgspec.structs.replace(stray, job_id=job_id)), msg_id=f"{job_id}.r")
        tasks.start_soon(setting.lead, "p1")
        await setting.until_ended("p1")
    lost = [body.job_id for _, body in await setting.bodies() if isinstance(body, JobLost)]
    noted = [
        fact.job_id for decision in await setting.decisions() for fact in decision.facts if isinstance(fact, LossNoted)
    ]
    assert lost
    assert set(lost) <= set(ids)
    assert lost == noted


def presence(
    role: Role,
    state: WorkerState = "ready",
    *,
    target: Target | None = TARGET,
    tier: str = "",
    detail: str = "",
    busy: Iterable[str] = (),
) -> Presence:
    served = (Served(language="cpp", target=target),) if target is not None else ()
    return Presence(
        name=f"{role}-h-1-abcd",
        role=role,
        host="h",
        pid=1,
        version="0",
        state=state,
        detail=detail,
        served=served if role != "coder" else (),
        tier=tier,
        busy=tuple(Busy(job_id=job_id, run_id=RUN, since="") for job_id in busy),
        started_at="",
        seen_at="",
    )


STARTED = msgspec.structs.replace(Setting().started, tier="large")
WRITE = WriteRequested(job_id="rig-w1", branch_id="b1", mode="apply", base_id=None, current_id=None)
BUILD = BuildRequested(job_id="rig-x2", branch_id="b1", candidate_id="c")
EVALUATE = EvaluationRequested(job_id="rig-e3", branch_id="b1", candidate_id="c", artifact_id="a")


def owing(*requests: WriteRequested | BuildRequested | EvaluationRequested) -> SearchState:
    state = SearchState()
    for request in requests:
        state = put(state, "jobs", request.job_id, Job(request=request))
    return state


def looks(state: SearchState, there: list[Presence], *times: float) -> list[list[JobsUnserved]]:
    watch = UnservedWatch(STARTED)
    return [watch.look(state, there, now) for now in times]


def test_missing_workers_are_reported_after_a_while_once_and_then_now_and_then() -> None:
    found = looks(owing(EVALUATE), [], 0.0, 19.0, 20.0, 25.0, 319.0, 320.0, 325.0)
    assert [len(said) for said in found] == [0, 0, 1, 0, 0, 1, 0]
    said = found[2][0]
    assert (said.kind, said.role, said.waiting_s) == ("evaluate", "evaluator", 20.0)
    assert said.queue == "ks.job.evaluate.x86-64.cpp.rig"
    assert said.detail == (
        "needed is cpp on cpu, g++ 12, -march=x86-64-v3; at hand: nobody; start one with ksearch evaluator --nats URL"
    )


@pytest.mark.parametrize(
    ("request_", "worker"),
    [
        (WRITE, presence("coder", tier="large")),
        (BUILD, presence("builder")),
        (EVALUATE, presence("evaluator")),
        (EVALUATE, presence("evaluator", "leaving", busy=["rig-e3"])),
    ],
    ids=["coder", "builder", "evaluator", "one that leaves and has the job"],
)
def test_jobs_that_somebody_does_are_not_reported(
    request_: WriteRequested | BuildRequested | EvaluationRequested, worker: Presence
) -> None:
    assert looks(owing(request_), [worker], 0.0, 20.0, 400.0) == [[], [], []]
    assert looks(owing(request_), [], 0.0, 20.0)[-1]


def test_what_is_withheld_or_not_there_needs_nobody() -> None:
    withheld = put(SearchState(), "jobs", BUILD.job_id, Job(request=BUILD, withheld=True))
    assert looks(withheld, [], 0.0, 20.0) == [[], []]
    assert looks(SearchState(), [], 0.0, 20.0) == [[], []]


def test_waiting_begins_anew_when_somebody_came_meanwhile() -> None:
    watch, state = UnservedWatch(STARTED), owing(BUILD)
    assert watch.look(state, [], 0.0) == []
    assert watch.look(state, [presence("builder")], 15.0) == []
    assert watch.look(state, [], 16.0) == []
    assert watch.look(state, [], 30.0) == []
    assert len(watch.look(state, [], 36.0)) == 1


OTHER_DEVICE = msgspec.structs.replace(TARGET, device="NVIDIA H100")
OTHER_COMPILER = msgspec.structs.replace(TARGET, toolchain="g++ 13")


@pytest.mark.parametrize(
    ("request_", "there", "words"),
    [
        (
            EVALUATE,
            [presence("evaluator", target=OTHER_DEVICE)] * 2 + [presence("evaluator", target=OTHER_COMPILER)],
            "at hand: 2 evaluators for cpp on NVIDIA H100, 1 evaluator for cpp on cpu, g++ 13, -march=x86-64-v3;",
        ),
        (
            EVALUATE,
            [presence("evaluator", "unfit", detail="wrong result"), presence("evaluator", "proving")],
            "at hand: 1 evaluator that proves itself first, 1 evaluator unfit: wrong result;",
        ),
        (BUILD, [presence("builder", target=OTHER_COMPILER)], "at hand: 1 builder for cpp, x86_64, g++ 13;"),
        (BUILD, [presence("builder", "unfit", target=None, detail="no g++")], "at hand: 1 builder unfit: no g++;"),
        (WRITE, [presence("coder", tier="small")], "needed is tier large; at hand: 1 coder of tier small;"),
        (
            WRITE,
            [presence("coder", "left", tier="large")],
            "at hand: nobody; start one with ksearch coder --nats URL --tier large",
        ),
    ],
)
def test_the_report_says_who_is_there_instead_and_why_that_does_not_help(
    request_: WriteRequested | BuildRequested | EvaluationRequested, there: list[Presence], words: str
) -> None:
    said = looks(owing(request_), there, 0.0, 20.0)[-1]
    assert len(said) == 1
    assert words in said[0].detail


async def test_a_run_that_nobody_works_for_says_so_within_half_a_minute() -> None:
    setting = Setting()
    setting.started = msgspec.structs.replace(setting.started, tier="large")
    await setting.begin()
    for other in (presence("coder", tier="small"), presence("builder")):
        await setting.bus.put(node_key(other.role, other.name), encode_entry(other), revision=0)
    async with anyio.create_task_group() as tasks:

        async def plan() -> None:
            await lead(setting.bus, setting, run_id=RUN, holder="p1")

        tasks.start_soon(plan)
        await anyio.sleep(30.0)
        said = [body for _, body in await setting.bodies() if isinstance(body, JobsUnserved)]
        assert [body.kind for body in said] == ["write"]
        assert "1 coder of tier small" in said[0].detail
        await anyio.sleep(250.0)
        assert len([body for _, body in await setting.bodies() if isinstance(body, JobsUnserved)]) == 1
        await anyio.sleep(60.0)
        assert len([body for _, body in await setting.bodies() if isinstance(body, JobsUnserved)]) == 2
        assert not fold(await setting.bodies()).state.finished
        tasks.cancel_scope.cancel()
