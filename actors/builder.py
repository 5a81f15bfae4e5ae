"""The builder: compiles the candidates it receives. It makes no decisions and keeps no state."""

from __future__ import annotations

from typing import Unpack

from actors.bus.base import Bus
from actors.worker.work import Service, serve
from evaluators.base import Builder
from messages.base import copied
from messages.commands import BuildCandidate
from messages.events import CandidateBuilt


async def serve_builds(bus: Bus, builder: Builder, **service: Unpack[Service]) -> None:
    """Answer every `BuildCandidate` of some queues with a `CandidateBuilt` until cancelled or the member leaves."""

    async def build(job: BuildCandidate) -> CandidateBuilt:
        report = await builder.build(job)
        candidate_id = job.candidate.candidate_id
        return copied(CandidateBuilt, report, job_id=job.job_id, candidate_id=candidate_id, target=job.target)

    await serve(bus, handle=build, expects=BuildCandidate, role="builder", **service)
