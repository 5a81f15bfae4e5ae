"""A candidate is measured twice before it is the best: which one when, and what the second measurement changes."""

from __future__ import annotations

import pytest

from actors.planner.core.scheduling import SHARE
from messages.edits import EditScript
from messages.events import ContinueRequested, JobLost, PauseRequested, RunResumed, StopRequested
from messages.facts import (
    BuildRequested,
    ConfirmationFinished,
    ConfirmationOwed,
    ConfirmationRequested,
    IncumbentChanged,
    PlanRequested,
    RunFinished,
    WriteRequested,
)
from messages.settings import Budget
from messages.verdicts import (
    Crashed,
    Interval,
    Measured,
    Outpaced,
    Quarantined,
    Rejected,
    Scored,
    TimedOut,
    Unstable,
    Verdict,
    Wrong,
)
from tests.actors.planner.core.world import (
    World,
    built,
    candidate,
    facts_of,
    inserts,
    measured,
    only_branch,
    search,
    written,
)

WIDE = Interval(low=1.2, high=2.9)
REFUTED: tuple[Verdict, ...] = (
    Wrong(reason="1 of 4 elements differ"),
    Crashed(reason="segmentation fault"),
    TimedOut(reason="killed", stage="call", limit_s=5),
    Rejected(reason="opens a file", rule="files"),
    Quarantined(reason="faster than memory", speedup_interval=WIDE),
)


def screened(*said: float, lease_s: float = 2.0, window: int = 9, rounds: int = 100) -> World:
    """Return a search of one branch whose attempts, `0`, `1`, …, were screened with these credits."""
    world = search(confirm=True, window=window, rounds=rounds)
    world.propose(inserts(1))
    for number, credit in enumerate(said):
        world.attempt(str(number), measured(credit), lease_s=lease_s)
    return world


def best(world: World) -> tuple[str, float] | None:
    found = world.state.incumbent
    return (found.candidate_id, found.credit) if found else None


def named(text: str, credit: float) -> tuple[str, float]:
    return candidate(text).candidate_id, credit


def test_a_screening_above_the_incumbents_is_confirmed_before_it_counts() -> None:
    world = screened(2.0)
    assert best(world) is None
    assert facts_of(world, ConfirmationOwed)
    world.confirm("0", measured(1.9))
    assert best(world) == named("0", 1.9)
    assert world.state.rounds == 1


@pytest.mark.parametrize("credit", [1.5, 2.5])
def test_the_second_measurement_counts_in_either_direction(credit: float) -> None:
    world = screened(2.0)
    world.confirm("0", measured(credit))
    assert best(world) == named("0", credit)
    (changed,) = facts_of(world, IncumbentChanged)
    assert isinstance(changed, IncumbentChanged)
    assert changed.screen_speedup == measured(2.0).speedup_vs_reference
    assert only_branch(world).best is not None
    assert only_branch(world).best.credit == credit  # type: ignore[union-attr]
    assert only_branch(world).attempts[0].credit == credit


def test_a_candidate_whose_luck_is_not_repeated_is_not_the_incumbent_and_counts_for_less() -> None:
    world = screened(2.0, lease_s=100.0)
    world.confirm("0", measured(2.0))
    world.attempt("1", measured(2.4), lease_s=100.0)
    world.confirm("1", measured(1.8))
    assert best(world) == named("0", 2.0)
    assert world.state.known[candidate("1").candidate_id].credit == 1.8
    assert not world.state.provisional


def test_a_candidate_below_the_incumbent_is_not_measured_again() -> None:
    world = screened(2.0)
    world.confirm("0", measured(2.0))
    world.attempt("1", measured(1.9), lease_s=1000.0)
    assert not world.requests(ConfirmationRequested)
    assert not world.state.provisional


