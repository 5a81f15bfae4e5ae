"""A tree that the planner's model makes once, or never: what the machine does instead."""

from __future__ import annotations

import pytest

from messages.edits import EditScript
from messages.events import RunResumed
from messages.facts import NodeInserted, PlanRequested, WriteRequested
from messages.settings import Budget, SearchSettings, WorldModel
from tests.actors.planner.core.world import WRONG, World, facts_of, inserts, measured, proposed


def searching(world_model: WorldModel, *, branches: int = 2, rounds: int = 30, window: int = 2) -> World:
    settings = SearchSettings(
        world_model=world_model, branches=branches, stagnation_window=window, budget=Budget(max_rounds=rounds)
    )
    return World(settings)


def parents_of_variations(world: World) -> list[str]:
    found = [fact for fact in world.facts if isinstance(fact, NodeInserted) and fact.origin == "machine"]
    return [fact.parent_id for fact in found]


def test_without_a_world_model_every_slot_gets_a_direct_attempt_and_no_plan_is_asked_for() -> None:
    world = searching("off", branches=3)
    assert len(world.requests(WriteRequested)) == 3
    titles = [fact.title for fact in world.facts if isinstance(fact, NodeInserted)]
    assert titles == ["Direct attempt", "Direct attempt, number 2", "Direct attempt, number 3"]
    assert not facts_of(world, PlanRequested)


def test_without_a_world_model_the_search_uses_its_whole_budget() -> None:
    world = searching("off", rounds=30)
    for number in range(30):
        assert not world.state.finished
        world.attempt(f"text {number}", measured(1.0 + number % 7) if number % 3 else WRONG)
    assert (world.state.stopped_by, world.state.rounds) == ("rounds", 30)
    assert not facts_of(world, PlanRequested)


def test_the_best_result_is_varied_first_and_most_often() -> None:
    world = searching("off", branches=1, window=1)
    world.attempt("good", measured(4.0))
    world.attempt("no better", measured(3.0))
    assert parents_of_variations(world) == ["n0", "n1"]
    for number in range(8):
        world.attempt(f"slower {number}", measured(2.0 - number / 100))
    counts = {parent: parents_of_variations(world).count(parent) for parent in parents_of_variations(world)}
    assert counts["n1"] == max(counts.values()) > 1


def test_slots_that_are_free_at_once_do_not_all_vary_the_same_result() -> None:
    world = searching("off", branches=3, window=1)
    for number in range(24):
        world.attempt(f"text {number}", measured(4.0 - number / 10))
    varied = set(parents_of_variations(world)) - {"n0"}
    assert len(varied) > 1


def test_a_frozen_tree_is_asked_for_once_and_then_varied_by_the_machine() -> None:
    world = searching("frozen", branches=1, window=1)
    assert facts_of(world, PlanRequested) == [world.plan()]
    assert not world.requests(WriteRequested)
    world.propose(inserts(2))
    for number in range(8):
        world.attempt(f"text {number}", measured(2.0 - number / 10))
    assert len(facts_of(world, PlanRequested)) == 1
    assert parents_of_variations(world)
    assert not world.state.finished


def test_a_frozen_tree_that_the_planner_has_nothing_for_becomes_a_direct_attempt() -> None:
    world = searching("frozen")
    world.propose(EditScript(summary="no idea"))
    assert len(world.requests(WriteRequested)) == 2
    assert len(facts_of(world, PlanRequested)) == 1


def test_a_frozen_tree_is_asked_for_again_where_the_answer_was_refused() -> None:
    world = searching("frozen")
    world.give(proposed(world.plan().job_id, None))
    assert len(facts_of(world, PlanRequested)) == 2
    world.propose(inserts(2))
    assert len(world.requests(WriteRequested)) == 2


@pytest.mark.parametrize("world_model", ["frozen", "off"])
def test_nothing_piles_up_for_a_planner_that_is_never_told(world_model: WorldModel) -> None:
    world = searching(world_model)
    if world.state.plan:
        world.propose(inserts(2))
    for number in range(12):
        world.attempt(f"text {number}", WRONG)
    assert world.state.reports == ()


def test_resuming_may_loosen_any_limit_of_the_budget() -> None:
    world = World(SearchSettings(branches=1, budget=Budget(max_rounds=9, max_calls=1)))
    world.propose(inserts(2))
    assert world.state.stopped_by == "calls"
    world.give(RunResumed(run_id=world.state.run_id, budget=Budget(max_rounds=9, max_calls=50)))
    assert world.state.running
    assert world.state.settings.budget.max_calls == 50
