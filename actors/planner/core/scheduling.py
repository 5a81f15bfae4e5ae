"""Starts work: next attempts, branches, confirmations, calls for edits, and the end of the run.

Rules in order, repeated until none applies:

1. A used-up budget ends the run: builds and evaluations are finished, no model is asked again, a possible best is
  confirmed.
2. A branch without a job ends if it is stagnant, else it asks for its next attempt while rounds are left. Its window
  shrinks with the distance to the incumbent, as in successive halving (Jamieson and Talwalkar 2016; docs/design/0009).
3. A closed node for which the planner was asked in vain for children gets a "vary" child, or is marked spent.
4. Free slots take the best frontier node. While a planner call is in flight and nothing is open, each draws one extra
  sample for the best nodes in flight.
5. The planner's model is called if branches wait to be reported, open nodes are fewer than twice the free slots, or
  closed nodes lack children. Only one call is in flight at a time.
6. With nothing in flight and nothing open, the best closed node is varied. If all were varied, the run ends, unless the
  planner's last answer was not understood: then nodes are varied again.

While the run is paused only the first rule applies. With a `frozen` or `off` world model the planner's model is called
at most once, and free slots get machine-made actions instead.

Confirmations: the best of many measurements is partly luck, so a screening that beats the incumbent is provisional
until a second measurement replaces it. Confirmations run one at a time, the best candidate first. They wait while they
take more than `SHARE` of the timing time, as do candidates no faster than the reference (unless the target is at
stake).
"""

from __future__ import annotations

import math

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
from messages.base import ROOT, copied
from messages.commands import WriteMode
from messages.edits import Refusal
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
"""Share of the timing lease above which confirmations wait."""


def present(step: Step, known: Known, node_id: str, *, artifact_id: str | None) -> None:
    """Make a candidate that beats the incumbent the new incumbent, or a provisional one.

    `artifact_id` is None if the candidate was evaluated before.
    """
    if known.fate not in GOOD_FATES or known.credit is None or not _surpasses(step.state, known.credit):
        return
    if known.speedup is None or not step.state.settings.confirm:
        step.take(copied(IncumbentChanged, known, node_id=node_id, round=step.state.rounds))
    elif artifact_id is not None:
        owed = copied(ConfirmationOwed, known, node_id=node_id, artifact_id=artifact_id, round=step.state.rounds)
        step.take(owed)


def _surpasses(state: SearchState, credit: float) -> bool:
    return state.incumbent is None or credit > state.incumbent.credit


def confirm(step: Step) -> None:
    """Request a second measurement of the best provisional candidate, if one is due."""
    state = step.state
    if not state.provisional or state.confirming:
        return
    found = max(state.provisional.values(), key=lambda one: (one.credit, -one.round, one.candidate_id))
    if not state.running or _may_be_timed(state, found):
        step.take(copied(ConfirmationRequested, found, job_id=step.job_id("e")))


def _may_be_timed(state: SearchState, found: Provisional) -> bool:
    target = state.settings.budget.target_speedup
    if target is not None and found.credit >= target:
        return True
    if found.credit <= 1.0:
        return False
    return state.confirm_s <= SHARE * (state.screen_s + state.confirm_s)


def conclude(
    step: Step, request: ConfirmationRequested | BuildRequested, verdict: Verdict, *, lease_s: float = 0.0
) -> None:
    """Record the verdict of a confirmation, or of the build for it."""
    found = step.state.provisional[request.candidate_id]
    finished = copied(
        ConfirmationFinished,
        _worth(found, verdict) or Score(candidate_id=found.candidate_id),
        job_id=request.job_id,
        node_id=found.node_id,
        round=found.round,
        fate=fate_of(verdict),
        outcome=outcome_line(verdict),
        screen_credit=found.credit,
        screen_speedup=found.speedup,
        lease_s=lease_s,
    )
    step.take(finished)
    credit = credit_of(verdict)
    if isinstance(verdict, Measured) and credit is not None and _surpasses(step.state, credit):
        now = {"credit": credit, "speedup": verdict.speedup_vs_reference, "latency_us": verdict.latency_us}
        step.take(copied(IncumbentChanged, found, screen_speedup=found.speedup, **now))


