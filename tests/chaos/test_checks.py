"""Each check of a run's records finds what it is there for: planted into the records of a real run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import anyio
import msgspec
import pytest

from actors.llm.base import ScriptedModel
from actors.llm.served.app import Ledger, Report
from messages.base import Usage
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten, JobLost
from messages.facts import AttemptFinished, BranchStarted, ConfirmationFinished, Decided, Fact, RunFinished
from messages.settings import Budget, SearchSettings
from tests.actors.planner.rig import Rig, both, coder_answers, planner_answers
from tests.chaos.checks import answers_of, differences, facts_of, not_a_beginning, paid_twice, problems_of_run
from tests.virtual_time import VirtualTimeLoop

ROUNDS = 40


@pytest.fixture(scope="module")
def records() -> list[Record]:
    rig = Rig(SearchSettings(branches=4, budget=Budget(max_rounds=ROUNDS)))
    model = ScriptedModel(both(planner_answers(news=4), coder_answers()), latency_s=1.0)
    anyio.run(rig.search, model, backend_options={"loop_factory": VirtualTimeLoop})
    return [Record(seq=seq, at="", msg_id=str(seq), body=body) for seq, body in rig.bodies]


def with_facts(record: Record, facts: Sequence[Fact]) -> Record:
    return msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, facts=tuple(facts)))


def changed(records: list[Record], change: Callable[[Fact], Fact | None]) -> list[Record]:
    """Return the records with each fact changed, or left out."""
    return [
        with_facts(record, [new for fact in record.body.facts if (new := change(fact)) is not None])
        if isinstance(record.body, Decided)
        else record
        for record in records
    ]


def first(records: list[Record], kind: type) -> Record:
    return next(record for record in records if isinstance(record.body, kind))


def test_a_run_that_went_well_has_no_problems(records: list[Record]) -> None:
    assert problems_of_run(records, rounds=ROUNDS) == []
    assert differences(records, records) == []


def test_a_state_hash_of_another_state_is_found(records: list[Record]) -> None:
    wrong = [
        msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, state_hash="0" * 32))
        if isinstance(record.body, Decided) and record.body.state_hash is not None
        else record
        for record in records
    ]
    assert any("not that of a fresh fold" in problem for problem in problems_of_run(wrong, rounds=ROUNDS))


def test_decisions_that_contradict_each_other_are_found(records: list[Record]) -> None:
    def without_the_second_branch(fact: Fact) -> Fact | None:
        return None if isinstance(fact, BranchStarted) and fact.branch_id == second else fact

    second = [fact.branch_id for fact in facts_of(records) if isinstance(fact, BranchStarted)][1]
    problems = problems_of_run(changed(records, without_the_second_branch), rounds=ROUNDS)
    assert any(f"contradicts what was decided before: there is no {second}" in problem for problem in problems)


def test_a_round_that_was_left_out_is_found(records: list[Record]) -> None:
    attempts = [fact for fact in facts_of(records) if isinstance(fact, AttemptFinished)]
    left_out = next(fact for fact in attempts if fact.round > 5 and fact.fate == "wrong")
    problems = problems_of_run(changed(records, lambda fact: None if fact == left_out else fact), rounds=ROUNDS)
    assert any(f"missing: [{left_out.round}]" in problem for problem in problems)


def test_a_best_candidate_that_was_measured_once_is_found(records: list[Record]) -> None:
    def unconfirmed(fact: Fact) -> Fact | None:
        return None if isinstance(fact, ConfirmationFinished) else fact

    problems = problems_of_run(changed(records, unconfirmed), rounds=ROUNDS)
    assert any("was not confirmed" in problem for problem in problems)


def test_another_end_than_by_rounds_is_found(records: list[Record]) -> None:
    def exhausted(fact: Fact) -> Fact:
        return msgspec.structs.replace(fact, stopped_by="exhausted") if isinstance(fact, RunFinished) else fact

    assert any("exhausted" in problem for problem in problems_of_run(changed(records, exhausted), rounds=ROUNDS))
    assert any("of 41 rounds" in problem for problem in problems_of_run(records, rounds=ROUNDS + 1))


@pytest.mark.parametrize("kind", [CandidateWritten, CandidateEvaluated])
def test_a_job_that_was_answered_twice_is_found(records: list[Record], kind: type) -> None:
    again = msgspec.structs.replace(first(records, kind), seq=records[-1].seq + 1)
    assert any("was answered 2 times" in problem for problem in problems_of_run([*records, again], rounds=ROUNDS))


def test_an_event_that_was_decided_on_twice_is_found(records: list[Record]) -> None:
    last = next(record for record in reversed(records) if isinstance(record.body, Decided))
    again = with_facts(msgspec.structs.replace(last, seq=last.seq + 1), ())
    assert any("decided on 2 times" in problem for problem in problems_of_run([*records, again], rounds=ROUNDS))


def test_a_loss_that_nobody_made_good_is_found(records: list[Record]) -> None:
    evaluated = first(records, CandidateEvaluated).body
    assert isinstance(evaluated, CandidateEvaluated)
    lost = JobLost(job_id=evaluated.job_id, kind="evaluate", error="4 deliveries")
    again = Record(seq=records[-1].seq + 1, at="", msg_id="lost", body=lost)
    problems = problems_of_run([*records, again], rounds=ROUNDS)
    assert any("was lost and not asked for again: 4 deliveries" in problem for problem in problems)


def test_a_journal_that_is_no_copy_of_the_stream_is_found(records: list[Record]) -> None:
    assert any("the stream" in problem for problem in differences(records, records[:-1]))
    other = [msgspec.structs.replace(record, at="later") if record.seq == 7 else record for record in records]
    assert differences(records, other) == ["record 7 of the journal is not that of the stream"]


def test_a_planners_journal_may_end_early_and_may_not_differ(records: list[Record]) -> None:
    assert not_a_beginning(records, records[:9]) == []
    assert not_a_beginning(records, []) == []
    assert any("not record 4" in problem for problem in not_a_beginning(records, [*records[:3], *records[4:]]))
    assert any("more records" in problem for problem in not_a_beginning(records[:-1], records))


def test_answers_that_were_paid_for_twice_or_in_vain_are_found(records: list[Record]) -> None:
    asked = [answer for answer in answers_of(records) if hasattr(answer, "usage")]
    assert paid_twice(ledger_of([answer.job_id for answer in asked]), records) == []
    twice = paid_twice(ledger_of([*(answer.job_id for answer in asked), asked[0].job_id]), records)
    assert f"question {asked[0].job_id} was paid for twice" in twice
    in_vain = paid_twice(ledger_of([*(answer.job_id for answer in asked), "x1", "x2", "x3"]), records)
    assert any("were paid for" in problem for problem in in_vain)


def test_the_records_of_the_run_hold_what_the_checks_look_at(records: list[Record]) -> None:
    kinds = {type(fact).__name__ for fact in facts_of(records)}
    assert {"AttemptFinished", "SpendRecorded", "WriteRequested", "PlanRequested", "RunFinished"} <= kinds


def ledger_of(job_ids: list[str]) -> Report:

    ledger = Ledger()
    for job_id in job_ids:
        ledger.opened()
        ledger.paid(job_id, job_id.encode(), Usage(calls=1))
    return ledger.report(Counter())
