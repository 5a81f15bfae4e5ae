"""The core under every interleaving of answers, repetitions, losses and late events."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.planner.core.evolve import evolve
from actors.planner.core.state import (
    PAUSES,
    Branch,
    Node,
    Requested,
    SearchState,
    active,
    childless,
    frontier,
    in_order,
    is_confirmation,
    live_parent,
    state_hash,
)
from messages.edits import Edit, EditScript, Insert, Proposal, Prune, Split, Update
from messages.events import (
    ClockTicked,
    ContinueRequested,
    Event,
    JobLost,
    PauseRequested,
    RunResumed,
    StopRequested,
)
from messages.facts import (
    AttemptFinished,
    BranchStarted,
    BuildRequested,
    ConfirmationFinished,
    ConfirmationRequested,
    EvaluationRequested,
    Fact,
    InitialRequested,
    PlanRequested,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from messages.steering import (
    Boost,
    Forbid,
    Forget,
    Inject,
    Instruct,
    Pin,
    Release,
    Steering,
    SteeringRequested,
)
from messages.verdicts import CORRECT_FATES, Crashed, Interval, Outpaced, Scored, TimedOut, Unstable, Verdict, Wrong
from tests.actors.planner.core.recomputed import recomputed_changes, recomputed_entries_hash
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
    Unstable(reason="±40 %", speedup_interval=Interval(low=1.2, high=2.8)),
    Outpaced(reason="0.5x", speedup_interval=Interval(low=0.4, high=0.6)),
    TimedOut(reason="killed after 5 s", stage="call", limit_s=5.0),
)


ORDERS = ClockTicked | StopRequested | RunResumed | PauseRequested | ContinueRequested | SteeringRequested


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
            expected_gain=st.none() | st.floats(0.5, 4),
            merge=st.just("") | st.sampled_from(ids),
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
            lease_s = draw(st.sampled_from((0.0, 2.0, 5.0)))
            return evaluated(request.job_id, request.candidate_id, draw(st.sampled_from(VERDICTS)), lease_s=lease_s)
        case ConfirmationRequested():
            lease_s = draw(st.sampled_from((0.0, 5.0)))
            return evaluated(request.job_id, request.candidate_id, draw(st.sampled_from(VERDICTS)), lease_s=lease_s)
        case InitialRequested():
            return evaluated(request.job_id, request.candidate_id, draw(st.sampled_from((SCORED, *VERDICTS))))
        case PlanRequested():
            return proposed(request.job_id, draw(st.none() | scripts(node_ids(world.state))))


def check_confirmations(world: World) -> None:
    """Check that luck makes no incumbent, that nothing is confirmed twice, and that no confirmation is a round."""
    state = world.state
    finished = [fact for fact in world.facts if isinstance(fact, ConfirmationFinished)]
    assert len({fact.candidate_id for fact in finished}) == len(finished), "a candidate is confirmed once"
    assert sum(is_confirmation(job.request) for job in state.jobs.values()) <= 1
    rounds = [fact.round for fact in world.facts if isinstance(fact, AttemptFinished) and fact.round]
    assert rounds == list(range(1, state.rounds + 1))
    asked = {job.request.candidate_id for job in state.jobs.values() if is_confirmation(job.request)}
    for found in state.provisional.values():
        assert state.incumbent is None or found.credit > state.incumbent.credit or found.candidate_id in asked
        assert not state.known[found.candidate_id].confirmed
    if state.settings.confirm and state.incumbent is not None and state.incumbent.speedup is not None:
        said = [fact for fact in finished if fact.candidate_id == state.incumbent.candidate_id]
        assert [(fact.fate, fact.credit) for fact in said] == [("measured", state.incumbent.credit)]
        assert state.known[state.incumbent.candidate_id].credit == state.incumbent.credit
    if state.finished and state.stopped_by not in PAUSES:
        assert not state.provisional, "a run that has ended owes no confirmation"
    for score in [*(node.best for node in state.nodes.values()), *(branch.best for branch in state.branches.values())]:
        if score is not None and score.candidate_id != state.initial_id:  # which is evaluated on its own
            known = state.known[score.candidate_id]
            assert known.fate in CORRECT_FATES, "what was refuted is attached nowhere"
            assert score.credit == known.credit


def is_childless(state: SearchState, node: Node) -> bool:
    may_have = node.state == "closed" and not node.spent and not node.barred and node.node_id != "n0"
    return may_have and not any(is_live(state.node(child)) for child in node.children)


def is_live(node: Node) -> bool:
    return node.state == "in_flight" or (node.state == "open" and not node.barred)


def check_jobs(state: SearchState) -> None:
    plans = [job for job in state.jobs.values() if isinstance(job.request, PlanRequested)]
    assert len(plans) <= 1
    for job_id, job in state.jobs.items():
        if is_confirmation(job.request):
            assert job.request.candidate_id in state.provisional
        elif not isinstance(job.request, PlanRequested | InitialRequested | ConfirmationRequested):
            assert state.branches[job.request.branch_id].draft(job.request.draft).job_id == job_id


def check_drafts(state: SearchState, branch: Branch) -> None:
    assert len({draft.number for draft in branch.drafts}) == len(branch.drafts) <= state.settings.samples
    assert branch.drafts or not branch.ended, "an attempt without drafts under way is over"
    for draft in branch.drafts:
        assert draft.job_id is None or draft.job_id in state.jobs
        assert not (draft.awaiting and draft.job_id)
        if draft.awaiting:
            others = [other for one in state.branches.values() for other in one.drafts if other.job_id]
            assert any(other.candidate_id == draft.candidate_id for other in others)


def check_invariants(world: World) -> None:
    state = world.state
    check_confirmations(world)
    assert state.entries_hash == recomputed_entries_hash(state)
    assert recomputed_changes(state) <= set(state.changed_ids), "what is not told as it is, is known to be so"
    assert len(state.branches) <= state.settings.branches
    assert state.rounds <= state.settings.budget.max_rounds
    check_jobs(state)
    for branch in active(state):
        check_drafts(state, branch)
    for node in state.nodes.values():
        assert node.in_flight == sum(branch.node_id == node.node_id for branch in state.branches.values())
        assert (node.state == "in_flight") == (node.in_flight > 0)
        if node.state == "closed" and node.node_id != "n0":
            assert node.best is not None
    nodes = in_order(state.nodes)
    assert frontier(state) == [
        n
        for n in nodes
        if n.state == "open" and not n.barred and live_parent(state, state.node(n.parent_id)).state == "closed"
    ]
    for node in nodes[1:]:
        assert node.barred == (node.forbidden is not None or state.node(node.parent_id).barred)
    assert {n.node_id for n in childless(state)} == {n.node_id for n in nodes if is_childless(state, n)}
    if state.running and not state.paused:
        assert state.jobs, "a running search waits for something"
        assert not any(job.withheld for job in state.jobs.values()), "what was withheld is sent when the run goes on"


def check_rest(before: SearchState, after: SearchState, facts: tuple[Fact, ...]) -> None:
    """Check what a paused run does with one event: nothing is begun, and no model is asked."""
    if not (before.paused and after.paused):
        return
    assert not any(isinstance(fact, BranchStarted) for fact in facts)
    asked = {request.job_id for request in after.questions} - {request.job_id for request in before.questions}
    assert not asked, "a paused run asks no model"


@st.composite
def steering(draw: st.DrawFn, world: World) -> Steering:
    """Draw an order of a person's, also about nodes that are not there or may not be steered."""
    node_id = f"n{draw(st.integers(0, len(world.state.nodes)))}"
    orders: tuple[Steering, ...] = (
        Pin(node_id=node_id),
        Boost(node_id=node_id, by=draw(st.floats(-1.5, 1.5))),
        Forbid(node_id=node_id, reason="no"),
        Release(node_id=node_id),
        Inject(candidate=candidate(f"code {draw(st.integers(0, 20))}"), node_id=node_id),
        Instruct(text="mind this"),
        Forget(number=draw(st.integers(0, 3))),
    )
    return draw(st.sampled_from(orders))