@pytest.mark.parametrize("verdict", REFUTED, ids=lambda verdict: type(verdict).__name__)
def test_a_candidate_that_its_confirmation_refutes_is_no_correct_candidate_any_more(verdict: Verdict) -> None:
    world = screened(2.0)
    world.confirm("0", verdict)
    branch = only_branch(world)
    assert best(world) is None
    assert branch.best is None
    assert branch.attempts[0].fate == world.state.known[candidate("0").candidate_id].fate != "measured"
    assert "in its confirmation" in branch.attempts[0].outcome
    assert world.state.node("n1").fates == ((branch.attempts[0].fate, 1),)


@pytest.mark.parametrize(
    "verdict",
    [Unstable(reason="±40 %", speedup_interval=WIDE), Outpaced(reason="about 1.9x", speedup_interval=WIDE)],
    ids=["unstable", "outpaced"],
)
def test_what_cannot_be_told_again_stays_correct_for_the_least_that_was_said_and_is_no_incumbent(
    verdict: Verdict,
) -> None:
    world = screened(2.0)
    world.confirm("0", verdict)
    assert best(world) is None
    assert only_branch(world).best is not None
    assert only_branch(world).best.credit == 1.2  # type: ignore[union-attr]


def test_the_best_is_confirmed_first_and_what_it_surpasses_is_spared() -> None:
    world = search(branches=3, confirm=True)
    world.propose(inserts(3))
    for text, credit in (("low", 1.5), ("high", 3.0), ("middle", 2.0)):
        branch_id = sorted(branch.branch_id for branch in world.state.branches.values() if not branch.attempts)[0]
        world.attempt(text, measured(credit), branch_id=branch_id, lease_s=100.0)
    world.confirm("low", measured(1.4))
    world.confirm("high", measured(2.9))
    assert best(world) == named("high", 2.9)
    assert not world.state.provisional
    assert not world.requests(ConfirmationRequested)


def test_confirmations_wait_while_they_have_more_than_their_share_of_the_time() -> None:
    world = screened(2.0, lease_s=2.0)
    world.confirm("0", measured(2.0), lease_s=5.0)
    spent_s = 2.0
    for number in range(1, 20):
        world.attempt(str(number), measured(2.0 + number), lease_s=2.0)
        spent_s += 2.0
        if world.requests(ConfirmationRequested):
            break
        assert SHARE * (spent_s + 5.0) < 5.0
        assert best(world) == named("0", 2.0)
    assert SHARE * (spent_s + 5.0) >= 5.0
    assert (world.state.screen_s, world.state.confirm_s) == (spent_s, 5.0)


def test_what_is_slower_than_the_reference_waits_for_the_end() -> None:
    world = screened(0.3, 0.9, rounds=3)
    assert not world.requests(ConfirmationRequested)
    world.attempt("2", measured(0.5))
    world.confirm("1", measured(0.9))
    assert (world.state.finished, best(world)) == (True, named("1", 0.9))


def test_what_would_reach_the_target_does_not_wait() -> None:
    world = search(confirm=True, window=9, target_speedup=3.0)
    world.propose(inserts(1))
    world.attempt("0", measured(2.0), lease_s=1.0)
    world.confirm("0", measured(2.0), lease_s=50.0)
    world.attempt("1", measured(3.1), lease_s=1.0)
    world.confirm("1", measured(3.0), lease_s=5.0)
    assert (world.state.stopped_by, best(world)) == ("target", named("1", 3.0))


def test_a_screening_does_not_reach_the_target() -> None:
    world = search(confirm=True, window=9, target_speedup=3.0)
    world.propose(inserts(1))
    world.attempt("0", measured(3.1))
    assert world.state.running
    world.confirm("0", measured(2.9))
    assert world.state.running


