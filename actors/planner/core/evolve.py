"""Fold one fact into the state. Total and deterministic: resuming a run folds its facts.

Prompts to the planner only grow: text sent before is repeated unchanged and news is appended, until the whole tree is
rewritten (`PlanRequested.renews`). A confirmation's result replaces the screening's everywhere: in known verdicts,
branches, unread reports and the tree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from actors.planner.core.arms import arms_of, with_outcome, with_usage
from actors.planner.core.state import (
    Attempt,
    Branch,
    Draft,
    Incumbent,
    Instruction,
    Job,
    Known,
    Node,
    Provisional,
    Report,
    Requested,
    Score,
    SearchState,
    Snapshot,
    TokenRate,
    Told,
    better,
    drop,
    in_order,
    is_confirmation,
    live_parent,
    number_of,
    put,
    put_node,
    root_node,
    settled,
    with_all_below,
)
from messages.base import ROOT, Usage, copied
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    BuildRequested,
    CandidateAwaited,
    ConfirmationFinished,
    ConfirmationOwed,
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
    QuestionDropped,
    RunContinued,
    RunFinished,
    RunPaused,
    RunStopping,
    SearchOpened,
    SearchReopened,
    SpendRecorded,
    TimeNoted,
    WriteRequested,
)
from messages.steering import (
    CandidateGiven,
    InstructionForgotten,
    InstructionGiven,
    NodeBoosted,
    NodeForbidden,
    NodePinned,
    NodeReleased,
    SteeringRefused,
)
from messages.verdicts import CORRECT_FATES, GOOD_FATES

BYTES_PER_TOKEN = 4.0
"""Assumed bytes per token until a prompt has been counted."""
_LINE, _REPORT, _ATTEMPT = 100, 400, 160
"""Approximate characters of a node's line without its title, of a report without its action, and of an attempt."""
_LEAST, _MOST = 12_000, 32_000
_SHARE = 0.5
"""Share of the tree that additions may reach before it is rewritten, within `_LEAST` and `_MOST` characters."""


def renews(state: SearchState) -> bool:
    """Return True if the next call sends the whole tree anew."""
    if state.snapshot is None:
        return True
    changed = sum(_line_size(state.nodes[node_id]) for node_id in state.changed_ids)
    added = sum(told.size for told in state.told) + changed + sum(map(_report_size, _untold(state)))
    return added > min(_MOST, max(_LEAST, _SHARE * state.snapshot.size))


def with_told(state: SearchState, fact: PlanRequested) -> SearchState:
    """Return the state in which the contents of this call are marked as sent to the planner's model."""
    reports = tuple(report for report in _untold(state) if report.branch_id in fact.branch_ids)
    changed = [] if fact.renews else [state.nodes[key] for key in sorted(state.changed_ids, key=number_of)]
    told = _told(state, tuple(changed), reports)
    spoken_of = {report.branch_id for report in reports}
    state = replace(
        state,
        reports=tuple(
            replace(report, told=True) if report.branch_id in spoken_of else report for report in state.reports
        ),
        changed_ids=type(state.changed_ids)(),
        told=(told,) if fact.renews else (*state.told, told),
    )
    return replace(state, snapshot=_snapshot(state)) if fact.renews else state


def as_told(state: SearchState, request: PlanRequested) -> tuple[Snapshot, tuple[Told, ...]]:
    """Return the tree as last sent whole, and the additions since then, including this call's.

    `state` is the search right after `request`. Old journals record no snapshot; then the tree at the request is used.
    """
    if state.snapshot is not None:
        return state.snapshot, state.told
    reports = tuple(report for report in state.reports if report.branch_id in request.branch_ids)
    return _snapshot(state), (_told(state, (), reports),)


def with_rate(state: SearchState, model: str, prompt_bytes: int, usage: Usage) -> SearchState:
    """Return the state updated with the token count of one more planner prompt."""
    if not prompt_bytes or not usage.prompt_tokens or usage.estimated_calls:
        return state
    known = next((rate for rate in state.rates if rate.model == model), TokenRate(model=model))
    rate = replace(known, prompt_bytes=known.prompt_bytes + prompt_bytes, tokens=known.tokens + usage.prompt_tokens)
    return replace(state, rates=(rate, *(other for other in state.rates if other.model != model)))


