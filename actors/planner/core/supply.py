"""What is begun when something has happened: next attempts, branches, calls for edits, and the end of the run.

Rules in order, repeated until none applies:

1. A used-up budget ends the run: what builders and evaluators hold is finished, what was written meanwhile is built and
   evaluated, no model is asked again.
2. A branch without a job ends if it is stagnant, else asks for its next attempt while rounds are left.
3. Closed nodes that the planner was asked about in vain get a "vary" child from the machine, or are spent.
4. Free slots take the best frontier node. While the planner's model thinks and nothing is open, they draw one extra
   sample each for the best nodes in flight.
5. The planner's model is called if branches wait to be told of, if open nodes are fewer than twice the free slots,
   or if closed nodes lack children. One call at a time; what comes meanwhile is folded into the next.
6. With nothing in flight and nothing open, the machine reopens the best closed node; if it cannot, the run is over.

With a world model that is `frozen` or `off` the planner's model is called at most once: free slots for which nothing is
open get an action of the machine's instead (`variations`).
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from actors.planner.core.selection import select
from actors.planner.core.state import PAUSES, Branch, Node, Requested, Score, SearchState, active, better
from actors.planner.core.step import Step
from actors.planner.core.tree import childless, worth
from actors.planner.core.variations import best_unvaried, is_varied, most_promising, vary
from messages.base import ROOT
from messages.commands import WriteMode
from messages.edits import Refusal
from messages.facts import (
    BranchClosed,
    BranchStarted,
    BuildRequested,
    EvaluationRequested,
    InitialRequested,
    NodeSpent,
    PlanAbandoned,
    PlanRequested,
    QuestionDropped,
    RunFinished,
    RunStopping,
    StoppedBy,
    WriteRequested,
)

_MAX_WANTED = 16
"""New actions that one call asks for at most: longer answers get worse."""
_MAX_ASKED = 8
"""Childless nodes that one call asks about at most."""
_MAX_SAMPLES = 2
"""Extra samples that one node gets at most; more of the same action teach little."""
_NEAR_BEST = 0.9
"""Share of the incumbent's credit (of its gain, if candidates are scored) from which on a closed node is worth a
machine-made child."""


def begin(step: Step) -> None:
    """Begin whatever can begin now."""
    if step.state.running:
        _check_budget(step)
    if step.state.running:
        _request_initial(step)
        _continue_branches(step)
    if step.state.running:
        _settle_childless(step)
        _fill_slots(step)
        _call_planner(step)
        _fill_slots(step)
        _vary_for_free_slots(step)
        _revive(step)
    if step.state.status == "stopping" and not _draining(step.state):
        _finish(step)


def stop(step: Step, stopped_by: StoppedBy, detail: str = "") -> None:
    """Begin nothing new from now on."""
    if step.state.running:
        step.take(RunStopping(stopped_by=stopped_by, detail=detail))


def resend(step: Step, request: Requested, *, refusals: tuple[Refusal, ...] = ()) -> None:
    """Ask again for what was lost or refused, under a new id.

    For a lost evaluation the build is asked for: its artifact may be gone, and where it is not, building costs nothing.
    A run that is ending asks no model again.
    """
    if step.state.ending and isinstance(request, WriteRequested | PlanRequested):
        return
    match request:
        case WriteRequested():
            step.take(replace(request, job_id=step.job_id("w")))
        case BuildRequested() | EvaluationRequested():
            step.take(
                BuildRequested(job_id=step.job_id("x"), branch_id=request.branch_id, candidate_id=request.candidate_id)
            )
        case InitialRequested():
            step.take(replace(request, job_id=step.job_id("e")))
        case PlanRequested():
            tries = request.tries + 1 if refusals else request.tries
            step.take(replace(request, job_id=step.job_id("p"), refusals=refusals or request.refusals, tries=tries))


def drop_unpaid(step: Step) -> None:
    """Of the questions that a stop has lost, keep only as many as the budget of calls pays for once more."""
    limit = step.state.settings.budget.max_calls
    for request in reversed(step.state.questions):
        if limit is None or step.state.calls + len(step.state.questions) <= limit:
            return
        if isinstance(request, PlanRequested):
            step.take(PlanAbandoned(job_id=request.job_id, reason="the budget of calls is spent"))
        else:
            step.take(QuestionDropped(job_id=request.job_id))


def _check_budget(step: Step) -> None:
    state, budget = step.state, step.state.settings.budget
    limits: tuple[tuple[StoppedBy, float, float | None], ...] = (
        ("rounds", state.rounds, budget.max_rounds),
        ("target", state.incumbent.credit if state.incumbent else 0.0, budget.target_speedup),
        ("calls", state.calls, budget.max_calls),
        ("tokens", state.usage.tokens, budget.max_tokens),
        ("wall_clock", state.elapsed_s, budget.wall_clock_s),
        ("exhausted", state.idle_attempts, state.settings.max_idle_attempts),
    )
    for stopped_by, used, limit in limits:
        if limit is not None and used >= limit:
            stop(step, stopped_by, f"{used:g} of {limit:g}")
            return


def _draining(state: SearchState) -> bool:
    """Say whether builders or evaluators still work on something that was sent."""
    return any(
        isinstance(job.request, BuildRequested | EvaluationRequested | InitialRequested) and not job.withheld
        for job in state.jobs.values()
    )


def _finish(step: Step) -> None:
    state = step.state
    stopped_by = state.stopped_by or "exhausted"
    if stopped_by not in PAUSES:
        for branch in active(state):
            _close(step, branch, "the run ended")
    incumbent = step.state.incumbent
    step.take(
        RunFinished(
            stopped_by=stopped_by,
            detail=state.stop_detail,
            rounds=step.state.rounds,
            best_id=incumbent.candidate_id if incumbent else None,
            credit=incumbent.credit if incumbent else None,
            speedup=incumbent.speedup if incumbent else None,
        )
    )


def _request_initial(step: Step) -> None:
    """Have the initial program scored, once, beside everything else."""
    state = step.state
    if state.initial_id is None or state.node(ROOT).best is not None:
        return
    if not any(isinstance(job.request, InitialRequested) for job in state.jobs.values()):
        step.take(InitialRequested(job_id=step.job_id("e"), candidate_id=state.initial_id))


def _continue_branches(step: Step) -> None:
    for branch in active(step.state):
        if branch.job_id is not None or branch.awaiting:
            continue
        if (reason := _end_reason(step.state, branch)) is not None:
            _close(step, branch, reason)
        elif _may_ask_coder(step.state):
            _request_attempt(step, branch)


def _end_reason(state: SearchState, branch: Branch) -> str | None:
    if branch.attempt_limit is not None and len(branch.attempts) >= branch.attempt_limit:
        return "extra sample drawn"
    if branch.best is not None and branch.best.credit is None:
        return "correct, and nothing tells how fast"
    if branch.stale >= state.settings.stagnation_window:
        return f"{branch.stale} attempts without improvement"
    if branch.best is not None and branch.attempts[-1].fate == "declined":
        return "the coder sees nothing further worth trying"
    if state.node(branch.node_id).prune_reason and branch.attempts:
        return "its node was pruned"
    return None


def _may_ask_coder(state: SearchState) -> bool:
    """Say whether one more attempt fits into the budget, if all that are under way turn out to be evaluations."""
    if not _calls_left(state):
        return False
    under_way = sum(branch.job_id is not None for branch in state.branches.values())
    return state.rounds + under_way < state.settings.budget.max_rounds


def _calls_left(state: SearchState) -> bool:
    """Say whether one more question fits into the budget: those under way will be paid for, too."""
    limit = state.settings.budget.max_calls
    if limit is None:
        return True
    return state.calls + len(state.questions) < limit


def _close(step: Step, branch: Branch, reason: str) -> None:
    step.take(
        BranchClosed(
            branch_id=branch.branch_id,
            node_id=branch.node_id,
            reason=reason,
            best_id=branch.best.candidate_id if branch.best else None,
        )
    )


def _request_attempt(step: Step, branch: Branch) -> None:
    mode, base, current, complaint = _next_attempt(branch)
    step.take(
        WriteRequested(
            job_id=step.job_id("w"),
            branch_id=branch.branch_id,
            mode=mode,
            base_id=base.candidate_id if base else None,
            current_id=current,
            complaint=complaint,
        )
    )


def _next_attempt(branch: Branch) -> tuple[WriteMode, Score | None, str | None, str]:
    """Return mode, base, the latest attempt where it is not the base, and what was wrong with the latest answer."""
    if not branch.attempts:
        return "apply", branch.base, None, ""
    last = branch.attempts[-1]
    complaint = last.outcome if last.fate == "unusable" else ""
    if branch.best is None:
        written = [attempt.candidate_id for attempt in branch.attempts if attempt.candidate_id]
        return ("debug" if written else "apply"), branch.base, (written[-1] if written else None), complaint
    base = better(branch.best, branch.base)
    current = last.candidate_id if base and last.candidate_id != base.candidate_id else None
    return "improve", base, current, complaint


def _settle_childless(step: Step) -> None:
    """Give closed nodes that the planner was asked about in vain a machine-made child, or mark them spent."""
    if step.state.plan is not None or _has_news(step.state):
        return
    for node in childless(step.state):
        if not node.asked:
            continue
        if node.origin == "model" and _is_near_best(step.state, node) and not is_varied(step.state, node):
            vary(step, node)
        else:
            step.take(NodeSpent(node_id=node.node_id))


def _is_near_best(state: SearchState, node: Node) -> bool:
    """Say whether a closed node is worth going on from; scores have no natural zero, so there the gain is compared."""
    if state.incumbent is None:
        return True
    zero = worth(state.node(ROOT)) if state.scored else 0.0
    return worth(node) - zero >= _NEAR_BEST * (state.incumbent.credit - zero)


def _fill_slots(step: Step) -> None:
    while len(step.state.branches) < step.state.settings.branches and _may_ask_coder(step.state):
        node = select(step.state)
        limit = None
        if node is None:
            if step.state.plan is None:
                return
            node, limit = _sampled(step.state), 1
        if node is None:
            return
        _start(step, node, limit)


def _start(step: Step, node: Node, limit: int | None) -> None:
    base = step.state.node(node.parent_id).best
    branch_id = step.branch_id()
    step.take(
        BranchStarted(
            branch_id=branch_id,
            node_id=node.node_id,
            base_id=base.candidate_id if base else None,
            attempt_limit=limit,
        )
    )
    _request_attempt(step, step.state.branches[branch_id])


def _sampled(state: SearchState) -> Node | None:
    """Return the best node in flight that may have one more extra sample."""
    extra = {branch.node_id for branch in state.branches.values() if branch.extra}
    refined = {branch.node_id for branch in state.branches.values()} - extra
    nodes = [node for node_id in refined if (node := state.node(node_id)).samples < _MAX_SAMPLES]
    return max(nodes, key=lambda node: (node.priority, node.node_id), default=None)


def _call_planner(step: Step) -> None:
    state = step.state
    if state.plan is not None or not _asks_planner(state) or not _calls_left(state):
        return
    slots, open_nodes = state.settings.branches, len(state.frontier_ids)
    free = slots - len(state.branches)
    unasked = tuple(node.node_id for node in childless(state) if not node.asked)[:_MAX_ASKED]
    scarce = open_nodes < 2 * free and not state.dry
    if not (_has_news(state) or unasked or scarce):
        return
    first = len(state.nodes) == 1 and state.rounds == 0
    step.take(
        PlanRequested(
            job_id=step.job_id("p"),
            purpose="analyse" if first else "revise",
            branch_ids=tuple(report.branch_id for report in state.reports),
            wanted=max(0, min(_MAX_WANTED, 2 * slots - open_nodes)),
            childless=unasked,
        )
    )


def _asks_planner(state: SearchState) -> bool:
    """Say whether the planner's model has a say in the tree as it is now."""
    match state.settings.world_model:
        case "evolving":
            return True
        case "frozen":
            return len(state.nodes) == 1 and not state.dry
        case "off":
            return False
        case _:
            assert_never(state.settings.world_model)


def _vary_for_free_slots(step: Step) -> None:
    """Without a planner's model to ask, give every free slot an action of the machine's."""
    while step.state.settings.world_model != "evolving" and step.state.plan is None and not step.state.frontier_ids:
        if len(step.state.branches) >= step.state.settings.branches or not _may_ask_coder(step.state):
            return
        vary(step, most_promising(step.state))
        _fill_slots(step)


def _has_news(state: SearchState) -> bool:
    """Say whether a branch ended that the planner's model has not been told of; an extra sample is no news."""
    return any(not report.extra for report in state.reports)


def _revive(step: Step) -> None:
    """With nothing under way: reopen the best closed node, or end the run."""
    while not step.state.jobs and not step.state.branches:
        if not step.state.frontier_ids:
            node = best_unvaried(step.state)
            if node is None:
                stop(step, "exhausted", "nothing is open, and nothing is left to vary")
                return
            vary(step, node)
        _fill_slots(step)
