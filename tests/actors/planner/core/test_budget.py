"""What a run may still spend: money and tokens looked at before each question, with all that is under way."""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from messages.base import Usage
from messages.events import JobLost, RunResumed
from messages.facts import BuildRequested, SpendRecorded, WriteRequested
from messages.models import Lineup, Offer, Price
from messages.settings import Budget, SearchSettings
from tests.actors.planner.core.world import World, built, candidate, measured, written

PRICE = Price(input_usd=10.0, cached_usd=1.0, output_usd=100.0)
DEAR = Price(input_usd=100.0, cached_usd=10.0, output_usd=1000.0)
ONE = Lineup(planner=Offer(name="p", price=PRICE), coders=(Offer(name="c", price=PRICE),))
TWO = Lineup(
    planner=Offer(name="p", price=PRICE),
    coders=(Offer(name="cheap", price=PRICE), Offer(name="dear", price=DEAR)),
)
ANSWER_USD = 0.11
"""Of 1,000 prompt and 1,000 completion tokens at `PRICE`."""


def search(
    lineup: Lineup, *, branches: int = 1, max_cost_usd: float | None = None, max_tokens: int | None = None
) -> World:
    budget = Budget(max_rounds=200, max_cost_usd=max_cost_usd, max_tokens=max_tokens)
    settings = SearchSettings(world_model="off", branches=branches, confirm=False, budget=budget)
    return World(settings, lineup=lineup)


def answer(world: World, number: int) -> None:
    """Answer the oldest question with 1,000 tokens each way, and carry it through to a verdict."""
    (write, *_) = world.requests(WriteRequested)
    usage, text = Usage(calls=1, prompt_tokens=1000, completion_tokens=1000), f"text {number}"
    world.give(replace(written(write.job_id, text), usage=usage))
    (build,) = world.requests(BuildRequested)
    world.give(built(build.job_id, candidate(text).candidate_id))
    world.evaluate(text, measured(1.0 + 0.1 * number))


def play(world: World, first: int = 0) -> int:
    """Answer until nothing is asked any more, and return how often."""
    count = 0
    while world.requests(WriteRequested):
        answer(world, first + count)
        count += 1
    return count


def test_nothing_is_asked_that_is_not_expected_to_fit_into_the_money() -> None:
    world = search(ONE, branches=4, max_cost_usd=1.5)
    most = 0.0
    count = 0
    while world.requests(WriteRequested):
        expected = ANSWER_USD if count else 0.34
        most = max(most, world.state.cost_usd + expected * len(world.requests(WriteRequested)))
        answer(world, count)
        count += 1
    assert most <= 1.5 + 1e-9
    assert count == 13  # 13 x 0.11 = 1.43
    assert (world.state.stopped_by, world.state.finished) == ("cost", True)
    assert "an answer costs about $0.11" in world.state.stop_detail


def test_a_budget_below_the_first_answer_ends_the_run_before_it_is_asked() -> None:
    world = search(ONE, max_cost_usd=0.01)
    assert world.state.finished
    assert world.state.stopped_by == "cost"
    assert world.state.calls == 0


def test_a_limit_of_tokens_holds_back_questions_that_would_pass_it() -> None:
    world = search(ONE, branches=4, max_tokens=21_000)
    assert len(world.requests(WriteRequested)) == 3
    assert play(world) == 10
    assert world.state.usage.tokens == 20_000
    assert (world.state.stopped_by, world.state.finished) == ("tokens", True)


def test_only_cheap_models_use_up_what_is_left() -> None:
    world = search(TWO, max_cost_usd=4.0)
    asked = []
    while world.requests(WriteRequested):
        asked += [request.model for request in world.requests(WriteRequested) if isinstance(request, WriteRequested)]
        answer(world, len(asked))
    assert {"cheap", "dear"} == set(asked)
    assert asked[-1] == "cheap"
    assert 4.0 - ANSWER_USD < world.state.cost_usd <= 4.0