def bytes_per_token(state: SearchState) -> float:
    """Return the bytes per prompt token of the model that answered last."""
    return state.rates[0].prompt_bytes / state.rates[0].tokens if state.rates else BYTES_PER_TOKEN


def _untold(state: SearchState) -> tuple[Report, ...]:
    return tuple(report for report in state.reports if not report.told)


def _told(state: SearchState, nodes: tuple[Node, ...], reports: tuple[Report, ...]) -> Told:
    return Told(
        round=state.rounds,
        nodes=nodes,
        reports=reports,
        subjects=tuple(state.node(report.node_id) for report in reports),
        incumbent=state.incumbent,
        size=sum(map(_line_size, nodes)) + sum(map(_report_size, reports)),
    )


def _snapshot(state: SearchState) -> Snapshot:
    nodes = state.nodes
    return Snapshot(
        nodes=nodes,
        round=state.rounds,
        incumbent_id=state.incumbent.node_id if state.incumbent else None,
        bytes_per_token=bytes_per_token(state),
        size=sum(map(_line_size, in_order(nodes))),
    )


def _line_size(node: Node) -> int:
    return _LINE + len(node.title)


def _report_size(report: Report) -> int:
    return _REPORT + sum(_ATTEMPT + sum(map(len, attempt.evidence)) for attempt in report.attempts)


_Fold: TypeAlias = Callable[[SearchState, Any], SearchState]
FOLDS: dict[type, _Fold] = {
    TimeNoted: lambda state, fact: replace(state, elapsed_s=fact.elapsed_s),
    RunStopping: lambda state, fact: replace(
        state, status="stopping", stopped_by=fact.stopped_by, stop_detail=fact.detail
    ),
    RunPaused: lambda state, _: replace(state, paused=True),
    RunContinued: lambda state, _: replace(_released_jobs(state), paused=False),
    RunFinished: lambda state, fact: replace(
        state, status="finished", stopped_by=fact.stopped_by, stop_detail=fact.detail
    ),
    ConfirmationOwed: lambda state, fact: put(state, "provisional", fact.candidate_id, copied(Provisional, fact)),
    InstructionForgotten: lambda state, fact: replace(
        state, instructions=tuple(said for said in state.instructions if said.number != fact.number)
    ),
    NodeBoosted: lambda state, fact: _with_node(state, fact, boost=fact.by),
    NodeForbidden: lambda state, fact: _barred_below(
        _with_node(state, fact, forbidden=fact.reason, pinned=0), fact.node_id
    ),
    NodeReleased: lambda state, fact: _barred_below(
        _with_node(state, fact, forbidden=None, pinned=0, boost=0.0), fact.node_id
    ),
    NodeSpent: lambda state, fact: _with_node(state, fact, spent=True),
    CandidateGiven: lambda state, fact: _with_node(state, fact, given_id=fact.candidate_id),
    SteeringRefused: lambda state, _: state,
    EditsRefused: lambda state, fact: drop(state, "jobs", fact.job_id),
    PlanAbandoned: lambda state, fact: replace(_conclude_plan(state, fact.job_id), dry=True, misread=True),
}
"""How each kind of fact changes the state: the short ones are here, the others are registered below."""


def _with_node(
    state: SearchState,
    fact: NodeBoosted | NodeForbidden | NodeReleased | NodeSpent | CandidateGiven,
    **changes: object,
) -> SearchState:
    return put_node(state, replace(state.node(fact.node_id), **changes))


def _folds_in(kind: type[Fact]) -> Callable[[_Fold], _Fold]:
    def register(fold: _Fold) -> _Fold:
        FOLDS[kind] = fold
        return fold

    return register


@_folds_in(SearchOpened)
def _opened(state: SearchState, fact: SearchOpened) -> SearchState:
    opened = copied(SearchState, fact, arms=arms_of(fact.lineup), status="running", facts=state.facts)
    return put_node(opened, root_node())


