"""The core under every interleaving of answers, repetitions, losses and late events."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.planner.core.evolve import evolve
from actors.planner.core.state import (
    Node,
    Requested,
    SearchState,
    active,
    in_order,
    recomputed_entries_hash,
    state_hash,
)
from actors.planner.core.tree import childless, frontier
from messages.edits import Edit, EditScript, Insert, Proposal, Prune, Split, Update
from messages.events import ClockTicked, Event, JobLost, RunResumed, StopRequested
from messages.facts import BuildRequested, EvaluationRequested, InitialRequested, PlanRequested, WriteRequested
from messages.settings import Budget, SearchSettings
from messages.verdicts import Crashed, Scored, TimedOut, Verdict, Wrong
from tests.actors.planner.core.world import World, built, candidate, evaluated, measured, proposed, written

SCORED = Scored(score=-1.0)
VERDICTS: tuple[Verdict, ...] = (
    SCORED,
    Scored(score=2.5),
    measured(0.5),
    measured(1.5),
    measured(3.0),
    Wrong(reason="3 of 9 elements differ"),
    Crashed(reason="segmentation fault"),
    TimedOut(reason="killed after 5 s", stage="call", limit_s=5.0),
)


def node_ids(state: SearchState) -> list[str]:
    return [node.node_id for node in in_order(state.nodes)] + ["n999", "a", "b"]


@st.composite
def scripts(draw: st.DrawFn, ids: list[str]) -> EditScript:
    title = st.sampled_from([f"t{index}" for index in range(12)])
    unit = st.floats(0, 1)
    proposals = st.builds(Proposal, title=title, description=st.just("d"), difficulty=st.integers(1, 5), priority=unit)
    edit: st.SearchStrategy[Edit] = st.one_of(
        st.builds(
            Insert,
            parent=st.sampled_from(ids),
            title=title,
            description=st.just("d"),
            difficulty=st.integers(1, 5),
            priority=unit,
            key=st.sampled_from(["", "a", "b"]),
        ),
        st.builds(Update, node=st.sampled_from(ids), priority=st.none() | unit),
        st.builds(Prune, node=st.sampled_from(ids), reason=st.just("r")),
        st.builds(Split, node=st.sampled_from(ids), into=st.tuples(proposals, proposals)),
    )
    return EditScript(edits=tuple(draw(st.lists(edit, max_size=5))))


@st.composite
def answers(draw: st.DrawFn, world: World) -> Event:
    """Answer one open request, any way."""
    requests = sorted((job.request for job in world.state.jobs.values()), key=lambda request: request.job_id)
    request = draw(st.sampled_from(requests))
    if draw(st.integers(0, 19)) == 0:
        return JobLost(job_id=request.job_id, kind="build", error="gone", permanent=draw(st.integers(0, 9)) == 0)
    match request:
        case WriteRequested():
            return written(request.job_id, draw(st.none() | st.sampled_from([f"code {i}" for i in range(30)])))
        case BuildRequested():
            return built(request.job_id, request.candidate_id, ok=draw(st.integers(0, 4)) > 0)
        case EvaluationRequested():
            return evaluated(request.job_id, request.candidate_id, draw(st.sampled_from(VERDICTS)))
        case InitialRequested():
            return evaluated(request.job_id, request.candidate_id, draw(st.sampled_from((SCORED, *VERDICTS))))
        case PlanRequested():
            return proposed(request.job_id, draw(st.none() | scripts(node_ids(world.state))))


def is_childless(state: SearchState, node: Node) -> bool:
    may_have = node.state == "closed" and not node.spent and node.node_id != "n0"
    return may_have and not any(state.node(child).state in ("open", "in_flight") for child in node.children)


def check_invariants(world: World) -> None:
    state = world.state
    assert state.entries_hash == recomputed_entries_hash(state)
    assert len(state.branches) <= state.settings.branches
    assert state.rounds <= state.settings.budget.max_rounds
    plans = [job for job in state.jobs.values() if isinstance(job.request, PlanRequested)]
    assert len(plans) <= 1
    for job_id, job in state.jobs.items():
        if not isinstance(job.request, PlanRequested | InitialRequested):
            assert state.branches[job.request.branch_id].job_id == job_id
    for branch in active(state):
        assert branch.job_id is None or branch.job_id in state.jobs
        assert not (branch.awaiting and branch.job_id)
        if branch.awaiting:
            assert any(other.candidate_id == branch.candidate_id and other.job_id for other in state.branches.values())
    for node in state.nodes.values():
        assert node.in_flight == sum(branch.node_id == node.node_id for branch in state.branches.values())
        assert (node.state == "in_flight") == (node.in_flight > 0)
        if node.state == "closed" and node.node_id != "n0":
            assert node.best is not None
    nodes = in_order(state.nodes)
    assert frontier(state) == [n for n in nodes if n.state == "open" and state.node(n.parent_id).state == "closed"]
    assert {n.node_id for n in childless(state)} == {n.node_id for n in nodes if is_childless(state, n)}
    if state.running:
        assert state.jobs, "a running search waits for something"


@st.composite
def histories(draw: st.DrawFn, *, steps: int = 60) -> World:
    world = World(
        SearchSettings(
            world_model=draw(st.sampled_from(("evolving", "frozen", "off"))),
            branches=draw(st.integers(1, 4)),
            stagnation_window=draw(st.integers(1, 3)),
            max_idle_attempts=8,
            max_lost=3,
            budget=Budget(max_rounds=draw(st.integers(1, 12))),
        ),
        initial=draw(st.sampled_from((None, candidate("code 0")))),
    )
    given_before: list[Event] = []
    for _ in range(draw(st.integers(1, steps))):
        check_invariants(world)
        kind = draw(st.integers(0, 19))
        event: Event
        if kind == 0 and given_before:
            event = draw(st.sampled_from(given_before))
        elif kind == 1:
            event = ClockTicked(elapsed_s=draw(st.floats(0, 100)))
        elif kind == 2:
            event = StopRequested(reason="test")
        elif world.state.finished or not world.state.jobs:
            event = RunResumed(run_id=world.state.run_id)
        else:
            event = draw(answers(world))
        repeated = event in given_before and not isinstance(event, ClockTicked | StopRequested | RunResumed)
        facts = world.give(event)
        assert not (repeated and facts), "a repeated answer changes nothing"
        given_before.append(event)
    check_invariants(world)
    return world


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories())
def test_the_state_is_the_fold_of_its_facts(world: World) -> None:
    state = SearchState()
    for fact in world.facts:
        state = evolve(state, fact)
    assert state == world.state
    assert state_hash(state) == state_hash(world.state)


def ending_answer(request: Requested, text: str, step: int) -> Event:
    match request:
        case WriteRequested():
            return written(request.job_id, text)
        case BuildRequested():
            return built(request.job_id, request.candidate_id, ok=step % 3 > 0)
        case EvaluationRequested():
            return evaluated(request.job_id, request.candidate_id, VERDICTS[step % len(VERDICTS)])
        case InitialRequested():
            return evaluated(request.job_id, request.candidate_id, SCORED)
        case PlanRequested():
            return proposed(request.job_id, EditScript())


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories(steps=30), st.integers(0, 10_000))
def test_a_search_that_is_answered_comes_to_its_end(world: World, salt: int) -> None:
    if world.state.finished:
        world.give(RunResumed(run_id=world.state.run_id))
    for step in range(4000):
        if world.state.finished:
            break
        request = sorted((job.request for job in world.state.jobs.values()), key=lambda found: found.job_id)[
            step % len(world.state.jobs)
        ]
        world.give(ending_answer(request, f"end {salt} {step}", step))
        check_invariants(world)
    assert world.state.finished
    assert world.state.stopped_by in ("rounds", "exhausted", "interrupted", "infrastructure")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories())
def test_no_candidate_with_a_settled_verdict_is_evaluated_again(world: World) -> None:
    finished: dict[str, list[str]] = {}
    for fact in world.facts:
        if (
            (candidate_id := getattr(fact, "candidate_id", None))
            and getattr(fact, "round", 0)
            and hasattr(fact, "fate")
        ):
            finished.setdefault(candidate_id, []).append(fact.fate)
    for fates in finished.values():
        assert len(fates) <= 2
        if len(fates) == 2:
            assert fates[0] in ("timed_out", "unstable")
