"""Coders, builders and evaluators of one run in a few lines: they answer what is queued, on any bus."""

from __future__ import annotations

from collections import Counter

import anyio

from actors.bus.base import Bus, Delivery, UnknownQueueError
from actors.planner.jobs import queues_of
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from messages.base import Usage
from messages.codec import decode_command, encode
from messages.commands import BuildCandidate, EvaluateCandidate, WriteCandidate
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, RunStarted
from messages.subjects import role_of
from messages.tasks import Candidate, SourceFile
from tests.actors.planner.rig import landscape


class Hands:
    """Answers jobs until cancelled, and counts how often each was done."""

    def __init__(self, bus: Bus, started: RunStarted, *, work_s: float = 1.0) -> None:
        self.done: Counter[str] = Counter()
        self.lost: set[str] = set()
        """Ids of jobs that were taken and forgotten."""
        self.loses_next = 0
        self._bus = bus
        self._started = started
        self._work_s = work_s
        self._builder = SimulatedBuilder()
        self._evaluator = SimulatedEvaluator(landscape)

    async def work(self, *, slots: int = 4) -> None:
        async with anyio.create_task_group() as tasks:
            for queue in queues_of(self._started):
                for _ in range(slots):
                    tasks.start_soon(self._serve, queue)

    async def _serve(self, queue: str) -> None:
        while True:
            try:
                delivery = await self._bus.pull(queue)
            except UnknownQueueError:
                await anyio.sleep(0.1)
            else:
                await self._answer(delivery)

    async def _answer(self, delivery: Delivery) -> None:
        job = decode_command(delivery.payload)
        run_id, role = self._started.run_id, role_of(delivery.queue)
        if self.loses_next:
            self.loses_next -= 1
            self.lost.add(job.job_id)
        elif job.job_id in self.done:  # as workers do: its answer may still wait to be published
            await self._bus.publish(run_id, await self._result(job), msg_id=f"{job.job_id}.r", role=role)
        elif await self._bus.find(run_id, f"{job.job_id}.r") is None:
            self.done[job.job_id] += 1
            await anyio.sleep(self._work_s)
            try:
                await self._bus.publish(run_id, await self._result(job), msg_id=f"{job.job_id}.r", role=role)
            except UnknownQueueError:
                return
        await delivery.ack()

    async def _result(self, job: WriteCandidate | BuildCandidate | EvaluateCandidate) -> bytes:
        match job:
            case WriteCandidate():
                candidate = Candidate(
                    language="cpp", entry_point="f", files=(SourceFile(path="k.cpp", text=f"// {job.job_id}"),)
                )
                return encode(
                    CandidateWritten(
                        job_id=job.job_id,
                        branch_id=job.branch_id,
                        candidate=candidate,
                        prompt="",
                        answer="",
                        model="hands",
                        usage=Usage(calls=1),
                        latency_s=self._work_s,
                    )
                )
            case BuildCandidate():
                built = await self._builder.build(job)
                return encode(
                    CandidateBuilt(
                        job_id=job.job_id,
                        candidate_id=job.candidate.candidate_id,
                        outcome=built.outcome,
                        target=job.target,
                    )
                )
            case EvaluateCandidate():
                report = await self._evaluator.evaluate(job)
                return encode(
                    CandidateEvaluated(
                        job_id=job.job_id,
                        candidate_id=job.candidate.candidate_id,
                        verdict=report.verdict,
                        device="simulated",
                    )
                )