@_folds_in(SearchReopened)
def _reopened(state: SearchState, fact: SearchReopened) -> SearchState:
    lineup = fact.lineup or state.lineup
    for job_id, job in list(state.jobs.items()):
        if not job.withheld and not job.reopened:
            state = put(state, "jobs", job_id, replace(job, reopened=True))
    return replace(
        _released_jobs(state),
        settings=replace(state.settings, budget=fact.budget),
        lineup=lineup,
        arms=arms_of(lineup, state.arms),
        status="running",
        paused=False,
        stopped_by=None,
        stop_detail="",
        losses=0,
        idle_attempts=0,
        dry=False,
        lost_calls=state.lost_calls + fact.lost_calls,
    )


@_folds_in(SpendRecorded)
def _spend_recorded(state: SearchState, fact: SpendRecorded) -> SearchState:
    state = replace(state, cost_usd=state.cost_usd + (fact.cost_usd or 0.0))
    if fact.role == "planner":
        state = with_rate(state, fact.model, fact.prompt_bytes, fact.usage)
        usage, planner_s = state.usage_planner.plus(fact.usage), state.planner_s + fact.latency_s
        return replace(state, usage_planner=usage, planner_s=planner_s)
    arms = with_usage(state.arms, fact.model, fact.usage)
    return replace(state, usage_coder=state.usage_coder.plus(fact.usage), arms=arms)


def _released_jobs(state: SearchState) -> SearchState:
    for job_id, job in list(state.jobs.items()):
        if job.withheld:
            state = put(state, "jobs", job_id, replace(job, withheld=False))
    return state


@_folds_in(BranchStarted)
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
    pinned = node.pinned if branch.extra else 0  # a pin is for one choice, and extra samples are none
    samples, in_flight = node.samples + branch.extra, node.in_flight + 1
    state = put_node(state, replace(node, pinned=pinned, state="in_flight", in_flight=in_flight, samples=samples))
    state = put(state, "branches", branch.branch_id, branch)
    return replace(state, issued=state.issued + 1, begun=state.begun + (not branch.extra))


@_folds_in(WriteRequested)
def _write_requested(state: SearchState, fact: WriteRequested) -> SearchState:
    branch = state.branches[fact.branch_id]
    draft = Draft(number=fact.draft, job_id=fact.job_id, model=fact.model)
    return issue(put(state, "branches", fact.branch_id, branch.with_draft(draft)), fact)


@_folds_in(BuildRequested)
@_folds_in(EvaluationRequested)
def _advanced(state: SearchState, fact: BuildRequested | EvaluationRequested) -> SearchState:
    if not fact.branch_id:
        return issue(state, fact)
    branch = state.branches[fact.branch_id]
    draft = branch.draft(fact.draft)
    state = drop(state, "jobs", draft.job_id or "")
    draft = replace(draft, job_id=fact.job_id, candidate_id=fact.candidate_id, awaiting=False)
    return issue(put(state, "branches", fact.branch_id, branch.with_draft(draft)), fact)


@_folds_in(CandidateAwaited)
def _awaited(state: SearchState, fact: CandidateAwaited) -> SearchState:
    branch = state.branches[fact.branch_id]
    draft = branch.draft(fact.draft)
    state = drop(state, "jobs", draft.job_id or "")
    draft = replace(draft, job_id=None, candidate_id=fact.candidate_id, awaiting=True)
    return put(state, "branches", fact.branch_id, branch.with_draft(draft))


@_folds_in(AttemptFinished)
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
    fates = dict(node.fates)
    fates[fact.fate] = fates.get(fact.fate, 0) + 1
    node = replace(node, fates=tuple(fates.items()), rounds=node.rounds + bool(fact.round))
    state = put_node(put(state, "branches", branch.branch_id, branch), node)
    if not fact.round:
        return replace(state, idle_attempts=state.idle_attempts + 1)
    parent = state.node(node.parent_id)
    state = put_node(state, replace(parent, child_rounds=parent.child_rounds + 1))
    if fact.candidate_id is not None:
        before = state.known.get(fact.candidate_id)
        evaluations = before.evaluations + 1 if before else 1
        known = copied(Known, fact, evaluations=evaluations, node_id=node.node_id)
        state = put(state, "known", fact.candidate_id, known)
    screen_s = state.screen_s + fact.lease_s
    return replace(state, rounds=state.rounds + 1, idle_attempts=0, losses=0, screen_s=screen_s)


