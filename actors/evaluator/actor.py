"""The evaluator actor: has candidates judged. It imports no torch: judging happens in processes of the evaluator's."""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.worker.member import Member
from actors.worker.taking import Queues
from actors.worker.work import DEADLINE_S, serve
from evaluators.base import Evaluator
from messages.base import ConfigError, EvaluatorError
from messages.commands import EvaluateCandidate
from messages.events import CandidateEvaluated


async def serve_evaluations(
    bus: Bus,
    evaluator: Evaluator,
    *,
    queues: Queues,
    slots: int = 1,
    member: Member | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer every `EvaluateCandidate` of some queues with a `CandidateEvaluated` until cancelled or the member leaves.

    Args:
        bus: where the queues and the runs' streams are.
        evaluator: judges; it sees to it that timings on one device do not overlap.
        queues: whose jobs, see `messages.subjects.evaluate_jobs`.
        slots: evaluations at once.
        member: the process's presence; None: a run of one process.
        task_status: told when the first pull is about to begin.
    """

    async def evaluate(job: EvaluateCandidate) -> CandidateEvaluated:
        try:
            report = await evaluator.evaluate(job)
        except ConfigError as error:
            # Who submitted the task had it described, so it can be used: it is this host that cannot, or not now.
            raise EvaluatorError(f"this host cannot judge the task: {error}") from error
        return CandidateEvaluated(
            job_id=job.job_id,
            candidate_id=job.candidate.candidate_id,
            verdict=report.verdict,
            purpose=job.purpose,
            device=report.device,
            unit=report.unit,
            wall_s=report.wall_s,
            lease_s=report.lease_s,
            isolation=report.isolation,
        )

    await serve(
        bus,
        queues,
        evaluate,
        expects=EvaluateCandidate,
        role="evaluator",
        slots=slots,
        deadline_s=_deadline_s,
        member=member,
        task_status=task_status,
    )


def _deadline_s(job: EvaluateCandidate) -> float:
    """Return how long an evaluation may take: a user's scorer has the user's limit, and may be waited for."""
    return DEADLINE_S + (2 * job.task.scorer.timeout_s if job.task.scorer else 0.0)
