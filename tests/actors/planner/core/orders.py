"""Orders of people to a search in the world of the pure core, and what came of them."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from actors.planner.core.evolve import evolve
from actors.planner.core.scripts import changes
from messages.edits import EditScript
from messages.facts import BranchStarted, EditsApplied, Fact
from messages.steering import Steering, SteeringRefused, SteeringRequested
from tests.actors.planner.core.recomputed import recomputed_entries_hash
from tests.actors.planner.core.world import WRONG, World, inserts, search

GOOD = 1.5
FactT = TypeVar("FactT", bound=msgspec.Struct)


def facts_of(world: World, kind: type[FactT]) -> list[FactT]:
    return [fact for fact in world.facts if isinstance(fact, kind)]


def order(world: World, steering: Steering) -> tuple[Fact, ...]:
    facts = world.give(SteeringRequested(order=steering))
    assert recomputed_entries_hash(world.state) == world.state.entries_hash
    return facts


def refusal(world: World, steering: Steering) -> str:
    before = world.state
    (fact,) = order(world, steering)
    assert isinstance(fact, SteeringRefused)
    assert world.state == replace(before, facts=before.facts + 1)
    return fact.reason


def begun(count: int = 3, *, branches: int = 1) -> World:
    """A search with one action in flight and the others open."""
    world = search(branches=branches)
    world.propose(inserts(count))
    return world


def revise(world: World, script: EditScript) -> None:
    """Change the tree as an edit script does, asked for or not."""
    fact = EditsApplied(job_id="", changes=changes(world.state, script.edits))
    world.state = evolve(world.state, fact)
    world.facts.append(fact)


def started_on(world: World) -> list[str]:
    return [fact.node_id for fact in facts_of(world, BranchStarted)]


def fail_branch(world: World) -> None:
    """Have the oldest branch end without a correct candidate."""
    (branch_id,) = {branch.branch_id for branch in world.state.branches.values()}
    number = 0
    while branch_id in world.state.branches:
        number += 1
        world.attempt(f"{branch_id} {number}", WRONG, branch_id=branch_id)
