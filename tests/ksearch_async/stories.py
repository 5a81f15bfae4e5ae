"""A short run, record by record, for tests of what is shown of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ksearch_async.runs.folder import RunFolder
from messages.base import Usage
from messages.codec import Body, Record, encode_line
from messages.events import CandidateEvaluated, CandidateWritten, RunStarted
from messages.facts import (
    AttemptFinished,
    BranchStarted,
    BuildRequested,
    Decided,
    EditsApplied,
    EvaluationRequested,
    Fact,
    IncumbentChanged,
    NodeInserted,
    PlanRequested,
    RunFinished,
    RunStopping,
    SearchOpened,
    SpendRecorded,
    StoppedBy,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate, SourceFile, Target, TaskDescription, TaskSpec
from messages.verdicts import Interval, Measured, Verdict, Wrong, credit_of, fate_of, outcome_line

RUN_ID = "relu-20261120-142301-k3f9"
SETTINGS = SearchSettings(branches=1, confirm=False, budget=Budget(max_rounds=2))
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 12", device="AMD EPYC")
TASK = TaskSpec(name="relu", source="kernelbench", text="class Model: ...")
KERNEL = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text="// fast\n"),))
SLOPPY = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text="// no\n"),))
FAST = Measured(
    timed=True,
    latency_us=50.0,
    reference_latency_us=100.0,
    speedup_vs_reference=2.0,
    speedup_interval=Interval(low=1.9, high=2.1),
    pairs=20,
)


FASTER_KERNEL = Candidate(
    language="cpp",
    entry_point="ksearch_run",
    files=(
        SourceFile(path="kernel.cpp", text="// fast\n#include <rows.h>\n"),
        SourceFile(path="rows.h", text="// rows\n"),
    ),
)
FASTER = Measured(
    timed=True,
    latency_us=40.0,
    reference_latency_us=100.0,
    speedup_vs_reference=2.5,
    speedup_interval=Interval(low=2.4, high=2.6),
    pairs=20,
)


def story(stopped_by: StoppedBy | None = "rounds") -> list[Record]:
    """Return a run of two rounds: a wrong candidate, then a fast one. With None it was killed before its end."""
    description = TaskDescription(
        task_id=TASK.task_id,
        name="relu",
        language="cpp",
        tensors=(),
        prompt="the secret of a long prompt",
        entry_point="ksearch_run",
        bytes_moved=1,
    )
    opening = RunStarted(run_id=RUN_ID, task=TASK, description=description, target=TARGET, settings=SETTINGS, seed=0)
    bodies: list[Body] = [
        opening,
        decided(
            SearchOpened(run_id=RUN_ID, task_id=TASK.task_id, target=TARGET, settings=SETTINGS, seed=0),
            PlanRequested(job_id=f"{RUN_ID}-p1", purpose="analyse"),
        ),
        decided(
            EditsApplied(job_id=f"{RUN_ID}-p1", changes=(inserted("n1", "n0", "fuse the passes"),)),
            BranchStarted(branch_id="b2", node_id="n1", base_id=None),
        ),
        *attempt(3, SLOPPY, Wrong(reason="17 of 64 elements are wrong")),
        *attempt(6, KERNEL, FAST),
    ]
    if stopped_by is not None:
        end = RunFinished(stopped_by=stopped_by, rounds=2, best_id=KERNEL.candidate_id, credit=1.9, speedup=2.0)
        bodies.append(decided(RunStopping(stopped_by=stopped_by), end))
    return records_of(bodies)


def attempt(
    number: int, candidate: Candidate, verdict: Verdict, *, branch_id: str = "b2", node_id: str = "n1"
) -> list[Body]:
    """Return the records of one attempt of a branch, in the round that its job's number says."""
    write, build, evaluate = (f"{RUN_ID}-{kind}{number + step}" for step, kind in enumerate("wxe"))
    candidate_id, round_number = candidate.candidate_id, number // 3
    measured = verdict if isinstance(verdict, Measured) else None
    finished = AttemptFinished(
        branch_id=branch_id,
        candidate_id=candidate_id,
        fate=fate_of(verdict),
        outcome=outcome_line(verdict),
        credit=credit_of(verdict),
        speedup=measured.speedup_vs_reference if measured else None,
        latency_us=measured.latency_us if measured else None,
        round=round_number,
    )
    end: list[Fact] = [finished]
    if measured is not None and measured.timed:
        end.append(
            IncumbentChanged(
                candidate_id=candidate_id,
                node_id=node_id,
                round=round_number,
                credit=credit_of(verdict) or 0.0,
                speedup=measured.speedup_vs_reference or 0.0,
                latency_us=measured.latency_us or 0.0,
            )
        )
    return [
        decided(WriteRequested(job_id=write, branch_id=branch_id, mode="apply", base_id=None, current_id=None)),
        CandidateWritten(
            job_id=write,
            branch_id=branch_id,
            candidate=candidate,
            prompt="the secret of a long prompt",
            answer="the secret of a long answer",
            model="offline",
            usage=Usage(calls=1),
            latency_s=0.1,
        ),
        decided(
            SpendRecorded(role="coder", usage=Usage(calls=1, prompt_tokens=10)),
            BuildRequested(job_id=build, branch_id=branch_id, candidate_id=candidate_id),
            EvaluationRequested(job_id=evaluate, branch_id=branch_id, candidate_id=candidate_id, artifact_id="a"),
        ),
        CandidateEvaluated(job_id=evaluate, candidate_id=candidate_id, verdict=verdict, device="AMD EPYC"),
        decided(*end),
    ]


def sequel() -> list[Record]:
    """Return the story's run as it might have gone on: an action under the first, a faster candidate of two files."""
    bodies: list[Body] = [
        decided(
            inserted("n2", "n1", "split the rows"),
            BranchStarted(branch_id="b20", node_id="n2", base_id=KERNEL.candidate_id),
        ),
        *attempt(9, FASTER_KERNEL, FASTER, branch_id="b20", node_id="n2"),
    ]
    told = story(None)
    return told + records_of(bodies, after=len(told))


def untimed_story() -> list[Record]:
    """Return a run in which both candidates are correct and none can be timed."""
    verdict = Measured(timed=False, notes=("not timed: an interpreter tells nothing about speed",))
    told = [record.body for record in story(None)]
    attempts = [*attempt(3, SLOPPY, verdict), *attempt(6, KERNEL, verdict)]
    end = RunFinished(stopped_by="rounds", rounds=2, best_id=None, credit=None, speedup=None)
    return records_of([*told[: len(told) - len(attempts)], *attempts, decided(RunStopping(stopped_by="rounds"), end)])


def records_of(bodies: Iterable[Body], *, after: int = 0) -> list[Record]:
    """Return records, one second apart."""
    return [
        Record(seq=seq, at=f"2026-11-20T14:23:{seq:02}.000000+00:00", msg_id=f"m{seq}", body=body)
        for seq, body in enumerate(bodies, start=after + 1)
    ]


def on_disk(runs_dir: Path, records: list[Record], run_id: str = RUN_ID) -> RunFolder:
    """Write a run's journal."""
    folder = RunFolder(runs_dir / run_id)
    folder.path.mkdir(parents=True)
    folder.journal.write_bytes(b"".join(map(encode_line, records)))
    return folder


def inserted(node_id: str, parent_id: str, title: str) -> NodeInserted:
    """Return a new node."""
    return NodeInserted(node_id=node_id, parent_id=parent_id, title=title, description="", difficulty=1, priority=0.8)


def decided(*facts: Fact) -> Decided:
    """Return a decision."""
    return Decided(cause=1, facts=facts)
