"""Runs to draw: searches on GPUs that are kept in the repository, and small ones with what those have not."""

from __future__ import annotations

import gzip
from pathlib import Path

from msgspec.structs import replace

from ksearch_async.runs.run import Run
from ksearch_async.views.report.data import Series
from messages.codec import Record, decode_line
from messages.events import CandidateEvaluated, RunStarted
from messages.facts import AttemptFinished, Decided, EditsApplied, Fact, IncumbentChanged, NodeInserted, SpendRecorded
from messages.tasks import Candidate, SourceFile
from messages.verdicts import Interval, Measured, ProfiledKernel, TimedWorkload, WorkloadProfile
from tests.ksearch_async.stories import FASTER_KERNEL, attempt, records_of, story

JOURNALS = Path(__file__).parents[4] / "docs" / "benchmarks" / "journals"
GPU_RUNS = tuple(path.name.partition(".")[0] for path in sorted(JOURNALS.glob("*.gz")))

HOSTILE = "$\\frac{$ </svg></style><script>alert(1)</script> \x1b[31m\u202e\u2066 \U0001f680 列 --> &amp; ' \""
"""What a title may hold that breaks out of something: HTML, mathematics, terminals, directions, unknown glyphs."""


def gpu_records(name: str) -> list[Record]:
    """Return the records of a search on a GPU."""
    with gzip.open(JOURNALS / f"{name}.jsonl.gz") as lines:
        return [decode_line(line) for line in lines]


def alone(records: list[Record]) -> list[Series]:
    """Return one run, as it is drawn."""
    return [Series(label="1 run", runs=(Run.of(records),))]


def timed(name: str, speedup: float, *, baseline: float | None = None) -> TimedWorkload:
    """Return a workload whose reference takes 100 us."""
    return TimedWorkload(
        name=name,
        latency_us=100 / speedup,
        reference_latency_us=100.0,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=0.9 * speedup, high=1.1 * speedup),
        baseline_latency_us=100 / baseline if baseline else None,
    )


def with_workloads(*workloads: TimedWorkload, records: list[Record] | None = None) -> list[Record]:
    """Return a story whose every best was timed on these."""

    def changed(record: Record) -> Record:
        body = record.body
        if isinstance(body, CandidateEvaluated) and isinstance(body.verdict, Measured):
            return replace(record, body=replace(body, verdict=replace(body.verdict, workloads=workloads)))
        return record

    return [changed(record) for record in records or story()]


def priced(records: list[Record], dollars: float) -> list[Record]:
    """Return a run whose every answer cost so much."""

    def changed(record: Record) -> Record:
        if not isinstance(record.body, Decided):
            return record
        facts = tuple(replace(f, cost_usd=dollars) if isinstance(f, SpendRecorded) else f for f in record.body.facts)
        return replace(record, body=replace(record.body, facts=facts))

    return [changed(record) for record in records]


def seeded(records: list[Record], seed: int, *, speedup: float | None = None) -> list[Record]:
    """Return a run with another seed, and its best with another speedup."""

    def changed(record: Record) -> Record:
        body = record.body
        if isinstance(body, RunStarted):
            return replace(record, body=replace(body, seed=seed))
        if isinstance(body, Decided) and speedup is not None:
            facts = tuple(
                replace(fact, speedup=speedup, credit=speedup - 0.1)
                if isinstance(fact, AttemptFinished | IncumbentChanged) and fact.credit
                else fact
                for fact in body.facts
            )
            return replace(record, body=replace(body, facts=facts))
        return record

    return [changed(record) for record in records]


def profiled(name: str) -> WorkloadProfile:
    """Return what a GPU did on a workload of this name in a kernel of this name, and in one of a library's."""
    kernel = ProfiledKernel(
        name=name, launches=3, time_us=30.0, is_own=True, grid=(64, 1, 1), block=(128, 1, 1), registers=77, waves=1.5
    )
    library = replace(kernel, name="library", time_us=10.0, is_own=False)
    return WorkloadProfile(
        workload=name, span_us=50.0, busy_us=40.0, kernels_us=40.0, own_us=30.0, kernels=(kernel, library)
    )


def hostile() -> list[Record]:
    """Return a run whose every text is hostile: task, device, title, outcome, sources, and a line of a megabyte."""
    opening, *others = story(stopped_by=None)
    assert isinstance(opening.body, RunStarted)
    task, description = replace(opening.body.task, name=HOSTILE), opening.body.description
    target = replace(opening.body.target, device=HOSTILE, toolchain=HOSTILE)
    body = replace(opening.body, task=task, description=replace(description, name=HOSTILE), target=target)
    candidate = Candidate(
        language="cpp",
        entry_point="ksearch_run",
        files=(SourceFile(path="kernel.cpp", text=f"// {HOSTILE}\n{'x' * 1_000_000}\n"), FASTER_KERNEL.files[1]),
    )
    best = Measured(
        timed=True,
        latency_us=40.0,
        reference_latency_us=100.0,
        speedup_vs_reference=2.5,
        speedup_interval=Interval(low=2.4, high=2.6),
        pairs=20,
        baseline=HOSTILE,
        baseline_latency_us=90.0,
        notes=(HOSTILE,),
        workloads=(timed(HOSTILE, 2.0), timed("other", 3.0)),
        profile=(profiled(HOSTILE),),
    )
    told = [replace(opening, body=body), *map(_renamed, others)]
    return [*told, *records_of(attempt(9, candidate, best), after=len(told))]


def _renamed(record: Record) -> Record:
    """Return a record in which each title and outcome is hostile."""
    if not isinstance(record.body, Decided):
        return record
    facts: list[Fact] = []
    for fact in record.body.facts:
        if isinstance(fact, EditsApplied):
            changes = tuple(
                replace(one, title=HOSTILE) if isinstance(one, NodeInserted) else one for one in fact.changes
            )
            facts.append(replace(fact, changes=changes))
        else:
            facts.append(replace(fact, outcome=HOSTILE) if isinstance(fact, AttemptFinished) else fact)
    return replace(record, body=replace(record.body, facts=tuple(facts)))
