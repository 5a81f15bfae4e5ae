"""Each check finds what it is there for: planted into the records of a run with a bad model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import msgspec
import pytest

from actors.llm.base import Request, ScriptedModel
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten, EditsProposed, Event, JobLost
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    Decided,
    EditsApplied,
    EditsRefused,
    Fact,
    LossNoted,
    NodeInserted,
    PlanRequested,
    RunFinished,
    SearchOpened,
)
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate
from messages.verdicts import Verdict, Wrong
from tests.actors.planner.rig import Rig, both, coder_answers, landscape, planner_answers
from tests.bad_model.checks import (
    blocked,
    budget_left,
    picked_again,
    problems_of_run,
    twins,
    unexplained,
    waits,
)
from tests.virtual_time import VirtualTimeLoop

ROUNDS = 30


def bad(answers: Callable[[Request], str | Exception]) -> Callable[[Request], str | Exception]:
    """Spoil every third answer of the planner's, and every fifth of the coders'."""
    asked = {"planner": 0, "coder": 0}

    def answer(request: Request) -> str | Exception:
        asked[request.role] += 1
        is_bad = asked[request.role] % (3 if request.role == "planner" else 5) == 0
        return "I would rather not." if is_bad else answers(request)

    return answer


def mostly_wrong(candidate: Candidate) -> Verdict:
    """Have nodes fail, and be chosen again."""
    return Wrong(reason="all elements differ") if int(candidate.candidate_id[:4], 16) % 4 else landscape(candidate)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    rig = Rig(SearchSettings(branches=3, stagnation_window=1, budget=Budget(max_rounds=ROUNDS)))
    model = ScriptedModel(bad(both(planner_answers(news=1), coder_answers())), latency_s=1.0)
    search = partial(rig.search, model, judge=mostly_wrong)
    anyio.run(search, backend_options={"loop_factory": VirtualTimeLoop})
    begin = datetime(2026, 11, 20, tzinfo=UTC)
    return [
        Record(seq=seq, at=(begin + timedelta(milliseconds=seq)).isoformat(), msg_id=str(seq), body=body)
        for seq, body in rig.bodies
    ]


def with_body(record: Record, **changes: object) -> Record:
    return msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, **changes))


def changed(records: Sequence[Record], change: Callable[[Fact], Fact | None]) -> list[Record]:
    """Return the records with each fact changed, or left out."""
    return [
        with_body(record, facts=tuple(new for fact in record.body.facts if (new := change(fact)) is not None))
        if isinstance(record.body, Decided)
        else record
        for record in records
    ]


def told(records: Sequence[Record], change: Callable[[Event], Event]) -> list[Record]:
    """Return the records with each event changed."""
    return [
        record if isinstance(record.body, Decided) else msgspec.structs.replace(record, body=change(record.body))
        for record in records
    ]


def test_a_run_that_kept_its_promises_has_no_problems(records: list[Record]) -> None:
    assert problems_of_run(records, rounds=ROUNDS) == []
    kinds = {type(fact) for record in records if isinstance(record.body, Decided) for fact in record.body.facts}
    assert {EditsRefused, EditsApplied, AttemptFinished} <= kinds


def test_another_end_is_found(records: list[Record]) -> None:
    def exhausted(fact: Fact) -> Fact:
        return msgspec.structs.replace(fact, stopped_by="exhausted") if isinstance(fact, RunFinished) else fact

    assert "exhausted after 30 rounds" in budget_left(changed(records, exhausted), ROUNDS)[0]
    assert budget_left(records[:-1], ROUNDS)
    assert budget_left(records, ROUNDS + 1)


def test_siblings_of_the_same_title_are_found(records: list[Record]) -> None:
    def twin(fact: Fact) -> Fact:
        if not isinstance(fact, EditsApplied):
            return fact
        renamed = [
            msgspec.structs.replace(each, title="Twin " if index else "twin")
            if isinstance(each, NodeInserted)
            else each
            for index, each in enumerate(fact.changes)
        ]
        return msgspec.structs.replace(fact, changes=tuple(renamed))

    assert any("are both called" in problem for problem in twins(changed(records, twin)))


def test_a_node_that_is_chosen_again_by_its_old_score_is_found(records: list[Record]) -> None:
    """Planted into the settings, by which a failure then changes nothing."""

    def lenient(fact: Fact) -> Fact:
        if not isinstance(fact, SearchOpened):
            return fact
        return msgspec.structs.replace(fact, settings=_without_decay(fact.settings))

    assert picked_again(records) == []
    assert any("it had failed with" in problem for problem in picked_again(changed(records, lenient)))


def _without_decay(settings: SearchSettings) -> SearchSettings:
    return msgspec.structs.replace(settings, selection=msgspec.structs.replace(settings.selection, failure_decay=1.0))


def test_an_event_that_waits_for_the_planners_model_is_found(records: list[Record]) -> None:
    asked = next(r for r in records if isinstance(r.body, Decided) and _plan(r.body) is not None)
    plan = _plan(asked.body) if isinstance(asked.body, Decided) else None
    assert plan is not None
    judged = next(r for r in records if r.seq > asked.seq and isinstance(r.body, CandidateEvaluated))
    begin = datetime(2027, 1, 1, tzinfo=UTC)
    answer = msgspec.structs.replace(next(r for r in records if isinstance(r.body, EditsProposed)))
    answer = with_body(answer, job_id=plan.job_id)
    bodies = [asked.body, judged.body, answer.body, Decided(cause=2, facts=())]
    late = [
        Record(seq=seq, at=(begin + timedelta(seconds=10 * seq)).isoformat(), msg_id=str(seq), body=body)
        for seq, body in enumerate(bodies, start=1)
    ]
    assert [wait.waited_s for wait in waits(late)] == [20.0]
    assert "waited 20.00 s" in blocked(late)[0]
    early = [late[0], late[1], msgspec.structs.replace(late[3], seq=3), msgspec.structs.replace(late[2], seq=4)]
    assert blocked(early) == []


def _plan(decided: Decided) -> PlanRequested | None:
    return next((fact for fact in decided.facts if isinstance(fact, PlanRequested)), None)


def test_answers_that_were_refused_without_a_word_are_found(records: list[Record]) -> None:
    def silent(event: Event) -> Event:
        if isinstance(event, EditsProposed | CandidateWritten):
            return msgspec.structs.replace(event, complaint="")
        return event

    problems = unexplained(told(records, silent))
    assert any("p" in problem and "was refused without a word" in problem for problem in problems)
    assert any("the answer to" in problem for problem in problems)


def test_reasons_that_are_not_handed_on_are_found(records: list[Record]) -> None:
    def silent(fact: Fact) -> Fact:
        match fact:
            case EditsRefused() | PlanRequested():
                return msgspec.structs.replace(fact, refusals=())
            case AttemptFinished(fate="unusable"):
                return msgspec.structs.replace(fact, outcome="unusable")
            case _:
                return fact

    problems = unexplained(changed(records, silent))
    assert any("was refused without a reason" in problem for problem in problems)
    assert any("was refused for another reason than its own" in problem for problem in problems)
    assert any("does not say why its answer is unusable" in problem for problem in problems)


def test_a_refused_script_that_is_not_asked_for_again_is_found(records: list[Record]) -> None:
    problems = unexplained(changed(records, lambda fact: None if isinstance(fact, PlanRequested) else fact))
    assert any("not asked for again with the reasons" in problem for problem in problems)


def test_what_became_of_an_answer_has_to_be_said(records: list[Record]) -> None:
    problems = unexplained(changed(records, lambda fact: None if isinstance(fact, EditsApplied) else fact))
    assert any("what became of" in problem for problem in problems)


def test_a_loss_without_a_word_is_found(records: list[Record]) -> None:
    judged = next(record for record in records if isinstance(record.body, CandidateEvaluated))
    lost = msgspec.structs.replace(judged, body=JobLost(job_id="x1", kind="evaluate", error=" "))
    assert "was lost without a word" in unexplained([lost])[0]
    lost = msgspec.structs.replace(judged, body=JobLost(job_id="x1", kind="evaluate", error="gone"))
    silent = Record(seq=lost.seq + 1, at=lost.at, msg_id="d", body=Decided(cause=lost.seq, facts=(_closing(),)))
    assert "the loss of x1 was not noted" in unexplained([lost, silent])[0]
    noted = LossNoted(job_id="x1", error="gone")
    assert unexplained([lost, with_body(silent, facts=(noted,))]) == []


def _closing() -> BranchClosed:
    return BranchClosed(branch_id="b1", node_id="n1", reason="-", best_id=None)
