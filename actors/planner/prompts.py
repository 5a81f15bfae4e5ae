"""What the planner's model is asked. Pure text.

Parts from what changes least to what changes most: the rules and the whole task text first, the same in every call, so
that endpoints that cache prefixes read them once; then the tree as it once was and all that was told since, which the
next prompt repeats and adds to; then how the search stands and what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from actors.llm.base import Request
from actors.planner.core.state import SearchState
from actors.planner.core.telling import as_told
from actors.planner.digest import node_line, snapshot_digest
from actors.planner.instructions import instruction_lines, told
from actors.planner.reports import Telling, childless_section, report_section
from actors.planner.rules import SYSTEM
from actors.planner.standing import (
    budget_section,
    calibration_section,
    frontier_section,
    picture_section,
    profile_section,
    refused_section,
)
from evaluators.hardware.roofline import roofline, roofline_lines
from evaluators.hardware.table import describe_hardware
from messages.facts import PlanRequested
from messages.profiles import WorkloadProfile
from messages.tasks import Candidate, TaskDescription

DIGEST_TOKENS = 24_000
MIN_FIRST_ACTIONS = 3


def _no_program(_candidate_id: str) -> None:
    return None


def _no_profile(_candidate_id: str) -> tuple[WorkloadProfile, ...]:
    return ()


def plan_request(
    state: SearchState,
    request: PlanRequested,
    description: TaskDescription,
    *,
    programs: Callable[[str], Candidate | None] = _no_program,
    profiles: Callable[[str], tuple[WorkloadProfile, ...]] = _no_profile,
    digest_tokens: int = DIGEST_TOKENS,
) -> Request:
    """Return the question that a call for edits asks.

    Args:
        state: the search at the time of asking.
        request: which branches to tell of, what is wanted, why the previous answer was refused.
        description: the task as models are told it.
        programs: the run's programs by their ids; without them it is not told what changed in them.
        profiles: what the GPU does in a call of each; without them it is not told what that is of the best.
        digest_tokens: about how long the tree's part may be.
    """
    sections = (
        _task(state, description),
        _instructions(state),
        *_told(state, request, description, programs, digest_tokens),
        picture_section(state),
        calibration_section(state),
        profile_section(state, profiles),
        frontier_section(state) if request.purpose == "revise" else "",
        childless_section(state, request.childless),
        refused_section(request.refusals),
        budget_section(state),
        _analysis(request) if request.purpose == "analyse" else _revision(state, request),
    )
    return Request(
        request_id=request.job_id,
        role="planner",
        system=SYSTEM,
        parts=tuple(section for section in sections if section),
    )


def _told(
    state: SearchState,
    request: PlanRequested,
    description: TaskDescription,
    programs: Callable[[str], Candidate | None],
    digest_tokens: int,
) -> Iterator[str]:
    """Yield the tree as it was last written whole, and what was added since: the same as before, and what is new."""
    snapshot, calls = as_told(state, request)
    tree = snapshot_digest(snapshot, budget_bytes=int(digest_tokens * snapshot.bytes_per_token))
    yield f"# The tree\n\nAs it was after {snapshot.round} rounds.\n\n{tree}"
    target = state.target
    bound = roofline(description, target) if target is not None and not description.workloads else None
    for one in calls:
        if one.nodes:
            lines = "\n".join(node_line(node) for node in one.nodes)
            yield f"# What changed in the tree, by round {one.round}\n\n{lines}"
        telling = Telling(scored=state.scored, incumbent=one.incumbent, programs=programs, roofline=bound)
        for report, node in zip(one.reports, one.subjects, strict=True):
            yield report_section(telling, report, node)


def _task(state: SearchState, description: TaskDescription) -> str:
    moved = (
        f"At least {description.bytes_needed or description.bytes_moved} bytes must be read or written in every call."
    )
    if 0 < description.bytes_needed < description.bytes_moved:
        moved += f" (The tensors have {description.bytes_moved}; the outputs do not depend on the rest.)"
    return "\n\n".join(
        part
        for part in (description.prompt, _hardware(state, description), moved if description.bytes_moved else "")
        if part
    )


def _hardware(state: SearchState, description: TaskDescription) -> str:
    """Tell what the device is, and how long the task must take there."""
    if state.target is None:
        return ""
    lines = (describe_hardware(state.target), *roofline_lines(description, state.target))
    return "# Hardware\n\n" + "\n".join(lines)


def _instructions(state: SearchState) -> str:
    lines = instruction_lines([f"{said.number}. {said.text}" for said in told(state, "planner")])
    return f"# What the people who run this search want minded\n\n{lines}" if lines else ""


def _analysis(request: PlanRequested) -> str:
    wanted = max(request.wanted, MIN_FIRST_ACTIONS)
    return (
        "# What is wanted\n\n"
        "This is the first look at the task. Work out, for each workload, what limits the reference on this hardware "
        "(memory traffic, arithmetic, latency, launch or threading overhead), how far it is from the roofline, what a "
        "fused program must touch at least, and which numerical care it needs. Put that into `summary`, and what "
        "measurements should settle into `open_questions` (3 to 8). "
        f"Then insert at least {MIN_FIRST_ACTIONS} and at most {wanted} actions under n0, different in kind, with "
        "honest V, difficulty and expected gain. Each is something that can be carried out at once, no heading for a "
        "family of actions."
    )


def _revision(state: SearchState, request: PlanRequested) -> str:
    limit = max(request.wanted, state.settings.max_new_nodes)
    asked = [
        "Revise the tree in the light of what happened: raise or lower V of related actions, correct what you expect "
        "of them, rewrite what is vague, prune what is refuted."
    ]
    if request.wanted:
        asked.append(f" Insert {request.wanted} new actions (at most {limit}), above all below the best closed nodes.")
    else:
        asked.append(f" Insert new actions only where you learnt something (at most {limit}).")
    asked.append(" If nothing is left to try, answer with an empty `edits`.")
    return "# What is wanted\n\n" + "".join(asked)
