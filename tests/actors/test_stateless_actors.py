"""Builder and evaluator actors: what they are told becomes what they say."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from actors.builder import serve_builds
from actors.bus.base import QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.evaluator import serve_evaluations
from actors.worker.taking import FixedQueues
from evaluators.base import BuildReport, EvaluationReport
from messages.codec import Body, decode_body, encode
from messages.commands import BuildCandidate, Command, EvaluateCandidate
from messages.events import Built, CandidateBuilt, CandidateEvaluated
from messages.tasks import Candidate, SourceFile, Target, TaskSpec
from messages.verdicts import DidNotBuild, Wrong

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

RUN = "r1"
QUEUE = "ks.job.any.r1"
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 13", device="CPU")
CANDIDATE = Candidate(language="cpp", entry_point="f", files=(SourceFile(path="a.cpp", text="int x;"),))
BUILD = BuildCandidate(job_id="j1", run_id=RUN, candidate=CANDIDATE, target=TARGET)
EVALUATE = EvaluateCandidate(
    job_id="j1",
    run_id=RUN,
    task=TaskSpec(name="t", source="kernelbench", text=""),
    candidate=CANDIDATE,
    artifact_id="a",
    target=TARGET,
    purpose="confirm",
)


class OneReportBuilder:
    def __init__(self, report: BuildReport) -> None:
        self._report = report

    async def build(self, job: BuildCandidate) -> BuildReport:
        assert job == BUILD
        return self._report


class OneReportEvaluator:
    def __init__(self, report: EvaluationReport) -> None:
        self._report = report

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        assert job == EVALUATE
        return self._report

    async def aclose(self) -> None:
        pass


async def prepared_bus(command: Command) -> MemoryBus:
    bus = MemoryBus(lambda _: MemoryStore())
    await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN))
    await bus.open_stream(RUN)
    await bus.submit(QUEUE, encode(command), msg_id=command.job_id)
    return bus


async def first_event(bus: MemoryBus) -> Body:
    with anyio.fail_after(100):
        return decode_body((await anext(bus.events(RUN))).payload)


@pytest.mark.parametrize("outcome", [Built(artifact_id="a", log="1 warning"), DidNotBuild(reason="no ;")])
async def test_a_build_is_told_as_an_event_whether_it_compiled_or_not(outcome: Built | DidNotBuild) -> None:
    bus = await prepared_bus(BUILD)
    builder = OneReportBuilder(BuildReport(outcome=outcome, cached=False, wall_s=1.5, cpu_s=1.25))
    async with anyio.create_task_group() as tasks:

        async def start(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve_builds(bus, builder, queues=FixedQueues(QUEUE), slots=2, task_status=task_status)

        await tasks.start(start)
        event = await first_event(bus)
        tasks.cancel_scope.cancel()
    assert event == CandidateBuilt(
        job_id="j1",
        candidate_id=CANDIDATE.candidate_id,
        outcome=outcome,
        target=TARGET,
        cached=False,
        wall_s=1.5,
        cpu_s=1.25,
    )


async def test_a_verdict_is_told_as_an_event_with_what_it_cost_and_what_it_was_for() -> None:
    bus = await prepared_bus(EVALUATE)
    verdict = Wrong(reason="off by one")
    evaluator = OneReportEvaluator(EvaluationReport(verdict=verdict, device="CPU", wall_s=2.0, lease_s=0.5))
    async with anyio.create_task_group() as tasks:

        async def start(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve_evaluations(bus, evaluator, queues=FixedQueues(QUEUE), slots=2, task_status=task_status)

        await tasks.start(start)
        event = await first_event(bus)
        tasks.cancel_scope.cancel()
    assert event == CandidateEvaluated(
        job_id="j1",
        candidate_id=CANDIDATE.candidate_id,
        verdict=verdict,
        purpose="confirm",
        device="CPU",
        wall_s=2.0,
        lease_s=0.5,
    )


@pytest.mark.parametrize("module", ["actors.builder", "actors.evaluator", "actors.recorder", "actors.bus.memory"])
def test_actors_do_not_load_torch(module: str) -> None:
    program = f"import sys, {module}; print(sorted({{'torch', 'triton', 'openai'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
