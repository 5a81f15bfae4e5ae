"""Candidates that people give a search are built and measured like the model's own, once, and asked of no model."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from actors.planner.core.state import SearchState
from messages.base import ROOT
from messages.facts import AttemptFinished, NodeInserted, WriteRequested
from messages.settings import SearchSettings
from messages.steering import Inject, NodePinned
from messages.tasks import SourceFile
from tests.actors.planner.core.orders import GOOD, begun, facts_of, fail_branch, order, refusal
from tests.actors.planner.core.world import WRONG, World, candidate, measured, started, writes, written


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.cpp", "a/../../up.cpp", "", "a\nb", "./a", "x" * 300])
def test_a_candidate_whose_files_cannot_lie_in_a_folder_is_refused(path: str) -> None:
    hostile = msgspec.structs.replace(candidate("mine"), files=(SourceFile(path=path, text="x"),))
    assert "plain relative paths" in refusal(begun(), Inject(candidate=hostile))


def test_a_candidate_of_ones_own_is_built_evaluated_and_attached_and_is_a_round() -> None:
    world = begun()
    facts = order(world, Inject(candidate=candidate("mine"), title="Mine", description="by hand"))
    assert isinstance(facts[0], NodeInserted)
    assert isinstance(facts[2], NodePinned)
    node = world.state.node("n4")
    assert (node.origin, node.title, node.parent_id) == ("person", "Mine", ROOT)
    fail_branch(world)
    (write,) = world.requests(WriteRequested)
    assert isinstance(write, WriteRequested)
    assert write.given_id == candidate("mine").candidate_id
    rounds = world.state.rounds
    world.attempt("mine", measured(GOOD))
    assert world.state.rounds == rounds + 1
    assert world.state.incumbent is not None
    assert world.state.incumbent.node_id == "n4"
    (following,) = world.requests(WriteRequested)
    assert isinstance(following, WriteRequested)
    assert (following.mode, following.given_id) == ("improve", None)


def test_a_given_candidate_is_no_question_to_a_model() -> None:
    world = begun()
    order(world, Inject(candidate=candidate("mine")))
    fail_branch(world)
    asked = [request for request in world.state.questions if isinstance(request, WriteRequested)]
    assert world.requests(WriteRequested)
    assert asked == []


def test_a_candidate_that_is_known_already_is_not_evaluated_again() -> None:
    world = begun()
    world.attempt("mine", measured(GOOD))
    order(world, Inject(candidate=candidate("mine")))
    world.attempt("a", measured(0.5))
    world.attempt("b", measured(0.5))
    (write,) = world.requests(WriteRequested)
    rounds = world.state.rounds
    world.give(written(write.job_id, "mine"))
    last = facts_of(world, AttemptFinished)[-1]
    assert (last.round, last.credit) == (0, GOOD)
    assert world.state.rounds == rounds


def test_a_failed_candidate_of_ones_own_is_debugged_and_not_given_again() -> None:
    world = begun(1)
    order(world, Inject(candidate=candidate("mine")))
    fail_branch(world)
    world.attempt("mine", WRONG)
    (write,) = world.requests(WriteRequested)
    assert isinstance(write, WriteRequested)
    assert (write.mode, write.given_id) == ("debug", None)
    fail_branch(world)
    again = [write for write in writes(world) if write.given_id is not None]
    assert len(again) == 1


def test_a_run_may_begin_with_a_candidate_which_is_measured_first() -> None:
    event = replace(started(SearchSettings(branches=1, confirm=False)), solution=candidate("theirs"))
    world = World.__new__(World)
    world.state, world.facts = SearchState(), []
    world.give(event)
    assert world.plan().purpose == "analyse"
    (write,) = world.requests(WriteRequested)
    assert isinstance(write, WriteRequested)
    assert write.given_id == candidate("theirs").candidate_id
    world.attempt("theirs", measured(GOOD))
    assert world.state.incumbent is not None
    assert world.state.node("n1").origin == "person"
