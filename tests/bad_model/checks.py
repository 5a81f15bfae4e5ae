"""What a run promises though its model is bad, checked on its records. Each check returns what it found, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from actors.planner.core.evolve import evolve
from actors.planner.core.selection import belief
from actors.planner.core.state import SearchState, live_parent
from messages.base import ROOT
from messages.codec import Record
from messages.edits import Refusal
from messages.events import CandidateWritten, EditsProposed, JobLost
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    Decided,
    EditsApplied,
    EditsRefused,
    Fact,
    LossNoted,
    NodeInserted,
    NodeUpdated,
    PlanAbandoned,
    PlanRequested,
    RunFinished,
)
from tests.chaos.checks import (
    answered_twice,
    asked_twice,
    forgotten_losses,
    never_answered,
    wrong_fold,
    wrong_rounds,
    wrong_spend,
)

STALL = timedelta(seconds=0.5)
"""How long before an answer of the planner's model an event must have come for its decision to come before it, too."""


def problems_of_run(records: Sequence[Record], *, rounds: int) -> list[str]:
    """Check a finished run."""
    return [
        *wrong_fold(records),
        *budget_left(records, rounds),
        *wrong_rounds(records, rounds),
        *asked_twice(records),
        *answered_twice(records),
        *never_answered(records),
        *forgotten_losses(records),
        *wrong_spend(records),
        *twins(records),
        *picked_again(records),
        *blocked(records),
        *unexplained(records),
    ]


def steps(records: Iterable[Record]) -> Iterator[tuple[Record, SearchState, Fact, SearchState]]:
    """Yield each fact with its record, and the states before and after."""
    state = SearchState()
    for record in records:
        for fact in record.body.facts if isinstance(record.body, Decided) else ():
            before, state = state, evolve(state, fact)
            yield record, before, fact, state


def budget_left(records: Iterable[Record], rounds: int) -> list[str]:
    """Find another end than by the budget of rounds."""
    ends = [fact for _, _, fact, _ in steps(records) if isinstance(fact, RunFinished)]
    if [(end.stopped_by, end.rounds) for end in ends] == [("rounds", rounds)]:
        return []
    said = "; ".join(f"{end.stopped_by} after {end.rounds} rounds ({end.detail})" for end in ends)
    return [f"the run did not end by its {rounds} rounds: {said or 'it did not end'}"]


def twins(records: Iterable[Record]) -> list[str]:
    """Find living nodes that hang under the same node, by themselves or since those between were given up, and are
    called the same."""
    found: dict[tuple[str, str], str] = {}
    for record, _, fact, state in steps(records):
        if not isinstance(fact, NodeInserted | NodeUpdated | EditsApplied):
            continue
        names: dict[tuple[str, str], str] = {}
        for node in state.nodes.values():
            if node.node_id == ROOT or node.state == "pruned":
                continue
            parent_id = live_parent(state, state.node(node.parent_id)).node_id
            other = names.setdefault((parent_id, node.title.casefold().strip()), node.node_id)
            if other != node.node_id:
                pair = f"{other} and {node.node_id} under {parent_id} are both called {node.title!r}"
                found.setdefault((other, node.node_id), f"record {record.seq}: {pair}")
    return list(found.values())


def picked_again(records: Iterable[Record]) -> list[str]:
    """Find nodes that failed and were chosen again by a score that does not show it, V unchanged."""
    chosen: dict[str, float] = {}
    """What V counted for when the branch began, by branch."""
    failed: dict[str, float] = {}
    """The same of the last branch that failed, by node."""
    found = []
    for record, before, fact, _ in steps(records):
        for node_id in _revised(fact):
            failed.pop(node_id, None)
        if isinstance(fact, BranchStarted) and fact.attempt_limit is None:
            now = chosen[fact.branch_id] = belief(before, before.node(fact.node_id))
            then = failed.get(fact.node_id)
            if then is not None and now >= then:
                said = f"{fact.node_id} was chosen with {now:g}; it had failed with {then:g}"
                found.append(f"record {record.seq}: {said}")
        elif isinstance(fact, BranchClosed) and fact.best_id is None and fact.branch_id in chosen:
            failed[fact.node_id] = chosen[fact.branch_id]
    return found


def _revised(fact: Fact) -> list[str]:
    """Return the nodes whose V this fact says anew."""
    changes = fact.changes if isinstance(fact, EditsApplied) else (fact,)
    return [each.node_id for each in changes if isinstance(each, NodeUpdated) and each.priority is not None]


class Wait(msgspec.Struct, frozen=True):
    """How long an event waited for its decision while the planner's model was being asked."""

    seq: int
    waited_s: float
    outlasted: bool
    """It came well before the model's answer, and was decided on only after it."""


def waits(records: Sequence[Record]) -> list[Wait]:
    """Return what came while the planner's model was being asked, and was decided on."""
    decided = {record.body.cause: record for record in records if isinstance(record.body, Decided)}
    found = []
    for begun, answered in calls(records):
        for record in records:
            decision = decided.get(record.seq)
            if decision is not None and begun.seq < record.seq < answered.seq:
                outlasted = decision.seq > answered.seq and _at(answered) - _at(record) >= STALL
                found.append(Wait(record.seq, (_at(decision) - _at(record)).total_seconds(), outlasted))
    return found