@_folds_in(BranchClosed)
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
        return state  # no model gets it
    report = copied(Report, branch, reason=fact.reason, extra=branch.extra)
    return replace(state, reports=(*state.reports, report))


@_folds_in(QuestionDropped)
def _question_dropped(state: SearchState, fact: QuestionDropped) -> SearchState:
    request = state.jobs[fact.job_id].request
    state = drop(state, "jobs", fact.job_id)
    if not isinstance(request, WriteRequested):
        return state
    branch = state.branches[request.branch_id].without_draft(request.draft)
    return put(state, "branches", branch.branch_id, branch)


@_folds_in(InitialRequested)
def issue(state: SearchState, request: Requested) -> SearchState:
    """Return the state with a new job in flight."""
    rests = state.paused and isinstance(request, WriteRequested | PlanRequested)
    job = Job(request=request, withheld=state.pausing or rests)
    return replace(put(state, "jobs", request.job_id, job), issued=state.issued + 1)


def _with_ended(branch: Branch, fact: AttemptFinished) -> Branch:
    attempt = copied(Attempt, fact, number=len(branch.attempts) + 1)
    best, improved = better(branch.best, attempt.score), branch.improved or fact.improved
    return replace(branch, ended=(*branch.ended, attempt), best=best, improved=improved).without_draft(fact.draft)


def _with_reward(state: SearchState, fact: AttemptFinished, model: str) -> SearchState:
    if fact.fate == "lost" and fact.candidate_id is not None:
        return state  # its program was not judged
    is_new = bool(fact.round)  # earlier evaluations had no worth
    correct = is_new and fact.fate in CORRECT_FATES
    return replace(state, arms=with_outcome(state.arms, model, correct=correct, better=correct and fact.improved))


def _closed(node: Node, branch: Branch) -> Node:
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


@_folds_in(ConfirmationFinished)
def _finished(state: SearchState, fact: ConfirmationFinished) -> SearchState:
    state = drop(drop(state, "jobs", fact.job_id), "provisional", fact.candidate_id)
    before = state.known[fact.candidate_id]
    known = _corrected(before, fact)
    state = put(state, "known", known.candidate_id, known)
    state = replace(state, confirm_s=state.confirm_s + fact.lease_s, losses=0)
    for branch in list(state.branches.values()):
        state = put(state, "branches", branch.branch_id, _corrected_work(branch, known))
    at_work = ((*branch.attempts, *branch.ended) for branch in state.branches.values())
    untold = [attempt for attempts in at_work for attempt in attempts]
    untold += [attempt for report in state.reports for attempt in report.attempts]
    was_told = all(attempt.candidate_id != known.candidate_id for attempt in untold)
    state = replace(state, reports=tuple(_corrected_work(report, known) for report in state.reports))
    for node in list(state.nodes.values()):
        if node.node_id != ROOT and node.best is not None and node.best.candidate_id == known.candidate_id:
            state = put_node(state, _corrected_node(state, node, known))
        elif node.base is not None and node.base.candidate_id == known.candidate_id:
            state = put_node(state, replace(node, base=_score(known) or Score(candidate_id=known.candidate_id)))
    if known.fate == before.fate:
        return state
    state = put_node(state, _recounted(state.node(known.node_id), before, known))
    return _with_news(state, fact, known) if was_told else state


def _corrected(known: Known, fact: ConfirmationFinished) -> Known:
    known = replace(known, confirmed=True, **{name: getattr(fact, name) for name in _WORTH})
    if fact.credit is None:
        outcome = f"{fact.outcome} (in its confirmation; its screening said {fact.screen_speedup:.2f}x)"
        return replace(known, fate=fact.fate, outcome=outcome, speedup=None, speedup_high=None, latency_us=None)
    outcome = fact.outcome if fact.fate in GOOD_FATES else f"{known.outcome}; in its confirmation {fact.outcome}"
    return replace(known, outcome=outcome)