def test_each_answer_is_journalled_with_its_model_its_node_and_its_cost() -> None:
    world = search(TWO, max_cost_usd=20.0)
    answer(world, 0)
    (spend,) = [fact for fact in world.facts if isinstance(fact, SpendRecorded)]
    write = next(fact for fact in world.facts if isinstance(fact, WriteRequested))
    assert (spend.model, spend.node_id) == (write.model, "n1")
    assert spend.cost_usd == (ANSWER_USD if write.model == "cheap" else 10 * ANSWER_USD)


def test_an_answer_of_unknown_price_has_no_cost() -> None:
    world = search(Lineup(coders=(Offer(name="c"),)))
    answer(world, 0)
    (spend,) = [fact for fact in world.facts if isinstance(fact, SpendRecorded)]
    assert (spend.cost_usd, spend.model) == (None, "m")


def test_questions_that_a_stop_lost_count_as_paid_for() -> None:
    world = search(ONE, branches=4, max_cost_usd=1.5)
    answer(world, 0)
    world.give(RunResumed(run_id="test-run"))
    assert world.state.lost_calls == 4
    assert play(world, 1) == 8  # 13 in all, less one answered and four lost


def test_of_lost_questions_only_as_many_are_asked_again_as_the_money_pays_for() -> None:
    world = search(ONE, branches=8, max_cost_usd=1.5)
    answer(world, 0)
    world.give(RunResumed(run_id="test-run"))
    assert world.state.lost_calls == 8
    assert len(world.requests(WriteRequested)) == 4  # 1.50 less nine times 0.11
    assert play(world, 1) == 4


def test_what_was_learned_of_models_is_a_fold_and_survives_a_resume() -> None:
    world = search(TWO)
    for number in range(30):
        answer(world, number)
    folded = SearchState()
    for fact in world.facts:
        folded = evolve(folded, fact)
    assert folded.arms == world.state.arms
    assert sum(arm.usage.calls for arm in folded.arms) == 30
    names = [fact.model for fact in world.facts if isinstance(fact, WriteRequested)]
    again = search(TWO)
    for number in range(30):
        answer(again, number)
    assert names == [fact.model for fact in again.facts if isinstance(fact, WriteRequested)]


def test_another_line_up_on_resume_keeps_the_records_of_models_that_stay() -> None:
    world = search(TWO)
    for number in range(10):
        answer(world, number)
    kept = world.state.arms[0]
    other = Lineup(coders=(Offer(name="new", price=PRICE), Offer(name="cheap", price=PRICE)), choice="bandit")
    world.give(RunResumed(run_id="test-run", lineup=other))
    assert [arm.name for arm in world.state.arms] == ["new", "cheap"]
    assert world.state.arms[1] == kept


def test_what_models_were_asked_that_are_gone_others_are_asked_on_resume() -> None:
    world = search(TWO, branches=4)
    gone = {request.job_id for request in asked(world) if request.model == "dear"}
    assert gone
    world.give(RunResumed(run_id="test-run", lineup=Lineup(coders=(Offer(name="cheap"), Offer(name="new")))))
    assert {request.model for request in asked(world)} <= {"cheap", "new"}
    assert not gone & {request.job_id for request in asked(world)}
    assert len(asked(world)) == 4
    world.give(RunResumed(run_id="test-run", lineup=Lineup(coders=(Offer(name="new"),))))
    assert [request.model for request in asked(world)] == [""] * 4


def test_losses_of_before_do_not_stop_a_run_that_was_resumed() -> None:
    """Keys are put right before a run is resumed: what all its coders said at once when it failed is no news."""
    world = search(ONE, branches=4)
    first, *others = asked(world)
    world.give(JobLost(job_id=first.job_id, kind="write", error="wrong key", permanent=True))
    assert world.state.finished
    world.give(RunResumed(run_id="test-run"))
    for request in others:
        world.give(JobLost(job_id=request.job_id, kind="write", error="wrong key", permanent=True))
    assert world.state.running
    assert len(asked(world)) == 4
    world.give(JobLost(job_id=asked(world)[0].job_id, kind="write", error="wrong key", permanent=True))
    assert world.state.stopped_by == "infrastructure"


def asked(world: World) -> list[WriteRequested]:
    return [request for request in world.requests(WriteRequested) if isinstance(request, WriteRequested)]
