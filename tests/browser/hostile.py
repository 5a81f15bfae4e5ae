"""A run in which everything that models, kernels and workers write is hostile to the page that shows it."""

from __future__ import annotations

import msgspec

from messages.base import Usage
from messages.codec import Body, Record
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, RunStarted
from messages.facts import (
    AttemptFinished,
    BranchStarted,
    BuildRequested,
    EditsApplied,
    EvaluationRequested,
    SpendRecorded,
    WriteRequested,
)
from messages.tasks import Candidate, SourceFile
from messages.verdicts import DidNotBuild, Interval, Measured, TimedWorkload
from tests.browser.live_run import HOSTILE
from tests.ksearch_async.stories import RUN_ID, TARGET, decided, inserted, records_of, story

READABLE = HOSTILE.replace("\x1b", "\u2039U+001B\u203a").replace("\u202e", "\u2039U+202E\u203a")
"""`HOSTILE`, as a person can judge it."""
LONG_LINE = HOSTILE + "x" * (1_000_000 - len(READABLE))
"""Shows as a million characters."""
RIGHT = Candidate(
    language="cpp",
    entry_point="ksearch_run",
    files=(SourceFile(path="kernel.cpp", text=f"// {HOSTILE}\n"), SourceFile(path="long.h", text=LONG_LINE)),
)
BROKEN = Candidate(
    language="cpp",
    entry_point="ksearch_run",
    files=(SourceFile(path=f"{HOSTILE}.cpp", text=f"int {HOSTILE}\n"),),
)


def hostile_run() -> list[Record]:
    """Return the run: one candidate is right, another does not build."""
    opening, first = (record.body for record in story()[:2])
    assert isinstance(opening, RunStarted)
    began = (
        EditsApplied(job_id=f"{RUN_ID}-p1", changes=(inserted("n1", "n0", HOSTILE),)),
        BranchStarted(branch_id="b2", node_id="n1", base_id=None),
    )
    task = msgspec.structs.replace(opening.task, name=HOSTILE)
    bodies: list[Body] = [msgspec.structs.replace(opening, task=task), first, decided(*began)]
    return records_of([*bodies, *_right(), *_broken()])


def _right() -> list[Body]:
    interval = Interval(low=1.9, high=2.1)
    timed = TimedWorkload(
        name=HOSTILE, latency_us=1.0, reference_latency_us=2.0, speedup_vs_reference=2.0, speedup_interval=interval
    )
    verdict = Measured(
        timed=True,
        latency_us=1.0,
        reference_latency_us=2.0,
        speedup_vs_reference=2.0,
        speedup_interval=interval,
        notes=(HOSTILE,),
        workloads=(timed, timed),
    )
    job_id = f"{RUN_ID}-e5"
    asked = EvaluationRequested(job_id=job_id, branch_id="b2", candidate_id=RIGHT.candidate_id, artifact_id="a")
    return [
        *_written(RIGHT, f"{RUN_ID}-w3"),
        decided(SpendRecorded(role="coder", model=HOSTILE, node_id="n1", usage=Usage(calls=1)), asked),
        CandidateEvaluated(
            job_id=job_id, candidate_id=RIGHT.candidate_id, verdict=verdict, device=HOSTILE, worker=HOSTILE
        ),
        _finished(RIGHT, "measured"),
    ]


def _broken() -> list[Body]:
    job_id = f"{RUN_ID}-x7"
    outcome = DidNotBuild(reason=HOSTILE, log=f"error: {HOSTILE}")
    return [
        *_written(BROKEN, f"{RUN_ID}-w6"),
        decided(BuildRequested(job_id=job_id, branch_id="b2", candidate_id=BROKEN.candidate_id)),
        CandidateBuilt(job_id=job_id, candidate_id=BROKEN.candidate_id, outcome=outcome, target=TARGET, worker=HOSTILE),
        _finished(BROKEN, "did_not_build"),
    ]


def _written(candidate: Candidate, job_id: str) -> list[Body]:
    asked = WriteRequested(job_id=job_id, branch_id="b2", mode="apply", base_id=None, current_id=None)
    answer = CandidateWritten(
        job_id=job_id,
        branch_id="b2",
        candidate=candidate,
        prompt=f"write {HOSTILE}",
        answer=f"I wrote {HOSTILE}",
        model=HOSTILE,
        usage=Usage(calls=1),
        latency_s=0.1,
        worker=HOSTILE,
    )
    return [decided(asked), answer]


def _finished(candidate: Candidate, fate: str) -> Body:
    finished = AttemptFinished(branch_id="b2", candidate_id=candidate.candidate_id, fate=fate, outcome=HOSTILE, round=1)
    return decided(finished)
