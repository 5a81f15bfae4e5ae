"""Branches as folds: they begin, their drafts are written, built and evaluated, and they end."""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.arms import with_outcome
from actors.planner.core.branch import Attempt, Branch, Draft, Report, better
from actors.planner.core.entries import drop, put, put_node
from actors.planner.core.lifecycle import folds_in
from actors.planner.core.state import Job, Known, Node, Requested, SearchState
from actors.planner.core.steered import chosen
from actors.planner.core.tree import live_parent, settled
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    BuildRequested,
    CandidateAwaited,
    EvaluationRequested,
    PlanRequested,
    QuestionDropped,
    WriteRequested,
)
from messages.verdicts import CORRECT_FATES


@folds_in(BranchStarted)
def _branch_started(state: SearchState, fact: BranchStarted) -> SearchState:
    node = state.node(fact.node_id)
    second = state.nodes.get(node.second_id)
    branch = Branch(
        branch_id=fact.branch_id,
        node_id=node.node_id,
        base=live_parent(state, state.node(node.parent_id)).best,
        second=second.best if second is not None else None,
        expected_gain=node.expected_gain,
        attempt_limit=fact.attempt_limit,
        sample=node.tries + node.in_flight + node.samples,
    )
    samples = node.samples + branch.extra
    node = replace(chosen(node, branch), state="in_flight", in_flight=node.in_flight + 1, samples=samples)
    state = put_node(state, node)
    state = put(state, "branches", branch.branch_id, branch)
    return replace(state, issued=state.issued + 1, begun=state.begun + (not branch.extra))


@folds_in(WriteRequested)
def _write_requested(state: SearchState, fact: WriteRequested) -> SearchState:
    branch = state.branches[fact.branch_id]
    draft = Draft(number=fact.draft, job_id=fact.job_id, model=fact.model)
    return issue(put(state, "branches", fact.branch_id, branch.with_draft(draft)), fact)


@folds_in(BuildRequested)
@folds_in(EvaluationRequested)
def _advanced(state: SearchState, fact: BuildRequested | EvaluationRequested) -> SearchState:
    if not fact.branch_id:
        return issue(state, fact)
    branch = state.branches[fact.branch_id]
    draft = branch.draft(fact.draft)
    state = drop(state, "jobs", draft.job_id or "")
    draft = replace(draft, job_id=fact.job_id, candidate_id=fact.candidate_id, awaiting=False)
    return issue(put(state, "branches", fact.branch_id, branch.with_draft(draft)), fact)


@folds_in(CandidateAwaited)
def _awaited(state: SearchState, fact: CandidateAwaited) -> SearchState:
    branch = state.branches[fact.branch_id]
    draft = branch.draft(fact.draft)
    state = drop(state, "jobs", draft.job_id or "")
    draft = replace(draft, job_id=None, candidate_id=fact.candidate_id, awaiting=True)
    return put(state, "branches", fact.branch_id, branch.with_draft(draft))


@folds_in(AttemptFinished)
def _attempt_finished(state: SearchState, fact: AttemptFinished) -> SearchState:
    branch = state.branches[fact.branch_id]
    draft = branch.draft(fact.draft)
    state = drop(state, "jobs", draft.job_id or "")
    if fact.measured_again:
        branch = branch.with_draft(replace(draft, job_id=None))
    else:
        branch = _with_ended(branch, fact)
        state = _with_reward(state, fact, draft.model)
    node = state.node(branch.node_id)
    node = replace(node, fates=_counted(node.fates, fact.fate), rounds=node.rounds + bool(fact.round))
    state = put_node(put(state, "branches", branch.branch_id, branch), node)
    if not fact.round:
        return replace(state, idle_attempts=state.idle_attempts + 1)
    parent = state.node(node.parent_id)
    state = put_node(state, replace(parent, child_rounds=parent.child_rounds + 1))
    state = _remember(state, fact, node)
    screen_s = state.screen_s + fact.lease_s
    return replace(state, rounds=state.rounds + 1, idle_attempts=0, losses=0, screen_s=screen_s)