def _at(record: Record) -> datetime:
    return datetime.fromisoformat(record.at)


def calls(records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield each question to the planner's model that was answered or lost: its request and its answer."""
    asked: dict[str, Record] = {}
    for record in records:
        if isinstance(record.body, Decided):
            asked |= {fact.job_id: record for fact in record.body.facts if isinstance(fact, PlanRequested)}
        elif isinstance(record.body, EditsProposed | JobLost) and record.body.job_id in asked:
            yield asked[record.body.job_id], record


def blocked(records: Sequence[Record]) -> list[str]:
    """Find events that waited for an answer of the planner's model, though they are no business of its."""
    return [
        f"record {wait.seq} waited {wait.waited_s:.2f} s for its decision, until the planner's model had answered"
        for wait in waits(records)
        if wait.outlasted
    ]


def unexplained(records: Sequence[Record]) -> list[str]:
    """Find answers that were not used, and jobs that were lost, of which the journal does not say why."""
    decisions = {record.body.cause: record.body.facts for record in records if isinstance(record.body, Decided)}
    found = []
    for record in records:
        check = _EXPLAINED.get(type(record.body))
        facts = decisions.get(record.seq, ())
        if check is not None and (wrong := check(record.body, facts)):
            found.append(f"record {record.seq}: {wrong}")
    return found + _unsaid_refusals(records)


def reasons_of(record: Record, facts: Sequence[Fact]) -> list[str]:
    """Return why an answer was not used, or not in all its parts; empty if it was."""
    found: list[str] = []
    for fact in facts:
        match fact:
            case EditsRefused(refusals=refusals) | EditsApplied(refusals=refusals):
                found += [refusal.reason for refusal in refusals]
            case PlanAbandoned(reason=reason):
                found.append(reason)
            case AttemptFinished(fate="unusable", outcome=outcome):
                found.append(outcome)
            case LossNoted(error=error):
                found.append(error)
            case _:
                pass
    if not facts and isinstance(record.body, CandidateWritten | EditsProposed) and record.body.complaint:
        found.append(record.body.complaint)
    return found


def _proposal(body: EditsProposed, facts: Sequence[Fact]) -> str:
    if body.script is None and not body.complaint.strip():
        return f"{body.job_id} was refused without a word"
    fates = [fact for fact in facts if isinstance(fact, EditsApplied | EditsRefused | PlanAbandoned)]
    if not facts:  # it came after the end
        return ""
    if [fate.job_id for fate in fates] != [body.job_id]:
        return f"what became of {body.job_id} is not said"
    if body.script is None and isinstance(fates[0], EditsApplied):
        return f"{body.job_id} is no script, and was applied"
    if body.script is None and not any(body.complaint in said for said in _said(fates[0])):
        return f"{body.job_id} was refused for another reason than its own: {body.complaint!r}"
    return ""


def _said(fate: EditsApplied | EditsRefused | PlanAbandoned) -> list[str]:
    if isinstance(fate, PlanAbandoned):
        return [fate.reason]
    return [refusal.reason for refusal in fate.refusals]


def _written(body: CandidateWritten, facts: Sequence[Fact]) -> str:
    if body.candidate is not None or body.declined:
        return ""
    if not body.complaint.strip():
        return f"the answer to {body.job_id} was refused without a word"
    outcomes = [fact.outcome for fact in facts if isinstance(fact, AttemptFinished)]
    if facts and not any(body.complaint in outcome for outcome in outcomes):
        return f"the attempt of {body.job_id} does not say why its answer is unusable"
    return ""


def _loss(body: JobLost, facts: Sequence[Fact]) -> str:
    if not body.error.strip():
        return f"{body.job_id} was lost without a word"
    if facts and not any(isinstance(fact, LossNoted) and fact.error for fact in facts):
        return f"the loss of {body.job_id} was not noted"
    return ""


_EXPLAINED: dict[type, Callable[..., str]] = {EditsProposed: _proposal, CandidateWritten: _written, JobLost: _loss}


def _unsaid_refusals(records: Iterable[Record]) -> list[str]:
    """Find refusals without a reason, and refused scripts that were not asked for again with all reasons."""
    found = []
    for record in records:
        facts = record.body.facts if isinstance(record.body, Decided) else ()
        for fact in facts:
            if isinstance(fact, EditsApplied | EditsRefused) and any(not each.reason.strip() for each in fact.refusals):
                found.append(f"record {record.seq}: an edit of {fact.job_id} was refused without a reason")
            if isinstance(fact, EditsRefused):
                found += [f"record {record.seq}: {wrong}" for wrong in _not_asked_again(fact, facts)]
    return found


def _not_asked_again(refused: EditsRefused, facts: Sequence[Fact]) -> Iterator[str]:
    if not refused.refusals:
        yield f"{refused.job_id} was refused without a reason"
    told: list[tuple[Refusal, ...]] = [fact.refusals for fact in facts if isinstance(fact, PlanRequested)]
    ending = any(isinstance(fact, RunFinished) for fact in facts)
    if refused.refusals not in told and not ending:
        yield f"{refused.job_id} was refused, and not asked for again with the reasons"
