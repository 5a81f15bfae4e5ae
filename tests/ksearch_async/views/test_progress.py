"""What the live view makes of records: who is at work since when, the pace, which nodes a small tree shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from actors.planner.core.decide import NO_ANSWER
from actors.planner.core.state import ancestors
from ksearch_async.runs.run import Run
from ksearch_async.views.lines import Narrator
from ksearch_async.views.progress import Progress, Work
from ksearch_async.views.tree_layout import chosen_rows
from messages.base import ROOT, EndpointFault, Usage
from messages.codec import Record
from messages.edits import Refusal
from messages.events import CandidateWritten, ClockTicked
from messages.facts import BranchStarted, EditsRefused, EvaluationRequested, LossNoted
from messages.settings import Budget
from tests.ksearch_async.journals import BRANCHES, ROUNDS, real_journal
from tests.ksearch_async.stories import RUN_ID, decided, inserted, story

START = datetime(2026, 11, 20, 14, 23, tzinfo=UTC)
"""Records of the story follow each other by a second."""


def followed(records: list[Record]) -> tuple[Progress, list[str]]:
    chronicle = Run()
    progress = Progress(chronicle, Narrator(chronicle))
    return progress, [line.strip() for record in records for line in progress.tell(record)]


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_work_in_flight_is_told_by_node_with_the_time_since_it_was_asked_for() -> None:
    planning, _ = followed(story()[:2])
    assert planning.in_flight(after(5)) == {ROOT: [Work("planning", 3.0)]}
    writing, _ = followed(story()[:4])
    assert writing.in_flight(after(5)) == {"n1": [Work("writing", 1.0)]}
    evaluating, _ = followed(story()[:6])
    assert evaluating.in_flight(after(7.5)) == {"n1": [Work("evaluating", 1.5)]}


def test_what_an_earlier_session_asked_for_counts_from_the_start_of_this_one() -> None:
    chronicle = Run()
    for record in story()[:4]:
        chronicle.fold(record)
    progress = Progress(chronicle, Narrator(chronicle))
    for seconds in (60, 61):
        tick = ClockTicked(elapsed_s=seconds)
        list(progress.tell(msgspec.structs.replace(story()[4], at=after(seconds).isoformat(), body=tick)))
    assert progress.in_flight(after(62)) == {"n1": [Work("writing", 2.0)]}


def test_a_new_best_refused_edits_faults_and_the_end_are_of_note_and_nothing_else() -> None:
    _, lines = followed(story())
    assert [line.split("  ")[0] for line in lines] == ["2/2", "stopping: its rounds are used up"]
    assert lines[0].endswith("(new best)")
    refused = EditsRefused(job_id=f"{RUN_ID}-p1", refusals=(Refusal(index=0, reason="n9 is not there"),))
    lost = LossNoted(job_id=f"{RUN_ID}-p1", error="the endpoint is gone")
    told = followed([*story()[:2], msgspec.structs.replace(story()[2], body=decided(refused, lost))])[1]
    assert told == [
        "world model: edits refused and asked for again (n9 is not there)",
        f"lost: {RUN_ID}-p1: the endpoint is gone",
    ]


def test_an_answer_that_did_not_come_is_not_told_as_refused_edits() -> None:
    unanswered = EditsRefused(job_id=f"{RUN_ID}-p1", refusals=(Refusal(index=-1, reason=NO_ANSWER),))
    told = followed([*story()[:2], msgspec.structs.replace(story()[2], body=decided(unanswered))])[1]
    assert told == ["world model: no edits came; asked for again"]


def test_a_failed_try_of_a_call_is_of_note_the_first_time() -> None:
    records = story()
    written = records[4].body
    assert isinstance(written, CandidateWritten)
    fault = EndpointFault(kind="rate_limited", status=429)
    answer = msgspec.structs.replace(written, faults=(fault, fault), usage=Usage(calls=1))
    again = msgspec.structs.replace(records[9], body=msgspec.structs.replace(records[9].body, faults=(fault,)))
    faulty = [*records[:4], msgspec.structs.replace(records[4], body=answer), *records[5:9], again]
    progress, lines = followed(faulty)
    assert lines == ["endpoint: w3 answered after failed tries: 2 rate_limited (HTTP 429)"]
    assert progress.chronicle.faults.total() == 3


def test_the_time_left_follows_the_pace_and_is_not_told_before_two_rounds() -> None:
    assert followed(story()[:8])[0].left_s(after(10)) is None
    ended, _ = followed(story())
    assert ended.left_s(after(13)) == 0.0


def test_the_curve_has_the_best_after_each_round() -> None:
    assert followed(story())[0].chronicle.curve == [0.0, 2.0]


@pytest.mark.anyio
async def test_a_real_run_is_followed_to_its_end(tmp_path: Path) -> None:
    records = await real_journal(tmp_path)
    chronicle = Run()
    progress = Progress(chronicle, Narrator(chronicle))
    for record in records:
        list(progress.tell(record))
        now = datetime.fromisoformat(record.at)
        at_work = [work for node, works in progress.in_flight(now).items() if node != ROOT for work in works]
        of_branches = [work for work in at_work if work.verb != "confirming"]
        assert len(of_branches) == len(chronicle.state.branches) <= 2 * BRANCHES
        assert len(at_work) - len(of_branches) <= 1
        assert all(work.since_s is None or 0.0 <= work.since_s <= progress.elapsed_s(now) for work in at_work)
        assert progress.left_s(now) is None or progress.left_s(now) >= 0.0  # type: ignore[operator]
        assert_nodes_fit(progress)
    assert len(chronicle.curve) == ROUNDS
    assert chronicle.curve == sorted(chronicle.curve)


def test_a_node_that_does_not_fit_with_its_parents_leaves_the_rows_to_others() -> None:
    deep = [inserted(f"n{number}", f"n{number - 1}", f"step {number}") for number in range(2, 6)]
    at_work = BranchStarted(branch_id="b9", node_id="n5", base_id=None)
    grown = msgspec.structs.replace(story()[2], body=decided(*deep, inserted("n6", "n0", "aside"), at_work))
    progress, _ = followed([*story()[:3], grown])
    state = progress.chronicle.state
    assert [row.node.node_id for row in chosen_rows(state, 3)] == ["n1", "n2", "n6"]
    assert [row.node.node_id for row in chosen_rows(state, 5)] == ["n1", "n2", "n3", "n4", "n5"]


def assert_nodes_fit(progress: Progress) -> None:
    """Check that small trees hold the best and its parents, no more than fits, and each node under its parents."""
    state = progress.chronicle.state
    for rows in (1, 3, 8, 1000):
        shown = [row.node.node_id for row in chosen_rows(state, rows)]
        assert len(shown) <= rows
        for node_id in shown:
            above = [node.node_id for node in ancestors(state, state.node(node_id)) if node.node_id != ROOT]
            assert all(parent in shown[: shown.index(node_id)] for parent in above)
        if rows == 1000:
            assert len(shown) == max(0, len(state.nodes) - 1)
        best = state.incumbent
        if best is not None and state.node(best.node_id).depth <= rows:
            assert best.node_id in shown


def test_answers_and_verdicts_that_are_waited_for_are_counted() -> None:
    counts = [(seen.questions, seen.evaluations) for seen in (followed(story()[:end])[0] for end in (2, 4, 6, 9))]
    assert counts == [(1, 0), (1, 0), (0, 1), (1, 0)]


def test_evaluations_beyond_what_is_worked_on_at_once_wait_in_a_queue() -> None:
    beside = BranchStarted(branch_id="b9", node_id="n1", base_id=None)
    more = EvaluationRequested(job_id=f"{RUN_ID}-e99", branch_id="b9", candidate_id="c", artifact_id="a")
    asked = msgspec.structs.replace(story()[6], body=decided(beside, more))
    records = [*story()[:6], asked]
    assert followed(records)[0].queue is None  # who works on them is not known yet
    chronicle = Run()
    progress = Progress(chronicle, Narrator(chronicle), slots=1)
    for record in records:
        list(progress.tell(record))
    assert (progress.evaluations, progress.queue) == (2, 1)


@pytest.mark.parametrize(
    ("limit", "left_s"),
    [
        (Budget(max_rounds=1000), 13 / 2 * 998),
        (Budget(max_rounds=1000, max_calls=6), 13 / 2 * 4),
        (Budget(max_rounds=1000, max_tokens=50), 13 / 20 * 30),
        (Budget(max_rounds=1000, max_calls=6, wall_clock_s=20.0), 7.0),
    ],
)
def test_the_time_left_is_that_of_the_budget_that_is_used_up_first(limit: Budget, left_s: float) -> None:
    records = story(None)
    opened, plan = records[1].body.facts  # type: ignore[union-attr]
    settings = msgspec.structs.replace(opened.settings, budget=limit)  # type: ignore[union-attr]
    records[1] = msgspec.structs.replace(
        records[1], body=decided(msgspec.structs.replace(opened, settings=settings), plan)
    )
    progress, _ = followed(records)
    assert progress.left_s(after(14)) == pytest.approx(left_s)


def test_attempts_that_brought_something_new_are_remembered() -> None:
    assert [(one.node_id, one.fact.fate) for one in reversed(followed(story())[0].latest(24))] == [
        ("n1", "wrong"),
        ("n1", "measured"),
    ]


def test_nodes_are_counted_by_state_after_every_change() -> None:
    progress, _ = followed(story()[:3])
    assert progress.node_counts() == {"in_flight": 1}
    list(progress.tell(msgspec.structs.replace(story()[3], body=decided(inserted("n2", "n0", "aside")))))
    assert progress.node_counts() == {"in_flight": 1, "open": 1}