def test_before_a_run_ends_what_is_provisional_is_confirmed_best_first() -> None:
    world = screened(2.0, rounds=4, lease_s=1.0)
    world.confirm("0", measured(2.0), lease_s=100.0)
    for number, credit in ((1, 2.5), (2, 3.5), (3, 3.0)):
        world.attempt(str(number), measured(credit), lease_s=1.0)
    assert (world.state.status, world.state.stopped_by) == ("stopping", "rounds")
    world.confirm("2", Wrong(reason="1 of 4 elements differ"), lease_s=5.0)
    world.confirm("3", measured(2.2), lease_s=5.0)
    world.confirm("1", measured(2.4), lease_s=5.0)
    assert world.state.finished
    assert best(world) == named("1", 2.4)
    (finished,) = facts_of(world, RunFinished)
    assert isinstance(finished, RunFinished)
    assert (finished.rounds, finished.credit) == (4, 2.4)


def test_a_run_that_is_stopped_leaves_confirmations_for_when_it_is_resumed() -> None:
    world = screened(2.0, lease_s=1.0)
    world.confirm("0", measured(2.0), lease_s=100.0)
    world.attempt("1", measured(2.5), lease_s=1.0)
    world.give(StopRequested(reason="test"))
    assert world.state.finished
    assert best(world) == named("0", 2.0)
    world.give(RunResumed(run_id=world.state.run_id, budget=Budget(max_rounds=2)))
    world.confirm("1", measured(2.4))
    assert best(world) == named("1", 2.4)
    assert (world.state.finished, world.state.stopped_by) == (True, "rounds")


def test_a_run_may_be_stopped_while_it_confirms_at_its_end() -> None:
    world = screened(2.0, 2.5, rounds=2)
    assert world.state.ending
    world.give(StopRequested(reason="test"))
    world.confirm("0", measured(2.0))
    assert (world.state.finished, world.state.stopped_by) == (True, "interrupted")
    assert world.state.provisional
    world.give(RunResumed(run_id=world.state.run_id))
    world.confirm("1", measured(2.4))
    assert (world.state.finished, world.state.stopped_by, best(world)) == (True, "rounds", named("1", 2.4))


def test_a_paused_run_begins_no_confirmation() -> None:
    world = screened()
    write = world.requests(WriteRequested)[0]
    world.give(PauseRequested(reason="test"))
    world.give(written(write.job_id, "0"))
    world.give(built(world.requests(BuildRequested)[0].job_id, candidate("0").candidate_id))
    world.evaluate("0", measured(2.0))
    assert world.state.provisional
    assert not world.requests(ConfirmationRequested)
    world.give(ContinueRequested())
    world.confirm("0", measured(2.0))
    assert best(world) == named("0", 2.0)


def test_a_lost_confirmation_is_built_and_asked_for_again() -> None:
    world = screened(2.0)
    (request,) = world.requests(ConfirmationRequested)
    world.give(JobLost(job_id=request.job_id, kind="evaluate", error="the artifact is gone"))
    (build,) = (found for found in world.requests(BuildRequested) if not found.branch_id)
    world.give(built(build.job_id, candidate("0").candidate_id))
    world.confirm("0", measured(1.9))
    assert best(world) == named("0", 1.9)
    assert world.state.rounds == 1


def test_a_confirmation_that_evaluators_cannot_do_is_left_for_when_the_run_is_resumed() -> None:
    world = screened(2.0, rounds=1)
    assert world.state.ending
    (request,) = world.requests(ConfirmationRequested)
    world.give(JobLost(job_id=request.job_id, kind="evaluate", error="no device", permanent=True))
    assert (world.state.finished, world.state.stopped_by) == (True, "infrastructure")
    assert best(world) is None
    world.give(RunResumed(run_id=world.state.run_id))
    (build,) = world.requests(BuildRequested)
    world.give(built(build.job_id, candidate("0").candidate_id))
    world.confirm("0", measured(1.9))
    assert (world.state.finished, world.state.stopped_by, best(world)) == (True, "rounds", named("0", 1.9))


def test_a_late_or_repeated_confirmation_changes_nothing() -> None:
    world = screened(2.0)
    (request,) = world.requests(ConfirmationRequested)
    world.confirm("0", measured(1.9))
    before = world.state
    assert world.again(request, measured(9.0)) == ()
    assert world.state == before


