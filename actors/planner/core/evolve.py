"""Fold one fact into the state. Total and deterministic: resuming a run folds its facts and decides nothing again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from actors.planner.core.state import (
    Attempt,
    Branch,
    Incumbent,
    Job,
    Known,
    Node,
    Report,
    Requested,
    Score,
    SearchState,
    better,
    drop,
    put,
    put_node,
    root_node,
)
from actors.planner.core.tree import settled
from messages.base import ROOT
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    BuildRequested,
    CandidateAwaited,
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
    QuestionDropped,
    RunFinished,
    RunStopping,
    SearchOpened,
    SearchReopened,
    SpendRecorded,
    TimeNoted,
    WriteRequested,
)
from messages.verdicts import GOOD_FATES

FoldT = TypeVar("FoldT", bound=Callable[[SearchState, Any], SearchState])
_folds: dict[type, Callable[[SearchState, Any], SearchState]] = {}


def evolve(state: SearchState, fact: Fact) -> SearchState:
    """Return the state after the fact."""
    return replace(_folds[type(fact)](state, fact), facts=state.facts + 1)


def _folds_in(kind: type[Fact]) -> Callable[[FoldT], FoldT]:
    def register(fold: FoldT) -> FoldT:
        _folds[kind] = fold
        return fold

    return register


@_folds_in(SearchOpened)
def _opened(state: SearchState, fact: SearchOpened) -> SearchState:
    opened = replace(
        state,
        run_id=fact.run_id,
        task_id=fact.task_id,
        target=fact.target,
        settings=fact.settings,
        seed=fact.seed,
        initial_id=fact.initial_id,
        status="running",
    )
    return put_node(opened, root_node())


@_folds_in(SearchReopened)
def _reopened(state: SearchState, fact: SearchReopened) -> SearchState:
    for job_id, job in list(state.jobs.items()):
        if job.withheld:
            state = put(state, "jobs", job_id, replace(job, withheld=False))
    return replace(
        state,
        settings=replace(state.settings, budget=fact.budget),
        status="running",
        stopped_by=None,
        stop_detail="",
        losses=0,
        idle_attempts=0,
        dry=False,
        lost_calls=state.lost_calls + fact.lost_calls,
    )


@_folds_in(NodeInserted)
def _inserted(state: SearchState, fact: NodeInserted) -> SearchState:
    parent = state.node(fact.parent_id)
    node = Node(
        node_id=fact.node_id,
        parent_id=fact.parent_id,
        title=fact.title,
        description=fact.description,
        difficulty=fact.difficulty,
        priority=fact.priority,
        origin=fact.origin,
        depth=parent.depth + 1,
    )
    return put_node(put_node(state, replace(parent, children=(*parent.children, node.node_id))), node)


@_folds_in(NodeUpdated)
def _updated(state: SearchState, fact: NodeUpdated) -> SearchState:
    believed = {
        name: value
        for name in ("title", "description", "difficulty", "priority")
        if (value := getattr(fact, name)) is not None
    }
    return put_node(state, replace(state.node(fact.node_id), **believed))


@_folds_in(NodePruned)
def _pruned(state: SearchState, fact: NodePruned) -> SearchState:
    node = replace(state.node(fact.node_id), prune_reason=fact.reason)
    if node.state == "open":
        node = replace(node, state="pruned")
    elif node.state == "closed":
        node = replace(node, spent=True)
    return put_node(state, node)


@_folds_in(NodeSpent)
def _spent(state: SearchState, fact: NodeSpent) -> SearchState:
    return put_node(state, replace(state.node(fact.node_id), spent=True))


@_folds_in(PlanRequested)
def _plan_requested(state: SearchState, fact: PlanRequested) -> SearchState:
    for node_id in fact.childless:
        state = put_node(state, replace(state.node(node_id), asked=True))
    return _issue(state, fact)


@_folds_in(EditsRefused)
def _refused(state: SearchState, fact: EditsRefused) -> SearchState:
    return drop(state, "jobs", fact.job_id)


@_folds_in(EditsApplied)
def _applied(state: SearchState, fact: EditsApplied) -> SearchState:
    state = _conclude_plan(state, fact.job_id)
    for change in fact.changes:
        state = _folds[type(change)](state, change)
    inserted = any(isinstance(change, NodeInserted) for change in fact.changes)
    return replace(
        state,
        dry=not inserted,
        losses=0,
        summary=fact.summary or state.summary,
        open_questions=fact.open_questions or state.open_questions,
    )


@_folds_in(PlanAbandoned)
def _abandoned(state: SearchState, fact: PlanAbandoned) -> SearchState:
    return replace(_conclude_plan(state, fact.job_id), dry=True)


@_folds_in(BranchStarted)
def _branch_started(state: SearchState, fact: BranchStarted) -> SearchState:
    node = state.node(fact.node_id)
    parent = state.node(node.parent_id)
    branch = Branch(
        branch_id=fact.branch_id,
        node_id=node.node_id,
        base=parent.best,
        attempt_limit=fact.attempt_limit,
        sample=node.tries + node.in_flight + node.samples,
    )
    samples = node.samples + branch.extra
    node = replace(node, state="in_flight", in_flight=node.in_flight + 1, samples=samples)
    state = put_node(state, node)
    state = put(state, "branches", branch.branch_id, branch)
    return replace(state, issued=state.issued + 1)


@_folds_in(WriteRequested)
def _write_requested(state: SearchState, fact: WriteRequested) -> SearchState:
    branch = replace(state.branches[fact.branch_id], job_id=fact.job_id, candidate_id=None, awaiting=False)
    return _issue(put(state, "branches", fact.branch_id, branch), fact)


@_folds_in(InitialScored)
def _initial_scored(state: SearchState, fact: InitialScored) -> SearchState:
    state = drop(state, "jobs", fact.job_id)
    if fact.credit is None:
        return state
    known = Known(candidate_id=fact.candidate_id, fate=fact.fate, outcome=fact.outcome, credit=fact.credit)
    score = Score(candidate_id=fact.candidate_id, credit=fact.credit)
    state = put(state, "known", fact.candidate_id, known)
    return replace(put_node(state, replace(state.node(ROOT), best=score)), losses=0)


@_folds_in(CandidateAwaited)
def _awaited(state: SearchState, fact: CandidateAwaited) -> SearchState:
    branch = state.branches[fact.branch_id]
    state = drop(state, "jobs", branch.job_id or "")
    return put(
        state,
        "branches",
        fact.branch_id,
        replace(branch, job_id=None, candidate_id=fact.candidate_id, awaiting=True),
    )


@_folds_in(AttemptFinished)
def _attempt_finished(state: SearchState, fact: AttemptFinished) -> SearchState:
    branch = state.branches[fact.branch_id]
    state = drop(state, "jobs", branch.job_id or "")
    attempt = Attempt(
        number=len(branch.attempts) + 1,
        candidate_id=fact.candidate_id,
        fate=fact.fate,
        outcome=fact.outcome,
        credit=fact.credit,
        speedup=fact.speedup,
        latency_us=fact.latency_us,
        round=fact.round,
    )
    branch = replace(
        branch,
        attempts=(*branch.attempts, attempt),
        best=better(branch.best, _score(fact)),
        stale=0 if fact.improved else branch.stale + 1,
        job_id=None,
        candidate_id=None,
        awaiting=False,
    )
    node = state.node(branch.node_id)
    node = replace(node, fates=_counted(node.fates, fact.fate), rounds=node.rounds + bool(fact.round))
    state = put_node(put(state, "branches", branch.branch_id, branch), node)
    if not fact.round:
        return replace(state, idle_attempts=state.idle_attempts + 1)
    parent = state.node(node.parent_id)
    state = put_node(state, replace(parent, child_rounds=parent.child_rounds + 1))
    return replace(_remember(state, fact), rounds=state.rounds + 1, idle_attempts=0, losses=0)


@_folds_in(BranchClosed)
def _branch_closed(state: SearchState, fact: BranchClosed) -> SearchState:
    branch = state.branches[fact.branch_id]
    node = state.node(fact.node_id)
    node = replace(
        node,
        best=better(node.best, branch.best),
        in_flight=node.in_flight - 1,
        tries=node.tries + (not branch.extra),
        failures=node.failures + (branch.best is None and not branch.extra),
    )
    if node.in_flight == 0:
        node = settled(node, state.settings.max_tries)
    state = put_node(drop(drop(state, "branches", branch.branch_id), "jobs", branch.job_id or ""), node)
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
        extra=branch.extra,
    )
    return replace(state, reports=(*state.reports, report))


@_folds_in(IncumbentChanged)
def _incumbent_changed(state: SearchState, fact: IncumbentChanged) -> SearchState:
    return replace(
        state,
        incumbent=Incumbent(
            candidate_id=fact.candidate_id,
            node_id=fact.node_id,
            round=fact.round,
            credit=fact.credit,
            speedup=fact.speedup,
            latency_us=fact.latency_us,
        ),
    )


@_folds_in(SpendRecorded)
def _spend_recorded(state: SearchState, fact: SpendRecorded) -> SearchState:
    if fact.role == "planner":
        return replace(state, usage_planner=state.usage_planner.plus(fact.usage))
    return replace(state, usage_coder=state.usage_coder.plus(fact.usage))


@_folds_in(TimeNoted)
def _time_noted(state: SearchState, fact: TimeNoted) -> SearchState:
    return replace(state, elapsed_s=fact.elapsed_s)


@_folds_in(LossNoted)
def _loss_noted(state: SearchState, fact: LossNoted) -> SearchState:
    return replace(_without_job(state, fact.job_id), losses=state.losses + 1)


@_folds_in(QuestionDropped)
def _question_dropped(state: SearchState, fact: QuestionDropped) -> SearchState:
    return _without_job(state, fact.job_id)


@_folds_in(RunStopping)
def _stopping(state: SearchState, fact: RunStopping) -> SearchState:
    return replace(state, status="stopping", stopped_by=fact.stopped_by, stop_detail=fact.detail)


@_folds_in(RunFinished)
def _finished(state: SearchState, fact: RunFinished) -> SearchState:
    return replace(state, status="finished", stopped_by=fact.stopped_by, stop_detail=fact.detail)


def _score(fact: AttemptFinished) -> Score | None:
    if fact.fate not in GOOD_FATES or fact.candidate_id is None:
        return None
    return Score(candidate_id=fact.candidate_id, credit=fact.credit, speedup=fact.speedup, latency_us=fact.latency_us)


def _counted(fates: tuple[tuple[str, int], ...], fate: str) -> tuple[tuple[str, int], ...]:
    counts = dict(fates)
    counts[fate] = counts.get(fate, 0) + 1
    return tuple(counts.items())


def _remember(state: SearchState, fact: AttemptFinished) -> SearchState:
    if fact.candidate_id is None:
        return state
    before = state.known.get(fact.candidate_id)
    known = Known(
        candidate_id=fact.candidate_id,
        fate=fact.fate,
        outcome=fact.outcome,
        credit=fact.credit,
        speedup=fact.speedup,
        latency_us=fact.latency_us,
        evaluations=before.evaluations + 1 if before else 1,
    )
    return put(state, "known", fact.candidate_id, known)


@_folds_in(InitialRequested)
def _issue(state: SearchState, request: Requested) -> SearchState:
    job = Job(request=request, withheld=state.pausing)
    return replace(put(state, "jobs", request.job_id, job), issued=state.issued + 1)


@_folds_in(BuildRequested)
@_folds_in(EvaluationRequested)
def _advance_branch(state: SearchState, fact: BuildRequested | EvaluationRequested) -> SearchState:
    branch = state.branches[fact.branch_id]
    state = drop(state, "jobs", branch.job_id or "")
    branch = replace(branch, job_id=fact.job_id, candidate_id=fact.candidate_id, awaiting=False)
    return _issue(put(state, "branches", fact.branch_id, branch), fact)


def _without_job(state: SearchState, job_id: str) -> SearchState:
    """Drop a job, and free the branch that waits for it."""
    job = state.jobs.get(job_id)
    state = drop(state, "jobs", job_id)
    if job is None or isinstance(job.request, PlanRequested | InitialRequested):
        return state
    branch = state.branches[job.request.branch_id]
    return put(state, "branches", branch.branch_id, replace(branch, job_id=None, candidate_id=None))


def _conclude_plan(state: SearchState, job_id: str) -> SearchState:
    job = state.jobs.get(job_id)
    state = drop(state, "jobs", job_id)
    if job is None or not isinstance(job.request, PlanRequested):
        return state
    told = set(job.request.branch_ids)
    return replace(state, reports=tuple(report for report in state.reports if report.branch_id not in told))