def _worth(found: Provisional, verdict: Verdict) -> Score | None:
    """Return a candidate's score after its confirmation, never the better of both; None if it was refuted."""
    if fate_of(verdict) in REFUTING_FATES:
        return None
    screened = copied(Score, found)
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
_VARIATION = (
    "Keep the algorithm and vary how it is carried out: block sizes, loop order, unrolling, vector width, number of "
    "accumulators, memory access. Change one thing at a time and say which."
)
_VARY_SCORED = (
    "Keep what makes the base code score well and vary one thing about it: a parameter, a data structure, a step of "
    "the algorithm. Say which."
)
_ATTEMPT_SCORED = "Write a program that scores higher than any so far."
_ATTEMPT_DIRECTLY = "Write the fastest correct program you can, fusing what the reference does in separate passes."


def _vary(step: Step, node: Node) -> None:
    title = "Direct attempt" if node.node_id == ROOT else f"Vary {node.node_id}"
    texts = (_ATTEMPT_SCORED, _VARY_SCORED) if step.state.scored else (_ATTEMPT_DIRECTLY, _VARIATION)
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


def _best_unvaried(state: SearchState) -> Node | None:
    """Return the best closed node that the machine neither created nor varied; the root ranks last."""
    closed = [node for node in in_order(state.nodes) if node.state == "closed" and not _variations(state, node)]
    ranked = sorted(closed, key=lambda node: -worth(node) if node.node_id != ROOT else 0.0)
    return next((node for node in ranked if node.origin != "machine" and not node.barred), None)


def _most_promising(state: SearchState) -> Node:
    """Return the closed node to vary next, regardless of earlier variations; the root is always a choice.

    The p-th best node is as promising as the best once the best has p more variations.
    """
    closed = [node for node in in_order(state.nodes) if node.state == "closed" and not (node.spent or node.barred)]
    ranked = sorted(closed, key=lambda node: -worth(node))
    places = [(place + _variations(state, node), place) for place, node in enumerate(ranked)]
    return ranked[min(places)[1]]


def _variations(state: SearchState, node: Node) -> int:
    return sum(state.node(child).origin == "machine" for child in node.children)


def stagnation(state: SearchState, branch: Branch) -> str | None:
    """Return why a branch counts as stagnant; None if it continues."""
    if branch.best is None:
        window = state.settings.repair_window or state.settings.stagnation_window
        return f"{branch.stale} attempts without a correct candidate" if branch.stale >= window else None
    window = window_of(state, branch.best.credit or 0.0)
    if branch.stale < window:
        return None
    behind = ", behind the best" if window < state.settings.stagnation_window else ""
    return f"{branch.stale} {'attempt' if branch.stale == 1 else 'attempts'} without improvement{behind}"


def window_of(state: SearchState, credit: float) -> int:
    """Return how many consecutive attempts without improvement a branch with this best credit may make."""
    window, patience = state.settings.stagnation_window, state.settings.selection.patience
    if not patience or not spreads(state):
        return window
    return max(1, round(window * math.exp(min(0.0, distance(state, credit)) / patience)))


def continue_branches(step: Step) -> None:
    """End each branch that waits for nothing, or request its next attempt while the budget allows."""
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
    best_id = branch.best.candidate_id if branch.best else None
    gain, interval = (found.gain, found.interval) if found is not None else (None, None)
    step.take(copied(BranchClosed, branch, reason=reason, best_id=best_id, gain=gain, gain_interval=interval))


def request_attempt(step: Step, branch: Branch) -> None:
    """Request the drafts of a branch's next attempt: one, and more where wanted and affordable."""
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
"""Most new actions requested in one call (or twice the slots, if larger): longer answers get worse."""
_MAX_ASKED = 8
"""Most childless nodes asked about in one call."""
_MAX_SAMPLES = 2
"""Most extra samples of one node."""
_NEAR_BEST = 0.9
"""Share of the incumbent's credit (or gain) above which a closed node gets a machine-made child."""


def begin(step: Step) -> None:
    """Begin everything that can begin now."""
    if step.state.running and (reason := used_up(step.state)) is not None:
        stop(step, *reason)
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
    """Start nothing new from now on. An ending run with confirmations left may still be stopped."""
    if step.state.running or (step.state.ending and step.state.provisional and stopped_by in PAUSES):
        step.take(RunStopping(stopped_by=stopped_by, detail=detail))


