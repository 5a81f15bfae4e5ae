"""The evaluator actor: has candidates judged. It imports no torch: judging happens in processes of the evaluator's."""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.work import serve
from evaluators.base import Evaluator
from messages.commands import EvaluateCandidate
from messages.events import CandidateEvaluated


async def serve_evaluations(
    bus: Bus,
    evaluator: Evaluator,
    *,
    run_id: str,
    queue: str,
    slots: int = 1,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer every `EvaluateCandidate` of a queue with a `CandidateEvaluated` until cancelled.

    Args:
        bus: where the queue and the run's stream are.
        evaluator: judges; it sees to it that timings on one device do not overlap.
        run_id: on whose stream the answers are published.
        queue: whose jobs, see `messages.subjects.evaluate_jobs`.
        slots: evaluations at once.
        task_status: told when the first pull is about to begin.
    """

    async def evaluate(job: EvaluateCandidate) -> CandidateEvaluated:
        report = await evaluator.evaluate(job)
        return CandidateEvaluated(
            job_id=job.job_id,
            candidate_id=job.candidate.candidate_id,
            verdict=report.verdict,
            purpose=job.purpose,
            device=report.device,
            wall_s=report.wall_s,
            lease_s=report.lease_s,
        )

    await serve(bus, queue, evaluate, expects=EvaluateCandidate, run_id=run_id, slots=slots, task_status=task_status)
