"""What must hold of a run's records after whatever happened to it. Each check returns what it found wrong, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from actors.llm.served.app import Report
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, state_hash
from messages.codec import Record
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, EditsProposed, JobLost
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    ConfirmationFinished,
    ConfirmationRequested,
    Decided,
    EvaluationRequested,
    Fact,
    InitialRequested,
    PlanRequested,
    QuestionDropped,
    RunFinished,
    SpendRecorded,
    WriteRequested,
)

Answer = CandidateWritten | CandidateBuilt | CandidateEvaluated | EditsProposed | JobLost
Request = (
    WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | ConfirmationRequested | PlanRequested
)
RETRIED = frozenset({"timed_out", "unstable"})
"""Fates that are measured once more."""


def problems_of_run(records: Sequence[Record], *, rounds: int) -> list[str]:
    """Check a finished run by itself: every attempt once, none lost, its state what its decisions make it."""
    if (broken := unfoldable(records)) is not None:
        return [broken, *decided_twice(records), *answered_twice(records)]
    return [
        *wrong_fold(records),
        *wrong_end(records, rounds),
        *wrong_rounds(records, rounds),
        *asked_twice(records),
        *answered_twice(records),
        *decided_twice(records),
        *evaluated_again(records),
        *never_answered(records),
        *forgotten_losses(records),
        *unconfirmed(records),
        *wrong_spend(records),
    ]


def folded(records: Iterable[Record]) -> SearchState:
    """Return the state that the decisions lead to."""
    state = SearchState()
    for fact in facts_of(records):
        state = evolve(state, fact)
    return state


def unfoldable(records: Iterable[Record]) -> str | None:
    """Name the first decision that contradicts those before it: two planners have decided."""
    state = SearchState()
    for record in records:
        for fact in record.body.facts if isinstance(record.body, Decided) else ():
            try:
                state = evolve(state, fact)
            except KeyError as error:
                return f"record {record.seq} contradicts what was decided before: there is no {error.args[0]}"
    return None


def facts_of(records: Iterable[Record]) -> Iterator[Fact]:
    """Yield all facts in order."""
    for record in records:
        if isinstance(record.body, Decided):
            yield from record.body.facts


def answers_of(records: Iterable[Record]) -> Iterator[Answer]:
    """Yield what was answered to jobs and questions, in order."""
    for record in records:
        if isinstance(record.body, Answer):
            yield record.body


def wrong_fold(records: Iterable[Record]) -> list[str]:
    """Find state hashes that are not those of the fold so far."""
    state, found, hashes = SearchState(), [], 0
    for record in records:
        if not isinstance(record.body, Decided):
            continue
        for fact in record.body.facts:
            state = evolve(state, fact)
        if record.body.state_hash is not None:
            hashes += 1
            if record.body.state_hash != state_hash(state):
                found.append(f"record {record.seq}: its state hash is not that of a fresh fold")
    return found if hashes else ["no decision has a state hash"]


def wrong_end(records: Sequence[Record], rounds: int) -> list[str]:
    """Find another end than by the budget of rounds."""
    ends = [fact for fact in facts_of(records) if isinstance(fact, RunFinished)]
    if len(ends) != 1:
        return [f"the run ended {len(ends)} times"]
    if (ends[0].stopped_by, ends[0].rounds) != ("rounds", rounds):
        return [f"the run ended by {ends[0].stopped_by} after {ends[0].rounds} of {rounds} rounds ({ends[0].detail})"]
    return []


def wrong_rounds(records: Iterable[Record], rounds: int) -> list[str]:
    """Find rounds that were counted twice or left out."""
    numbers = [fact.round for fact in facts_of(records) if isinstance(fact, AttemptFinished) and fact.round]
    if numbers != list(range(1, rounds + 1)):
        twice = [number for number, count in Counter(numbers).items() if count > 1]
        missing = sorted(set(range(1, rounds + 1)) - set(numbers))
        return [f"{len(numbers)} rounds were counted, not {rounds}; twice: {twice}; missing: {missing}"]
    return []


def asked_twice(records: Iterable[Record]) -> list[str]:
    """Find jobs that were requested twice under one id."""
    asked = Counter(fact.job_id for fact in facts_of(records) if isinstance(fact, Request))
    return [f"job {job_id} was requested {count} times" for job_id, count in asked.items() if count > 1]


def answered_twice(records: Iterable[Record]) -> list[str]:
    """Find jobs with more than one answer, and answers to what was never asked."""
    records = list(records)
    asked = {fact.job_id for fact in facts_of(records) if isinstance(fact, Request)}
    answers = Counter(answer.job_id for answer in answers_of(records))
    found = [f"job {job_id} was answered {count} times" for job_id, count in answers.items() if count > 1]
    return found + [f"job {job_id} was answered and never requested" for job_id in answers if job_id not in asked]


def decided_twice(records: Iterable[Record]) -> list[str]:
    """Find events on which the planner decided twice, or before they came."""
    causes = Counter(record.body.cause for record in records if isinstance(record.body, Decided))
    early = [record.seq for record in records if isinstance(record.body, Decided) and record.body.cause >= record.seq]
    found = [f"event {seq} was decided on {count} times" for seq, count in causes.items() if count > 1]
    return found + [f"decision {seq} comes before its cause" for seq in early]


def evaluated_again(records: Iterable[Record]) -> list[str]:
    """Find candidates with more evaluations than their verdicts allow."""
    fates: dict[str, list[str]] = {}
    for fact in facts_of(records):
        if isinstance(fact, AttemptFinished) and fact.round and fact.candidate_id:
            fates.setdefault(fact.candidate_id, []).append(fact.fate)
    return [
        f"candidate {candidate_id} was evaluated {len(met)} times: {met}"
        for candidate_id, met in fates.items()
        if len(met) > 2 or (len(met) == 2 and met[0] not in RETRIED)
    ]


def never_answered(records: Sequence[Record]) -> list[str]:
    """Find jobs that the finished run still waits for; only the planner's own questions may be cut off by its end."""
    dropped = {fact.job_id for fact in facts_of(records) if isinstance(fact, QuestionDropped)}
    open_jobs = [job.request for job in folded(records).jobs.values()]
    return [
        f"job {request.job_id} ({type(request).__name__}) has no answer"
        for request in open_jobs
        if not isinstance(request, PlanRequested) and request.job_id not in dropped
    ]