def resend(step: Step, request: Requested, *, refusals: tuple[Refusal, ...] = ()) -> None:
    """Request a lost or refused job again, under a new id; an ending run asks no model again.

    For a lost evaluation the build is requested, since its artifact may be gone; finding an existing one costs nothing.
    """
    if step.state.ending and isinstance(request, WriteRequested | PlanRequested):
        return
    match request:
        case WriteRequested():
            model = "" if request.given_id else next_model(step.state)
            step.take(replace(request, job_id=step.job_id("w"), model=model))
        case BuildRequested() | EvaluationRequested():
            step.take(copied(BuildRequested, request, job_id=step.job_id("x")))
        case ConfirmationRequested():
            step.take(BuildRequested(job_id=step.job_id("x"), branch_id="", candidate_id=request.candidate_id))
        case InitialRequested():
            step.take(replace(request, job_id=step.job_id("e")))
        case PlanRequested():
            if refusals:  # another question: it says what was wrong
                request = replace(request, refusals=refusals, tries=request.tries + 1, lost=0)
            step.take(replace(request, job_id=step.job_id("p"), renews=renews(step.state)))


def drop_unpaid(step: Step) -> None:
    """Of the questions lost by a stop, keep only as many as the budget can pay for again."""
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
    """Send questions for coder models that the run no longer has to its current models."""
    names = {offer.name for offer in step.state.lineup.coders} | {""}
    for request in step.state.questions if step.state.lineup.coders else ():
        if isinstance(request, WriteRequested) and request.model not in names:
            step.take(LossNoted(job_id=request.job_id, error=f"model {request.model!r} is not asked any more"))
            resend(step, request)


def _draining(state: SearchState) -> bool:
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
    state = step.state
    if state.initial_id is None or state.node(ROOT).best is not None:
        return
    if not any(isinstance(job.request, InitialRequested) for job in state.jobs.values()):
        step.take(InitialRequested(job_id=step.job_id("e"), candidate_id=state.initial_id))


def _settle_childless(step: Step) -> None:
    """Give closed nodes a machine-made child if children were requested in vain, or mark them spent."""
    if step.state.plan is not None or _has_news(step.state):
        return
    for node in childless(step.state):
        if not node.asked:
            continue
        if node.origin != "machine" and _is_near_best(step.state, node) and not _variations(step.state, node):
            _vary(step, node)
        else:
            step.take(NodeSpent(node_id=node.node_id))


def _is_near_best(state: SearchState, node: Node) -> bool:
    """Return True if a closed node is worth continuing from; for scores, which have no zero, the gain counts."""
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
    extra = {branch.node_id for branch in state.branches.values() if branch.extra}
    refined = [state.node(node_id) for node_id in {branch.node_id for branch in state.branches.values()} - extra]
    nodes = [node for node in refined if node.samples < _MAX_SAMPLES and not node.barred and node.given_id is None]
    return max(nodes, key=lambda node: (belief(state, node), node.node_id), default=None)


def _wanted(state: SearchState, slots: int, open_nodes: int) -> int:
    """Return how many new actions to request.

    That is enough for twice the slots. If more branches than slots began during the last answer, it is twice that
    number plus one for each idle slot.
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
    is_first = not state.dry and _has_no_idea(state)
    return {"evolving": True, "frozen": is_first, "off": False}[state.settings.world_model]


def _has_no_idea(state: SearchState) -> bool:
    return all(node.origin == "person" for node in state.nodes.values() if node.node_id != ROOT)


def _vary_for_free_slots(step: Step) -> None:
    while step.state.settings.world_model != "evolving" and step.state.plan is None and not step.state.frontier_ids:
        if len(step.state.branches) >= step.state.settings.branches or not may_ask_coder(step.state):
            return
        _vary(step, _most_promising(step.state))
        _fill_slots(step)


def _has_news(state: SearchState) -> bool:
    return any(not report.extra for report in state.reports)


def _revive(step: Step) -> None:
    while not step.state.branches and all(is_confirmation(job.request) for job in step.state.jobs.values()):
        if not step.state.frontier_ids:
            node = _best_unvaried(step.state)
            if node is None and step.state.misread:
                node = _most_promising(step.state)
            if node is None:
                stop(step, "exhausted", "nothing is open, and nothing is left to vary")
                return
            _vary(step, node)
        _fill_slots(step)
