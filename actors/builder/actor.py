"""The builder: compiles what it is sent. It decides nothing and remembers nothing."""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.worker.member import Member
from actors.worker.taking import Queues
from actors.worker.work import serve
from evaluators.base import Builder
from messages.commands import BuildCandidate
from messages.events import CandidateBuilt


async def serve_builds(
    bus: Bus,
    builder: Builder,
    *,
    queues: Queues,
    slots: int = 1,
    member: Member | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer every `BuildCandidate` of some queues with a `CandidateBuilt` until cancelled, or the member leaves.

    Args:
        bus: where the queues and the runs' streams are.
        builder: compiles.
        queues: whose jobs, see `messages.subjects.build_jobs`.
        slots: builds at once.
        member: the process's presence; None: a run of one process.
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

    await serve(
        bus,
        queues,
        build,
        expects=BuildCandidate,
        role="builder",
        slots=slots,
        member=member,
        task_status=task_status,
    )
