"""Starts work: next attempts, branches, confirmations, calls for edits, and the end of the run.

Of many measurements the best is one that chance favoured. So a candidate whose screening is better than the incumbent
is provisional: in a fresh process, on fresh data and in more pairs it is measured once more, and what that says
replaces what the screening said, in either direction. The rules:

1. One confirmation at a time, the best provisional candidate first: what is then seen to be no better is spared.
2. It is no round. While confirmations have more than `SHARE` of the time for which candidates were timed, the next one
   waits; so does what is no faster than the reference. What could end the run by reaching its target does not wait.
3. Before a run ends by its budget, or because nothing is left to try, what is still provisional is confirmed. A run
   that is stopped leaves it for when it is resumed; so does one whose evaluators cannot do it.
4. A candidate is confirmed once. What is refuted (wrong, crashed, …) is no correct candidate any more; what cannot be
   timed well enough, or is outpaced, stays in the tree for no more than either measurement says.

Scores and candidates that are not timed need none: an evaluator that scores says what it repeats itself, and where
nothing is timed nothing is owed to chance.

Several branches at once start from different programs, and what one of them finds is not in the others: rounds spent on
polishing a program that has been overtaken are lost. So the window shrinks with the distance to the incumbent, as
brackets of successive halving do (Jamieson and Talwalkar 2016), but without a schedule. docs/design/0009 has figures.

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

import math
from typing import assert_never

from msgspec.structs import replace

from actors.planner.core.budget import (
    is_overcommitted,
    may_ask_coder,
    may_ask_planner,
    next_model,
    rounds_left,
    used_up,
)
from actors.planner.core.evolve import Step, renews
from actors.planner.core.selection import belief, distance, gain_of, select, spreads
from actors.planner.core.state import (
    PAUSES,
    Branch,
    Known,
    Node,
    Provisional,
    Requested,
    Score,
    SearchState,
    active,
    better,
    childless,
    in_order,
    is_confirmation,
    live_parent,
    worth,
)
from messages.base import ROOT
from messages.commands import WriteMode
from messages.edits import Refusal
from messages.events import CandidateEvaluated
from messages.facts import (
    BranchClosed,
    BranchStarted,
    BuildRequested,
    ConfirmationFinished,
    ConfirmationOwed,
    ConfirmationRequested,
    EvaluationRequested,
    IncumbentChanged,
    InitialRequested,
    LossNoted,
    NodeInserted,
    NodeSpent,
    PlanAbandoned,
    PlanRequested,
    QuestionDropped,
    RunFinished,
    RunStopping,
    StoppedBy,
    WriteRequested,
)
from messages.verdicts import (
    GOOD_FATES,
    REFUTING_FATES,
    Measured,
    Outpaced,
    Unstable,
    Verdict,
    credit_of,
    fate_of,
    outcome_line,
)

SHARE = 0.2
"""Of the time for which the timing lease was held: from here on confirmations wait."""


def surpasses(state: SearchState, credit: float) -> bool:
    """Say whether a credit is above the incumbent's."""
    return state.incumbent is None or credit > state.incumbent.credit


def present(step: Step, known: Known, node_id: str, *, artifact_id: str | None) -> None:
    """Make a candidate with a credit the incumbent or provisional, if it is better than the incumbent.

    Args:
        step: the decision.
        known: the candidate, as it was just evaluated or is known.
        node_id: whose branch wrote it.
        artifact_id: what was evaluated; None: it was evaluated before.
    """
    if known.fate not in GOOD_FATES or known.credit is None or not surpasses(step.state, known.credit):
        return
    if known.speedup is None or not step.state.settings.confirm:
        step.take(
            IncumbentChanged(
                candidate_id=known.candidate_id,
                node_id=node_id,
                round=step.state.rounds,
                credit=known.credit,
                speedup=known.speedup,
                latency_us=known.latency_us,
            )
        )
    elif artifact_id is not None:
        step.take(
            ConfirmationOwed(
                candidate_id=known.candidate_id,
                node_id=node_id,
                artifact_id=artifact_id,
                round=step.state.rounds,
                credit=known.credit,
                speedup=known.speedup,
                latency_us=known.latency_us,
            )
        )


def confirm(step: Step) -> None:
    """Have the best provisional candidate measured again, if its turn has come."""
    state = step.state
    if not state.provisional or state.confirming:
        return
    found = max(state.provisional.values(), key=lambda one: (one.credit, -one.round, one.candidate_id))
    if state.running and not _may_be_timed(state, found):
        return
    step.take(
        ConfirmationRequested(job_id=step.job_id("e"), candidate_id=found.candidate_id, artifact_id=found.artifact_id)
    )