@st.composite
def histories(draw: st.DrawFn, *, steps: int = 60) -> World:
    world = World(
        SearchSettings(
            world_model=draw(st.sampled_from(("evolving", "frozen", "off"))),
            branches=draw(st.integers(1, 4)),
            stagnation_window=draw(st.integers(1, 3)),
            repair_window=draw(st.none() | st.integers(1, 3)),
            samples=draw(st.sampled_from((1, 1, 2, 3))),
            max_idle_attempts=8,
            max_lost=3,
            confirm=draw(st.booleans()),
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
        elif kind in (3, 4):
            rest: tuple[Event, ...] = (PauseRequested(reason="test"), ContinueRequested())
            event = draw(st.sampled_from(rest)) if kind == 3 else SteeringRequested(order=draw(steering(world)))
        elif world.state.running and world.state.paused and not world.state.jobs:
            event = ContinueRequested()
        elif world.state.finished or not world.state.jobs:
            event = RunResumed(run_id=world.state.run_id)
        else:
            event = draw(answers(world))
        repeated = event in given_before and not isinstance(event, ORDERS)
        before = world.state
        facts = world.give(event)
        check_rest(before, world.state, facts)
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
        case ConfirmationRequested():
            return evaluated(request.job_id, request.candidate_id, VERDICTS[step % len(VERDICTS)], lease_s=step % 3)
        case InitialRequested():
            return evaluated(request.job_id, request.candidate_id, SCORED)
        case PlanRequested():
            return proposed(request.job_id, EditScript())


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories(steps=30), st.integers(0, 10_000))
def test_a_search_that_is_answered_comes_to_its_end(world: World, salt: int) -> None:
    if world.state.finished:
        world.give(RunResumed(run_id=world.state.run_id))
    world.give(ContinueRequested())
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
        if isinstance(fact, AttemptFinished) and fact.candidate_id and fact.round:  # confirmations are no rounds
            finished.setdefault(fact.candidate_id, []).append(fact.fate)
    for fates in finished.values():
        assert len(fates) <= 2
        if len(fates) == 2:
            assert fates[0] in ("timed_out", "unstable")
