"""The builder: compiles what it is sent. It decides nothing and remembers nothing."""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.work import serve
from evaluators.base import Builder
from messages.commands import BuildCandidate
from messages.events import CandidateBuilt


async def serve_builds(
    bus: Bus,
    builder: Builder,
    *,
    run_id: str,
    queue: str,
    slots: int = 1,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer every `BuildCandidate` of a queue with a `CandidateBuilt` until cancelled.

    Args:
        bus: where the queue and the run's stream are.
        builder: compiles.
        run_id: on whose stream the answers are published.
        queue: whose jobs, see `messages.subjects.build_jobs`.
        slots: builds at once.
        task_status: told when the first pull is about to begin.
    """

    async def build(job: BuildCandidate) -> CandidateBuilt:
        report = await builder.build(job)
        return CandidateBuilt(
            job_id=job.job_id,
            candidate_id=job.candidate.candidate_id,
            outcome=report.outcome,
            target=job.target,
            cached=report.cached,
            wall_s=report.wall_s,
            cpu_s=report.cpu_s,
        )

    await serve(bus, queue, build, expects=BuildCandidate, run_id=run_id, slots=slots, task_status=task_status)