def _score(known: Known) -> Score | None:
    return copied(Score, known) if known.fate in CORRECT_FATES else None


_WORTH = ("credit", "speedup", "speedup_high", "latency_us")


def _corrected_attempts(attempts: tuple[Attempt, ...], known: Known) -> tuple[Attempt, ...]:
    verdict = {name: getattr(known, name) for name in ("fate", "outcome", *_WORTH)}
    return tuple(
        replace(attempt, **verdict) if attempt.candidate_id == known.candidate_id else attempt for attempt in attempts
    )


T = TypeVar("T", Branch, Report)


def _corrected_work(work: T, known: Known) -> T:
    """Return a branch or report with a candidate's new verdict in base, second parent, attempts and best."""
    for name in ("base", "second"):
        score: Score | None = getattr(work, name)
        if score is not None and score.candidate_id == known.candidate_id:
            work = replace(work, **{name: _score(known)})
    lists = {name: getattr(work, name) for name in ("attempts", "ended") if hasattr(work, name)}
    if not any(attempt.candidate_id == known.candidate_id for attempts in lists.values() for attempt in attempts):
        return work
    lists = {name: _corrected_attempts(attempts, known) for name, attempts in lists.items()}
    best: Score | None = None
    for attempts in lists.values():
        for attempt in attempts:
            best = better(best, attempt.score)
    return replace(work, best=best, **lists)


def _corrected_node(state: SearchState, node: Node, known: Known) -> Node:
    if (score := _score(known)) is not None:
        return replace(node, best=score)
    best: Score | None = None
    for other in state.known.values():
        if other.node_id == node.node_id:
            best = better(best, _score(other))
    node = replace(node, best=best)
    if best is not None:
        return node
    node = replace(node, failures=node.failures + 1)
    return node if node.in_flight else settled(replace(node, spent=False), state.settings.max_tries)


def _recounted(node: Node, before: Known, known: Known) -> Node:
    fates = dict(node.fates)
    fates[before.fate] = fates.get(before.fate, 1) - 1
    fates[known.fate] = fates.get(known.fate, 0) + 1
    return replace(node, fates=tuple((fate, count) for fate, count in fates.items() if count > 0))


def _with_news(state: SearchState, fact: ConfirmationFinished, known: Known) -> SearchState:
    """Add a report that tells the planner's model that an earlier result does not hold."""
    if state.settings.world_model != "evolving":
        return state
    attempt = Attempt(number=1, candidate_id=known.candidate_id, fate=known.fate, outcome=known.outcome)
    report = Report(
        branch_id=fact.job_id,
        node_id=known.node_id,
        reason=known.outcome,
        base=None,
        best=state.node(known.node_id).best,
        attempts=(attempt,),
        refuted=True,
    )
    return replace(state, reports=(*state.reports, report))


@_folds_in(InstructionGiven)
def _given(state: SearchState, fact: InstructionGiven) -> SearchState:
    instructions = (*state.instructions, copied(Instruction, fact))
    return replace(state, instructions=instructions, instructions_given=fact.number)


@_folds_in(NodePinned)
def _pinned(state: SearchState, fact: NodePinned) -> SearchState:
    """Record when the node was pinned, since the earliest pin has priority. A pruned node is opened again."""
    node = state.node(fact.node_id)
    node = replace(node, pinned=node.pinned or state.facts + 1)
    if node.state == "pruned":
        node = replace(node, state="open", prune_reason="", given_up=False)
    return put_node(state, node)


def _barred_below(state: SearchState, node_id: str) -> SearchState:
    for node in list(with_all_below(state, state.node(node_id))):
        above = bool(node.parent_id) and state.node(node.parent_id).barred
        barred = above or node.forbidden is not None
        if barred != node.barred:
            state = put_node(state, replace(state.node(node.node_id), barred=barred))
    return state


_NEW = SearchState()
_MOST_FOLDED = 1024
_folded: OrderedDict[int, tuple[SearchState, Fact, SearchState]] = OrderedDict()
"""The latest folds, by identity of the state before; the planner, recorder and views of one process share them."""