@folds_in(BranchClosed)
def _branch_closed(state: SearchState, fact: BranchClosed) -> SearchState:
    branch = state.branches[fact.branch_id]
    for job_id in branch.jobs:
        state = drop(state, "jobs", job_id)
    branch = branch.concluded()  # drafts of its last attempt may be unwritten
    node = _closed(state.node(fact.node_id), branch)
    if node.in_flight == 0:
        node = settled(node, state.settings.max_tries)
    state = put_node(drop(state, "branches", branch.branch_id), node)
    state = replace(state, dry=state.dry and branch.extra)
    if state.settings.world_model != "evolving":
        return state  # nobody will be told
    report = Report(
        branch_id=branch.branch_id,
        node_id=node.node_id,
        reason=fact.reason,
        base=branch.base,
        best=branch.best,
        attempts=branch.attempts,
        second=branch.second,
        expected_gain=branch.expected_gain,
        extra=branch.extra,
    )
    return replace(state, reports=(*state.reports, report))


@folds_in(QuestionDropped)
def _question_dropped(state: SearchState, fact: QuestionDropped) -> SearchState:
    request = state.jobs[fact.job_id].request
    state = drop(state, "jobs", fact.job_id)
    if not isinstance(request, WriteRequested):
        return state
    branch = state.branches[request.branch_id].without_draft(request.draft)
    return put(state, "branches", branch.branch_id, branch)


def issue(state: SearchState, request: Requested) -> SearchState:
    """Return the state with a job under way."""
    rests = state.paused and isinstance(request, WriteRequested | PlanRequested)
    job = Job(request=request, withheld=state.pausing or rests)
    return replace(put(state, "jobs", request.job_id, job), issued=state.issued + 1)


def lost(state: SearchState, request: WriteRequested | BuildRequested | EvaluationRequested) -> SearchState:
    """Return the state with the draft of a lost job waiting for nothing: it is asked for again."""
    branch = state.branches[request.branch_id]
    draft = replace(branch.draft(request.draft), job_id=None, candidate_id=None)
    return put(state, "branches", branch.branch_id, branch.with_draft(draft))


def _with_ended(branch: Branch, fact: AttemptFinished) -> Branch:
    attempt = Attempt(
        number=len(branch.attempts) + 1,
        candidate_id=fact.candidate_id,
        fate=fact.fate,
        outcome=fact.outcome,
        credit=fact.credit,
        speedup=fact.speedup,
        speedup_high=fact.speedup_high,
        latency_us=fact.latency_us,
        round=fact.round,
        evidence=fact.evidence,
    )
    branch = replace(
        branch,
        ended=(*branch.ended, attempt),
        best=better(branch.best, attempt.score),
        improved=branch.improved or fact.improved,
    )
    return branch.without_draft(fact.draft)


def _with_reward(state: SearchState, fact: AttemptFinished, model: str) -> SearchState:
    if fact.fate == "lost" and fact.candidate_id is not None:
        return state  # what it wrote was not judged
    is_new = bool(fact.round)  # what was evaluated before was worth nothing
    correct = is_new and fact.fate in CORRECT_FATES
    return replace(state, arms=with_outcome(state.arms, model, correct=correct, better=correct and fact.improved))


def _closed(node: Node, branch: Branch) -> Node:
    """Return a node with one branch less at work, and with what came of it."""
    best = better(node.best, branch.best)
    if best is not None and best != node.best:
        node = replace(node, best=best, base=branch.base, expected_then=branch.expected_gain)
    elif best is None and not branch.extra:
        node = replace(node, expected_then=branch.expected_gain)
    return replace(
        node,
        in_flight=node.in_flight - 1,
        tries=node.tries + (not branch.extra),
        failures=node.failures + (branch.best is None and not branch.extra),
    )


def _counted(fates: tuple[tuple[str, int], ...], fate: str) -> tuple[tuple[str, int], ...]:
    counts = dict(fates)
    counts[fate] = counts.get(fate, 0) + 1
    return tuple(counts.items())


def _remember(state: SearchState, fact: AttemptFinished, node: Node) -> SearchState:
    if fact.candidate_id is None:
        return state
    before = state.known.get(fact.candidate_id)
    known = Known(
        candidate_id=fact.candidate_id,
        fate=fact.fate,
        outcome=fact.outcome,
        credit=fact.credit,
        speedup=fact.speedup,
        speedup_high=fact.speedup_high,
        latency_us=fact.latency_us,
        evaluations=before.evaluations + 1 if before else 1,
        node_id=node.node_id,
    )
    return put(state, "known", fact.candidate_id, known)
