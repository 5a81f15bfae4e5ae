"""What is begun when something has happened: next attempts, branches, calls for edits, and the end of the run.

Rules in order, repeated until none applies:

1. A used-up budget ends the run: what builders and evaluators hold is finished, what was written meanwhile is built and
   evaluated, no model is asked again. What could be the best is confirmed (`confirming`), here as at any time before.
2. A branch without a job ends if it is stagnant, else asks for its next attempt while rounds are left.
3. Closed nodes that the planner was asked about in vain get a "vary" child from the machine, or are spent.
4. Free slots take the best frontier node. While the planner's model thinks and nothing is open, they draw one extra
   sample each for the best nodes in flight.
5. The planner's model is called if branches wait to be told of, if open nodes are fewer than twice the free slots,
   or if closed nodes lack children. One call at a time; what comes meanwhile is folded into the next.
6. With nothing in flight and nothing open, the machine reopens the best closed node; if it has reopened all, the run is
   over, unless the planner's model was not understood the last time: then there may be more, and it varies again.

While the run is paused only the first applies, and questions that are to be asked again wait.

With a world model that is `frozen` or `off` the planner's model is called at most once: free slots for which nothing is
open get an action of the machine's instead (`variations`).
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from actors.planner.core.attempts import close, continue_branches, request_attempt
from actors.planner.core.budget import (
    is_overcommitted,
    may_ask_coder,
    may_ask_planner,
    next_model,
    rounds_left,
    used_up,
)
from actors.planner.core.confirming import confirm
from actors.planner.core.selection import belief, select
from actors.planner.core.state import (
    PAUSES,
    Node,
    Requested,
    SearchState,
    active,
    is_confirmation,
)
from actors.planner.core.step import Step
from actors.planner.core.telling import renews
from actors.planner.core.tree import childless, live_parent, worth
from actors.planner.core.variations import best_unvaried, is_varied, most_promising, vary
from messages.base import ROOT
from messages.edits import Refusal
from messages.facts import (
    BranchStarted,
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    InitialRequested,
    LossNoted,
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
"""New actions that one call asks for at most, or twice the slots: longer answers get worse, idle coders are worse."""
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
    if step.state.running and not step.state.paused:
        confirm(step)
        _request_initial(step)
        continue_branches(step)
    if step.state.running and not step.state.paused:
        _settle_childless(step)
        _fill_slots(step)
        _call_planner(step)
        _fill_slots(step)
        _vary_for_free_slots(step)
        _revive(step)
    if step.state.ending and not _draining(step.state):
        confirm(step)
    if step.state.status == "stopping" and not _draining(step.state):
        _finish(step)


def stop(step: Step, stopped_by: StoppedBy, detail: str = "") -> None:
    """Begin nothing new from now on. A run that is ending may still be stopped, if confirmations are left to do."""
    if step.state.running or (step.state.ending and step.state.provisional and stopped_by in PAUSES):
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
            model = "" if request.given_id else next_model(step.state)
            step.take(replace(request, job_id=step.job_id("w"), model=model))
        case BuildRequested() | EvaluationRequested():
            step.take(
                BuildRequested(
                    job_id=step.job_id("x"),
                    branch_id=request.branch_id,
                    candidate_id=request.candidate_id,
                    draft=request.draft,
                    lost=request.lost,
                )
            )
        case ConfirmationRequested():
            step.take(BuildRequested(job_id=step.job_id("x"), branch_id="", candidate_id=request.candidate_id))
        case InitialRequested():
            step.take(replace(request, job_id=step.job_id("e")))
        case PlanRequested():
            if refusals:  # another question: it says what was wrong
                request = replace(request, refusals=refusals, tries=request.tries + 1, lost=0)
            step.take(replace(request, job_id=step.job_id("p"), renews=renews(step.state)))


def drop_unpaid(step: Step) -> None:
    """Of the questions that a stop has lost, keep only as many as the budget pays for once more, and has rounds for.

    What was written is evaluated all the same, and may exceed the rounds.
    """
    for request in reversed(step.state.questions):
        if isinstance(request, WriteRequested) and rounds_left(step.state) < 0:
            step.take(QuestionDropped(job_id=request.job_id))
    for request in reversed(step.state.questions):
        if not is_overcommitted(step.state):
            return
        if isinstance(request, PlanRequested):
            step.take(PlanAbandoned(job_id=request.job_id, reason="the budget is spent"))
        else:
            step.take(QuestionDropped(job_id=request.job_id))


def ask_others(step: Step) -> None:
    """Ask the run's models what was asked of coder models that it no longer has."""
    names = {offer.name for offer in step.state.lineup.coders} | {""}
    for request in step.state.questions if step.state.lineup.coders else ():
        if isinstance(request, WriteRequested) and request.model not in names:
            step.take(LossNoted(job_id=request.job_id, error=f"model {request.model!r} is not asked any more"))
            resend(step, request)


def _check_budget(step: Step) -> None:
    if (reason := used_up(step.state)) is not None:
        stop(step, *reason)