def evolve(state: SearchState, fact: Fact) -> SearchState:
    """Return the state after the fact."""
    if state.facts == 0 and state == _NEW:
        state = _NEW
    known = _folded.get(id(state))
    if known is not None and known[0] is state and known[1] == fact:
        return known[2]
    after = replace(FOLDS[type(fact)](state, fact), facts=state.facts + 1)
    _folded[id(state)] = (state, fact, after)
    if len(_folded) > _MOST_FOLDED:
        _folded.popitem(last=False)
    return after


@_folds_in(NodeInserted)
def _inserted(state: SearchState, fact: NodeInserted) -> SearchState:
    parent = state.node(fact.parent_id)
    node = copied(Node, fact, barred=parent.barred, depth=parent.depth + 1)
    return put_node(put_node(state, replace(parent, children=(*parent.children, node.node_id))), node)


@_folds_in(NodeUpdated)
def _updated(state: SearchState, fact: NodeUpdated) -> SearchState:
    believed = {
        name: value
        for name in ("title", "description", "difficulty", "priority", "expected_gain")
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


@_folds_in(PlanRequested)
def _plan_requested(state: SearchState, fact: PlanRequested) -> SearchState:
    for node_id in fact.childless:
        state = put_node(state, replace(state.node(node_id), asked=True))
    return replace(issue(with_told(state, fact), fact), begun=0)


@_folds_in(EditsApplied)
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


@_folds_in(InitialScored)
def _initial_scored(state: SearchState, fact: InitialScored) -> SearchState:
    state = drop(state, "jobs", fact.job_id)
    if fact.credit is None:
        return state
    if fact.candidate_id not in state.known:  # a branch may have written the same, and been quicker
        state = put(state, "known", fact.candidate_id, copied(Known, fact))
    return replace(put_node(state, replace(state.node(ROOT), best=copied(Score, fact))), losses=0)


@_folds_in(IncumbentChanged)
def _incumbent_changed(state: SearchState, fact: IncumbentChanged) -> SearchState:
    """Set the incumbent and drop provisional candidates that cannot beat it, except the one being confirmed."""
    asked = {job.request.candidate_id for job in state.jobs.values() if is_confirmation(job.request)}
    for found in list(state.provisional.values()):
        if found.credit <= fact.credit and found.candidate_id not in asked:
            state = drop(state, "provisional", found.candidate_id)
    return replace(state, incumbent=copied(Incumbent, fact))


@_folds_in(LossNoted)
def _loss_noted(state: SearchState, fact: LossNoted) -> SearchState:
    job = state.jobs.get(fact.job_id)
    is_old = job is not None and job.reopened
    state = replace(drop(state, "jobs", fact.job_id), losses=state.losses + (not is_old))
    request = job.request if job is not None else None
    if not isinstance(request, WriteRequested | BuildRequested | EvaluationRequested) or is_confirmation(request):
        return state
    branch = state.branches[request.branch_id]  # its draft waits for nothing, and is asked for again
    draft = replace(branch.draft(request.draft), job_id=None, candidate_id=None)
    return put(state, "branches", branch.branch_id, branch.with_draft(draft))


@_folds_in(ConfirmationRequested)
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


class Step:
    """Collects the facts of one decision; `state` is the state after them."""

    def __init__(self, state: SearchState) -> None:
        self.state = state
        self.facts: list[Fact] = []
        self.asked: dict[str, SearchState] = {}
        """Requested jobs, with the state right after the request."""

    def take(self, fact: Fact) -> None:
        """Add a fact."""
        self.state = evolve(self.state, fact)
        self.facts.append(fact)
        if isinstance(fact, Requested):
            self.asked[fact.job_id] = self.state

    def job_id(self, kind: str) -> str:
        """Return the next job id: unique across all runs, and a message id on the bus."""
        return f"{self.state.run_id}-{kind}{self.state.issued + 1}"

    def branch_id(self) -> str:
        """Return the next branch id, unique in the run."""
        return f"b{self.state.issued + 1}"