def _may_be_timed(state: SearchState, found: Provisional) -> bool:
    target = state.settings.budget.target_speedup
    if target is not None and found.credit >= target:
        return True
    if found.credit <= 1.0:
        return False
    return state.confirm_s <= SHARE * (state.screen_s + state.confirm_s)


def conclude(step: Step, request: ConfirmationRequested, event: CandidateEvaluated) -> None:
    """Take in what a confirmation said."""
    conclude_with(step, request.job_id, request.candidate_id, event.verdict, lease_s=event.lease_s)


def conclude_with(step: Step, job_id: str, candidate_id: str, verdict: Verdict, *, lease_s: float = 0.0) -> None:
    """Take in what a confirmation, or the build for it, said. The better of two measurements is never what counts."""
    found = step.state.provisional[candidate_id]
    step.take(_finished(job_id, found, verdict, lease_s))
    credit = credit_of(verdict)
    if not isinstance(verdict, Measured) or credit is None or not surpasses(step.state, credit):
        return
    step.take(
        IncumbentChanged(
            candidate_id=candidate_id,
            node_id=found.node_id,
            round=found.round,
            credit=credit,
            speedup=verdict.speedup_vs_reference,
            latency_us=verdict.latency_us,
            screen_speedup=found.speedup,
        )
    )


def _finished(job_id: str, found: Provisional, verdict: Verdict, lease_s: float) -> ConfirmationFinished:
    worth = _worth(found, verdict)
    return ConfirmationFinished(
        job_id=job_id,
        candidate_id=found.candidate_id,
        node_id=found.node_id,
        round=found.round,
        fate=fate_of(verdict),
        outcome=outcome_line(verdict),
        screen_credit=found.credit,
        screen_speedup=found.speedup,
        credit=worth.credit if worth else None,
        speedup=worth.speedup if worth else None,
        speedup_high=worth.speedup_high if worth else None,
        latency_us=worth.latency_us if worth else None,
        lease_s=lease_s,
    )


def _worth(found: Provisional, verdict: Verdict) -> Score | None:
    """Return what a candidate counts for after its confirmation; None if it was refuted."""
    if fate_of(verdict) in REFUTING_FATES:
        return None
    screened = Score(
        candidate_id=found.candidate_id, credit=found.credit, speedup=found.speedup, latency_us=found.latency_us
    )
    if isinstance(verdict, Measured) and (credit := credit_of(verdict)) is not None:
        high = verdict.speedup_interval.high if verdict.speedup_interval is not None else None
        speedup, latency_us = verdict.speedup_vs_reference, verdict.latency_us
        return replace(screened, credit=credit, speedup=speedup, speedup_high=high, latency_us=latency_us)
    if isinstance(verdict, Unstable | Outpaced):
        interval = verdict.speedup_interval
        least = min(found.credit, interval.low), min(found.speedup, interval.high)
        return replace(screened, credit=least[0], speedup=least[1], speedup_high=interval.high)
    return screened


_PRIORITY = 0.2
_VARY = (
    "Keep the algorithm and vary how it is carried out: block sizes, loop order, unrolling, vector width, number of "
    "accumulators, memory access. Change one thing at a time and say which."
)
_VARY_SCORED = (
    "Keep what makes the base code score well and vary one thing about it: a parameter, a data structure, a step of "
    "the algorithm. Say which."
)
_ATTEMPT_SCORED = "Write a program that scores higher than any so far."
_ATTEMPT_DIRECTLY = "Write the fastest correct program you can, fusing what the reference does in separate passes."


def vary(step: Step, node: Node) -> None:
    """Hang an action of the machine's under a closed node: under the root, a direct attempt at the task."""
    title = "Direct attempt" if node.node_id == ROOT else f"Vary {node.node_id}"
    texts = (_ATTEMPT_SCORED, _VARY_SCORED) if step.state.scored else (_ATTEMPT_DIRECTLY, _VARY)
    number = 1 + _variations(step.state, node)
    step.take(
        NodeInserted(
            node_id=f"n{len(step.state.nodes)}",
            parent_id=node.node_id,
            title=title if number == 1 else f"{title}, number {number}",
            description=texts[node.node_id != ROOT],
            difficulty=1,
            priority=_PRIORITY,
            origin="machine",
        )
    )


def is_varied(state: SearchState, node: Node) -> bool:
    """Say whether a node has a child of the machine's."""
    return _variations(state, node) > 0


