"""The evaluator actor: has candidates judged. It does not import torch; judging runs in the evaluator's processes."""

from __future__ import annotations

from typing import Unpack

from actors.bus.base import Bus
from actors.worker.work import DEADLINE_S, Service, serve
from evaluators.base import Evaluator
from messages.base import ConfigError, EvaluatorError, copied
from messages.commands import EvaluateCandidate
from messages.events import CandidateEvaluated


async def serve_evaluations(bus: Bus, evaluator: Evaluator, **service: Unpack[Service]) -> None:
    """Answer every `EvaluateCandidate` of some queues with a `CandidateEvaluated` until cancelled or the member leaves.

    The evaluator ensures that timings on one device do not overlap.
    """

    async def evaluate(job: EvaluateCandidate) -> CandidateEvaluated:
        try:
            report = await evaluator.evaluate(job)
        except ConfigError as error:
            # The task was described when it was submitted, so it is usable; this host cannot judge it, or not now.
            raise EvaluatorError(f"this host cannot judge the task: {error}") from error
        return copied(
            CandidateEvaluated,
            report,
            job_id=job.job_id,
            candidate_id=job.candidate.candidate_id,
            purpose=job.purpose,
        )

    await serve(bus, handle=evaluate, expects=EvaluateCandidate, role="evaluator", deadline_s=_deadline_s, **service)


def _deadline_s(job: EvaluateCandidate) -> float:
    """Return the time limit for an evaluation; a user's scorer has the user's limit and may have to be awaited."""
    return DEADLINE_S + (2 * job.task.scorer.timeout_s if job.task.scorer else 0.0)
