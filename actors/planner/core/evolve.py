"""Fold one fact into the state. Total and deterministic: resuming a run folds its facts and decides nothing again."""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.corrections import without_surpassed
from actors.planner.core.drafting import issue, lost
from actors.planner.core.entries import drop, put, put_node
from actors.planner.core.lifecycle import FOLDS, folds_in
from actors.planner.core.state import (
    Incumbent,
    Known,
    Node,
    Score,
    SearchState,
    is_confirmation,
)
from actors.planner.core.telling import with_told
from messages.base import ROOT
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    Fact,
    IncumbentChanged,
    InitialRequested,
    InitialScored,
    LossNoted,
    NodeInserted,
    NodePruned,
    NodeSpent,
    NodeUpdated,
    PlanAbandoned,
    PlanRequested,
    WriteRequested,
)


def evolve(state: SearchState, fact: Fact) -> SearchState:
    """Return the state after the fact."""
    return replace(FOLDS[type(fact)](state, fact), facts=state.facts + 1)


@folds_in(NodeInserted)
def _inserted(state: SearchState, fact: NodeInserted) -> SearchState:
    parent = state.node(fact.parent_id)
    node = Node(
        node_id=fact.node_id,
        parent_id=fact.parent_id,
        title=fact.title,
        description=fact.description,
        difficulty=fact.difficulty,
        priority=fact.priority,
        expected_gain=fact.expected_gain,
        second_id=fact.second_id,
        origin=fact.origin,
        earlier=fact.earlier,
        barred=parent.barred,
        depth=parent.depth + 1,
    )
    return put_node(put_node(state, replace(parent, children=(*parent.children, node.node_id))), node)


@folds_in(NodeUpdated)
def _updated(state: SearchState, fact: NodeUpdated) -> SearchState:
    believed = {
        name: value
        for name in ("title", "description", "difficulty", "priority", "expected_gain")
        if (value := getattr(fact, name)) is not None
    }
    return put_node(state, replace(state.node(fact.node_id), **believed))


@folds_in(NodePruned)
def _pruned(state: SearchState, fact: NodePruned) -> SearchState:
    node = replace(state.node(fact.node_id), prune_reason=fact.reason)
    if node.state == "open":
        node = replace(node, state="pruned")
    elif node.state == "closed":
        node = replace(node, spent=True)
    return put_node(state, node)


@folds_in(NodeSpent)
def _spent(state: SearchState, fact: NodeSpent) -> SearchState:
    return put_node(state, replace(state.node(fact.node_id), spent=True))


@folds_in(PlanRequested)
def _plan_requested(state: SearchState, fact: PlanRequested) -> SearchState:
    for node_id in fact.childless:
        state = put_node(state, replace(state.node(node_id), asked=True))
    return replace(issue(with_told(state, fact), fact), begun=0)


@folds_in(EditsRefused)
def _refused(state: SearchState, fact: EditsRefused) -> SearchState:
    return drop(state, "jobs", fact.job_id)


@folds_in(EditsApplied)
def _applied(state: SearchState, fact: EditsApplied) -> SearchState:
    state = _conclude_plan(state, fact.job_id)
    for change in fact.changes:
        state = FOLDS[type(change)](state, change)
    inserted = any(isinstance(change, NodeInserted) for change in fact.changes)
    return replace(
        state,
        dry=not inserted,
        misread=bool(fact.refusals) and not inserted,
        losses=0,
        summary=fact.summary or state.summary,
        open_questions=fact.open_questions or state.open_questions,
    )


@folds_in(PlanAbandoned)
def _abandoned(state: SearchState, fact: PlanAbandoned) -> SearchState:
    return replace(_conclude_plan(state, fact.job_id), dry=True, misread=True)


@folds_in(InitialScored)
def _initial_scored(state: SearchState, fact: InitialScored) -> SearchState:
    state = drop(state, "jobs", fact.job_id)
    if fact.credit is None:
        return state
    known = Known(candidate_id=fact.candidate_id, fate=fact.fate, outcome=fact.outcome, credit=fact.credit)
    score = Score(candidate_id=fact.candidate_id, credit=fact.credit)
    if fact.candidate_id not in state.known:  # a branch may have written the same, and been quicker
        state = put(state, "known", fact.candidate_id, known)
    return replace(put_node(state, replace(state.node(ROOT), best=score)), losses=0)


@folds_in(IncumbentChanged)
def _incumbent_changed(state: SearchState, fact: IncumbentChanged) -> SearchState:
    return replace(
        without_surpassed(state, fact.credit),
        incumbent=Incumbent(
            candidate_id=fact.candidate_id,
            node_id=fact.node_id,
            round=fact.round,
            credit=fact.credit,
            speedup=fact.speedup,
            latency_us=fact.latency_us,
            screen_speedup=fact.screen_speedup,
        ),
    )


@folds_in(LossNoted)
def _loss_noted(state: SearchState, fact: LossNoted) -> SearchState:
    job = state.jobs.get(fact.job_id)
    is_old = job is not None and job.reopened
    state = replace(drop(state, "jobs", fact.job_id), losses=state.losses + (not is_old))
    if job is None or is_confirmation(job.request):
        return state
    if isinstance(job.request, WriteRequested | BuildRequested | EvaluationRequested):
        return lost(state, job.request)
    return state


@folds_in(InitialRequested)
def _initial_requested(state: SearchState, fact: InitialRequested) -> SearchState:
    return issue(state, fact)


@folds_in(ConfirmationRequested)
def _confirmation_requested(state: SearchState, fact: ConfirmationRequested) -> SearchState:
    for job_id, job in list(state.jobs.items()):
        if is_confirmation(job.request):  # it was built for this
            state = drop(state, "jobs", job_id)
    return issue(state, fact)


def _conclude_plan(state: SearchState, job_id: str) -> SearchState:
    job = state.jobs.get(job_id)
    state = drop(state, "jobs", job_id)
    if job is None or not isinstance(job.request, PlanRequested):
        return state
    told = set(job.request.branch_ids)
    return replace(state, reports=tuple(report for report in state.reports if report.branch_id not in told))