def _draining(state: SearchState) -> bool:
    """Say whether builders or evaluators still work on something that was sent."""
    return any(
        not isinstance(job.request, WriteRequested | PlanRequested) and not job.withheld for job in state.jobs.values()
    )


def _finish(step: Step) -> None:
    state = step.state
    stopped_by = state.stopped_by or "exhausted"
    if stopped_by not in PAUSES:
        for branch in active(state):
            close(step, branch, "the run ended")
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


def _settle_childless(step: Step) -> None:
    """Give closed nodes that the planner was asked about in vain a machine-made child, or mark them spent."""
    if step.state.plan is not None or _has_news(step.state):
        return
    for node in childless(step.state):
        if not node.asked:
            continue
        if node.origin != "machine" and _is_near_best(step.state, node) and not is_varied(step.state, node):
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
    while len(step.state.branches) < step.state.settings.branches and may_ask_coder(step.state):
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
    base = live_parent(step.state, step.state.node(node.parent_id)).best
    second = step.state.node(node.second_id).best if node.second_id else None
    branch_id = step.branch_id()
    step.take(
        BranchStarted(
            branch_id=branch_id,
            node_id=node.node_id,
            base_id=base.candidate_id if base else None,
            second_id=second.candidate_id if second else None,
            attempt_limit=limit,
        )
    )
    request_attempt(step, step.state.branches[branch_id])


def _sampled(state: SearchState) -> Node | None:
    """Return the best node in flight that may have one more extra sample."""
    extra = {branch.node_id for branch in state.branches.values() if branch.extra}
    refined = {branch.node_id for branch in state.branches.values()} - extra
    nodes = [state.node(node_id) for node_id in refined if _may_sample(state.node(node_id))]
    return max(nodes, key=lambda node: (belief(state, node), node.node_id), default=None)


def _may_sample(node: Node) -> bool:
    return node.samples < _MAX_SAMPLES and not node.barred and node.given_id is None


def _wanted(state: SearchState, slots: int, open_nodes: int) -> int:
    """Return how many new actions to ask for.

    So many that twice the slots are open; if more branches than slots began while the last answer was awaited, twice as
    many as began: one half for the time until this answer comes, the other until the next. And some for idle slots.
    """
    target = 2 * slots
    if state.begun > slots > 1:  # one branch waits for no answer
        idle = slots - sum(not branch.extra for branch in state.branches.values())
        target = 2 * state.begun + idle
    return max(0, min(max(_MAX_WANTED, 2 * slots), target - open_nodes))


def _call_planner(step: Step) -> None:
    state = step.state
    if state.plan is not None or not _asks_planner(state) or not may_ask_planner(state):
        return
    slots, open_nodes = state.settings.branches, len(state.frontier_ids)
    free = slots - len(state.branches)
    unasked = tuple(node.node_id for node in childless(state) if not node.asked)[:_MAX_ASKED]
    scarce = open_nodes < 2 * free and not state.dry
    first = state.rounds == 0 and _has_no_idea(state)
    if not (_has_news(state) or unasked or scarce or (first and not state.dry)):
        return
    step.take(
        PlanRequested(
            job_id=step.job_id("p"),
            purpose="analyse" if first else "revise",
            branch_ids=tuple(report.branch_id for report in state.reports),
            wanted=_wanted(state, slots, open_nodes),
            childless=unasked,
            renews=renews(state),
        )
    )


def _asks_planner(state: SearchState) -> bool:
    """Say whether the planner's model has a say in the tree as it is now."""
    match state.settings.world_model:
        case "evolving":
            return True
        case "frozen":
            return not state.dry and _has_no_idea(state)
        case "off":
            return False
        case _:
            assert_never(state.settings.world_model)


def _has_no_idea(state: SearchState) -> bool:
    """Say whether there is no action, but for those that people brought."""
    return all(node.origin == "person" for node in state.nodes.values() if node.node_id != ROOT)


def _vary_for_free_slots(step: Step) -> None:
    """Without a planner's model to ask, give every free slot an action of the machine's."""
    while step.state.settings.world_model != "evolving" and step.state.plan is None and not step.state.frontier_ids:
        if len(step.state.branches) >= step.state.settings.branches or not may_ask_coder(step.state):
            return
        vary(step, most_promising(step.state))
        _fill_slots(step)


def _has_news(state: SearchState) -> bool:
    """Say whether a branch ended that the planner's model has not been told of; an extra sample is no news."""
    return any(not report.extra for report in state.reports)


def _revive(step: Step) -> None:
    """With nothing under way: reopen the best closed node, or end the run."""
    while not step.state.branches and all(is_confirmation(job.request) for job in step.state.jobs.values()):
        if not step.state.frontier_ids:
            node = best_unvaried(step.state)
            if node is None and step.state.misread:
                node = most_promising(step.state)
            if node is None:
                stop(step, "exhausted", "nothing is open, and nothing is left to vary")
                return
            vary(step, node)
        _fill_slots(step)
