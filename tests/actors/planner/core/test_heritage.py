"""A search that begins with the tree of an earlier run has its beliefs, and measures its candidates anew."""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from messages.base import ROOT
from messages.facts import BranchClosed, WriteRequested
from messages.settings import Budget, Heritage, InheritedNode, SearchSettings
from tests.actors.planner.core.orders import facts_of, started_on
from tests.actors.planner.core.world import WRONG, World, candidate, measured, started


def inherited(parent: int, title: str, *, text: str = "", pruned: str = "", priority: float = 0.5) -> InheritedNode:
    return InheritedNode(
        parent=parent,
        title=title,
        description="d",
        difficulty=2,
        priority=priority,
        earlier="1.50x on cpu",
        pruned=pruned,
        candidate=candidate(text) if text else None,
    )


def heir(*nodes: InheritedNode) -> World:
    heritage = Heritage(origin="r0", summary="Bound by memory.", open_questions=("Cache?",), nodes=nodes)
    settings = SearchSettings(branches=1, confirm=False, stagnation_window=2, budget=Budget(max_rounds=50))
    world = World.__new__(World)
    world.state, world.facts = SearchState(), []
    world.give(replace(started(settings), heritage=heritage))
    return world


def test_an_inherited_tree_has_its_beliefs_and_counts_no_result_of_another_run() -> None:
    world = heir(inherited(-1, "a", text="a", priority=0.9), inherited(0, "b"), inherited(-1, "c", pruned="slow"))
    state = world.state
    assert (state.summary, state.open_questions) == ("Bound by memory.", ("Cache?",))
    assert [(node.node_id, node.parent_id, node.state) for node in (state.node("n2"), state.node("n3"))] == [
        ("n2", "n1", "open"),
        ("n3", ROOT, "pruned"),
    ]
    assert state.incumbent is None
    assert state.node("n1").best is None
    assert state.node("n1").earlier == "1.50x on cpu"
    assert not state.known


def test_an_inherited_candidate_is_measured_anew_when_it_is_first_used_and_then_its_children_open() -> None:
    world = heir(inherited(-1, "a", text="a", priority=0.9), inherited(0, "b", priority=0.8))
    (write,) = world.requests(WriteRequested)
    assert isinstance(write, WriteRequested)
    assert write.given_id == candidate("a").candidate_id
    world.attempt("a", measured(1.2))
    closed = facts_of(world, BranchClosed)[0]
    assert closed.reason == "an earlier run's candidate was measured anew"
    assert started_on(world) == ["n1", "n2"]
    assert world.state.incumbent is not None
    assert world.state.incumbent.credit == 1.2


def test_an_inherited_candidate_that_is_wrong_here_is_debugged_as_any_other() -> None:
    world = heir(inherited(-1, "a", text="a"), inherited(0, "b"))
    world.attempt("a", WRONG)
    (write,) = world.requests(WriteRequested)
    assert isinstance(write, WriteRequested)
    assert (write.mode, write.given_id) == ("debug", None)


def test_a_kernel_and_a_world_model_can_be_begun_with_together() -> None:
    heritage = Heritage(origin="r0", nodes=(inherited(-1, "a"),))
    event = replace(started(SearchSettings(branches=1)), heritage=heritage, solution=candidate("theirs"))
    state = SearchState()
    for fact in decide(state, event):
        state = evolve(state, fact)
    assert [node.origin for node in (state.node("n1"), state.node("n2"))] == ["model", "person"]
    (branch,) = state.branches.values()
    assert branch.node_id == "n2"