def test_a_refuted_candidate_is_taken_off_its_closed_node_and_the_next_best_is_attached() -> None:
    world = screened(2.5, 2.0, window=1)
    node = world.state.node("n1")
    assert node.state == "closed"
    assert node.best is not None
    assert node.best.candidate_id == candidate("0").candidate_id
    world.confirm("0", Wrong(reason="1 of 4 elements differ"))
    node = world.state.node("n1")
    assert node.state == "closed"
    assert node.best is not None
    assert node.best.candidate_id == candidate("1").candidate_id


def test_a_node_whose_only_candidate_is_refuted_has_failed_once_and_is_tried_again() -> None:
    world = screened(2.0, window=1)
    world.attempt("1", Wrong(reason="2 of 4 elements differ"))
    assert world.state.node("n1").state == "closed"
    world.confirm("0", Crashed(reason="segmentation fault"))
    node = world.state.node("n1")
    assert (node.state, node.best, node.failures) == ("in_flight", None, 1)


def test_the_planners_model_is_told_that_what_it_was_told_is_not_so() -> None:
    world = screened(2.0, window=1)
    world.attempt("1", measured(1.0))
    told = world.plan()
    assert told.branch_ids
    world.propose(EditScript())
    assert not world.state.reports
    (request,) = world.requests(ConfirmationRequested)
    world.confirm("0", Wrong(reason="1 of 4 elements differ"))
    asked = [fact for fact in world.facts if isinstance(fact, PlanRequested)][-1]
    assert asked.branch_ids == (request.job_id,)
    (report,) = world.state.reports
    assert report.refuted
    assert report.node_id == "n1"


def test_children_of_a_refuted_candidate_no_longer_start_from_it() -> None:
    world = screened(2.5, 2.0, window=1)
    world.propose(inserts(1, parent="n1", prefix="child"))
    assert only_branch(world).base is not None
    world.confirm("0", Wrong(reason="1 of 4 elements differ"))
    base = only_branch(world).base
    assert base is None or base.candidate_id != candidate("0").candidate_id


def test_a_refuted_candidate_that_is_written_again_is_known_to_be_wrong() -> None:
    world = screened(2.0)
    world.confirm("0", TimedOut(reason="killed", stage="call", limit_s=5))
    world.give(written(world.requests(WriteRequested)[0].job_id, "0"))
    assert world.state.rounds == 1
    assert [attempt.fate for attempt in only_branch(world).attempts] == ["timed_out", "timed_out"]
    assert not world.requests(BuildRequested)


def test_scores_and_what_is_not_timed_need_no_confirmation() -> None:
    world = search(confirm=True, window=9)
    world.propose(inserts(1))
    world.attempt("score", Scored(score=2.5))
    assert best(world) == named("score", 2.5)
    world.attempt("untimed", Measured(timed=False))
    assert not facts_of(world, ConfirmationOwed)


def test_without_confirmation_one_measurement_makes_the_best() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    world.attempt("0", measured(2.0))
    assert best(world) == named("0", 2.0)
    assert not facts_of(world, ConfirmationOwed)


def test_a_search_with_nothing_else_to_do_does_not_wait_for_a_confirmation() -> None:
    world = screened(2.0, window=1)
    world.attempt("1", measured(1.0))
    world.propose(EditScript())
    assert world.requests(ConfirmationRequested)
    assert world.requests(WriteRequested), "the machine goes on meanwhile"


def test_each_confirmation_is_journalled_with_what_both_measurements_said() -> None:
    world = screened(2.0)
    world.confirm("0", measured(1.8), lease_s=5.0)
    (fact,) = facts_of(world, ConfirmationFinished)
    assert isinstance(fact, ConfirmationFinished)
    assert (fact.screen_credit, fact.credit, fact.lease_s, fact.round, fact.node_id) == (2.0, 1.8, 5.0, 1, "n1")