def best_unvaried(state: SearchState) -> Node | None:
    """Return the best closed node that the machine has neither made nor varied; the root comes last."""
    closed = [node for node in in_order(state.nodes) if node.state == "closed" and not is_varied(state, node)]
    ranked = sorted(closed, key=lambda node: -worth(node) if node.node_id != ROOT else 0.0)
    return next((node for node in ranked if node.origin != "machine" and not node.barred), None)


def most_promising(state: SearchState) -> Node:
    """Return the closed node that is to be varied next, however often it was.

    Of the closed nodes, best first, the p-th is as promising as the best once the best has p variations more: the best
    results are varied most, and several slots do not all vary the same one. The root is always among them.
    """
    closed = [node for node in in_order(state.nodes) if node.state == "closed" and not (node.spent or node.barred)]
    ranked = sorted(closed, key=lambda node: -worth(node))
    places = [(place + _variations(state, node), place) for place, node in enumerate(ranked)]
    return ranked[min(places)[1]]


def _variations(state: SearchState, node: Node) -> int:
    return sum(state.node(child).origin == "machine" for child in node.children)


def stagnation(state: SearchState, branch: Branch) -> str | None:
    """Say that a branch made no progress for as long as it may: not correct yet, and correct but not faster."""
    if branch.best is None:
        window = state.settings.repair_window or state.settings.stagnation_window
        return f"{branch.stale} attempts without a correct candidate" if branch.stale >= window else None
    window = window_of(state, branch.best.credit or 0.0)
    if branch.stale < window:
        return None
    behind = ", behind the best" if window < state.settings.stagnation_window else ""
    return f"{branch.stale} {'attempt' if branch.stale == 1 else 'attempts'} without improvement{behind}"


def window_of(state: SearchState, credit: float) -> int:
    """Return how many attempts in a row a branch with this best credit may go without improvement."""
    window, patience = state.settings.stagnation_window, state.settings.selection.patience
    if not patience or not spreads(state):
        return window
    return max(1, round(window * math.exp(min(0.0, distance(state, credit)) / patience)))


def continue_branches(step: Step) -> None:
    """End the branches that wait for nothing, or ask for their next attempts while the budget allows."""
    for branch in active(step.state):
        if branch.drafts:
            continue
        if (reason := _end_reason(step.state, branch)) is not None:
            close(step, branch, reason)
        elif may_ask_coder(step.state):
            request_attempt(step, branch)


def _end_reason(state: SearchState, branch: Branch) -> str | None:
    if branch.attempt_limit is not None and len(branch.attempts) >= branch.attempt_limit:
        return "extra sample drawn"
    if branch.best is not None and branch.best.credit is None:
        return "correct, and nothing tells how fast"
    if (reason := stagnation(state, branch)) is not None:
        return reason
    if branch.best is not None and branch.attempts[-1].fate == "declined":
        return "the coder sees nothing further worth trying"
    return _end_of_node(state.node(branch.node_id), branch) if branch.attempts else None


def _end_of_node(node: Node, branch: Branch) -> str | None:
    """Say why the node of a branch has no need of another attempt."""
    if node.prune_reason:
        return "its node was pruned"
    if node.barred:
        return "its node was forbidden"
    if branch.best is not None and node.given_id is not None and node.origin != "person":
        return "an earlier run's candidate was measured anew"
    return None


def close(step: Step, branch: Branch, reason: str) -> None:
    """End a branch."""
    found = None if step.state.scored else gain_of(branch.best, branch.base)
    step.take(
        BranchClosed(
            branch_id=branch.branch_id,
            node_id=branch.node_id,
            reason=reason,
            best_id=branch.best.candidate_id if branch.best else None,
            expected_gain=branch.expected_gain,
            gain=found.gain if found is not None else None,
            gain_interval=found.interval if found is not None else None,
        )
    )


def request_attempt(step: Step, branch: Branch) -> None:
    """Ask for the drafts of a branch's next attempt: the first, and as many more as are wanted and can be paid for."""
    node = step.state.node(branch.node_id)
    given_id = None if branch.attempts or branch.extra or node.tries else node.given_id
    _request_draft(step, branch, number=0, given_id=given_id)
    wanted = 1 if branch.extra or given_id is not None else step.state.settings.samples
    for number in range(1, wanted):
        if may_ask_coder(step.state):
            _request_draft(step, branch, number=number)


def _request_draft(step: Step, branch: Branch, *, number: int, given_id: str | None = None) -> None:
    mode, base, current, complaint = _next_attempt(branch)
    step.take(
        WriteRequested(
            job_id=step.job_id("w"),
            branch_id=branch.branch_id,
            mode=mode,
            base_id=base.candidate_id if base else None,
            current_id=current,
            complaint=complaint,
            draft=number,
            model="" if given_id else next_model(step.state),
            given_id=given_id,
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
