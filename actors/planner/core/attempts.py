"""What a branch does next: its attempts, the drafts of each, and its end."""

from __future__ import annotations

from actors.planner.core.beliefs import gain_of
from actors.planner.core.branch import Branch, Score, better
from actors.planner.core.budget import may_ask_coder, next_model
from actors.planner.core.patience import stagnation
from actors.planner.core.state import Node, SearchState, active
from actors.planner.core.step import Step
from messages.commands import WriteMode
from messages.facts import BranchClosed, WriteRequested


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