def forgotten_losses(records: Sequence[Record]) -> list[str]:
    """Find lost jobs after which nothing was asked for in their place."""
    decisions = {record.body.cause: record.body for record in records if isinstance(record.body, Decided)}
    found = []
    for record in records:
        if not isinstance(record.body, JobLost):
            continue
        decided = decisions.get(record.seq)
        if decided is None or not any(isinstance(fact, Request | RunFinished) for fact in decided.facts):
            found.append(f"job {record.body.job_id} was lost and not asked for again: {record.body.error}")
    return found


def unconfirmed(records: Sequence[Record]) -> list[str]:
    """Find a best candidate of a finished run that one measurement made, and candidates confirmed twice."""
    facts, state = list(facts_of(records)), folded(records)
    counts = Counter(fact.candidate_id for fact in facts if isinstance(fact, ConfirmationFinished))
    found = [
        f"candidate {candidate_id} was confirmed {count} times" for candidate_id, count in counts.items() if count > 1
    ]
    found += [f"candidate {candidate_id} was left provisional" for candidate_id in state.provisional]
    best = state.incumbent
    if state.settings.confirm and best is not None and best.speedup is not None and best.candidate_id not in counts:
        found.append(f"the best candidate {best.candidate_id} was not confirmed")
    return found


def wrong_spend(records: Iterable[Record]) -> list[str]:
    """Find answers that were paid for and not counted, or counted twice."""
    records = list(records)
    answers = sum(isinstance(answer, CandidateWritten | EditsProposed) for answer in answers_of(records))
    counted = sum(fact.usage.calls for fact in facts_of(records) if isinstance(fact, SpendRecorded))
    late = _after_the_end(records)
    return [] if answers - late <= counted <= answers else [f"{answers} answers came, {counted} calls were counted"]


def _after_the_end(records: Iterable[Record]) -> int:
    """Count answers of models that nobody decided on any more."""
    causes = {record.body.cause for record in records if isinstance(record.body, Decided)}
    return sum(isinstance(r.body, CandidateWritten | EditsProposed) and r.seq not in causes for r in records)


def losses(records: Iterable[Record]) -> list[JobLost]:
    """Return what was lost (and asked for again)."""
    return [answer for answer in answers_of(records) if isinstance(answer, JobLost)]


def differences(stream: Sequence[Record], journal: Sequence[Record]) -> list[str]:
    """Find what tells a journal from the stream that it is to be a copy of."""
    found = []
    if [record.seq for record in journal] != [record.seq for record in stream]:
        found.append(f"the journal holds {len(journal)} records, the stream {len(stream)}")
    elif list(journal) != list(stream):
        seq = next(one.seq for one, other in zip(journal, stream, strict=True) if one != other)
        found.append(f"record {seq} of the journal is not that of the stream")
    if state_hash(folded(journal)) != state_hash(folded(stream)):
        found.append("the journal folds to another state than the stream")
    return found


def not_a_beginning(stream: Sequence[Record], journal: Sequence[Record]) -> list[str]:
    """Find what tells a journal from the beginning of the stream: its writer may have ended before the run did."""
    for copied, record in zip(journal, stream, strict=False):
        if copied != record:
            return [f"record {copied.seq} of a planner's journal is not record {record.seq} of the stream"]
    return [] if len(journal) <= len(stream) else ["a planner's journal has more records than the stream"]


def paid_twice(report: Report, records: Iterable[Record]) -> list[str]:
    """Find answers that were paid for twice, or for which the run has nothing to show."""
    records = list(records)
    found = [f"question {request_id} was paid for twice" for request_id in report.ids_paid_twice]
    shown = sum(isinstance(answer, CandidateWritten | EditsProposed) for answer in answers_of(records))
    cut_off = sum(isinstance(job.request, PlanRequested) for job in folded(records).jobs.values())
    lost = sum(loss.kind in ("write", "plan") for loss in losses(records))
    if report.paid > shown + cut_off + lost:
        found.append(f"{report.paid} answers were paid for, {shown} are in the stream")
    return found
