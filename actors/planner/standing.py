"""How the search stands at a call: what changes every time, and so comes last in a prompt. Pure text, bounded."""

from __future__ import annotations

from collections.abc import Callable

from actors.planner.core.beliefs import Calibration, calibration
from actors.planner.core.selection import Terms, ranking
from actors.planner.core.state import Node, SearchState, active
from evaluators.hardware.profiles import describe_profile
from messages.edits import Refusal
from messages.profiles import WorkloadProfile
from messages.verdicts import worth_text

_FRONTIER_SHOWN = 40
_FEW = 3


def picture_section(state: SearchState) -> str:
    """Return what the planner's model itself has written down of the task."""
    if not state.summary and not state.open_questions:
        return ""
    questions = "\n".join(f"- {question}" for question in state.open_questions)
    asked = f"\n\nOpen questions:\n{questions}" if questions else ""
    return f"# Your picture so far\n\n{state.summary}{asked}"


def profile_section(state: SearchState, profiles: Callable[[str], tuple[WorkloadProfile, ...]]) -> str:
    """Say what takes the time of the best kernel so far, where a GPU has told it."""
    best = state.incumbent
    told = describe_profile(profiles(best.candidate_id)) if best is not None else ""
    return f"# What takes the time of the best so far ({best.node_id})\n\n{told}" if best is not None and told else ""


def calibration_section(state: SearchState) -> str:
    """Return how expectations compare with what was measured."""
    record = calibration(state)
    lines = [f"- {line}" for line in calibration_lines(record)]
    return "\n".join(["# Your expectations so far", "", *lines]) if lines else ""


def calibration_lines(record: Calibration) -> list[str]:
    """Say the record in a few lines; none before there is one."""
    lines = []
    if record.mean_ratio is not None:
        lines.append(
            f"{record.count} actions with an expected gain were measured; on average (geometric mean) the gain was "
            f"{record.mean_ratio:.2f} times what was expected; {record.reached} of {record.count} reached it"
        )
        if record.count >= _FEW and not 0.8 <= record.mean_ratio <= 1.25:
            more_or_less = "less" if record.mean_ratio < 1 else "more"
            lines.append(f"expect {more_or_less} from now on, or be more specific about why this time is different")
    if record.failed:
        lines.append(f"{record.failed} more, of which a gain was expected, have no correct candidate")
    return lines


def frontier_section(state: SearchState) -> str:
    """List what the machine would choose from now, in its order, with what each V counts for; and what is in flight."""
    ranked = ranking(state)
    lines = [_frontier_line(node, terms) for node, terms in ranked[:_FRONTIER_SHOWN]]
    if len(ranked) > _FRONTIER_SHOWN:
        lines.append(f"({len(ranked) - _FRONTIER_SHOWN} more)")
    at_work = list(dict.fromkeys(branch.node_id for branch in active(state)))
    flying = [f"In flight: {', '.join(at_work)}", ""] if at_work else []
    body = "\n".join(lines) if lines else "Nothing is open that could be tried now."
    return "\n".join(["# Open actions, in the order in which the machine would take them now", "", *flying, body])


def refused_section(refusals: tuple[Refusal, ...]) -> str:
    """Say why the previous answer was refused."""
    if not refusals:
        return ""
    lines = [
        f"- {'the whole' if refusal.index < 0 else f'edits[{refusal.index}]'}: {refusal.reason}" for refusal in refusals
    ]
    return (
        "# Your previous answer was refused; nothing of it was applied\n\n"
        + "\n".join(lines)
        + "\n\nWrite the whole answer anew without these mistakes."
    )


def budget_section(state: SearchState) -> str:
    """Say what is used of what may be spent, and what the best is so far."""
    budget = state.settings.budget
    lines = [f"- {state.rounds} of {budget.max_rounds} rounds are used"]
    if budget.wall_clock_s is not None:
        lines.append(f"- {state.elapsed_s:.0f} of {budget.wall_clock_s:.0f} s are over")
    if budget.max_calls is not None:
        lines.append(f"- {state.usage.calls} of {budget.max_calls} model calls are used")
    if budget.max_tokens is not None:
        lines.append(f"- {state.usage.tokens} of {budget.max_tokens} tokens are used")
    if budget.max_cost_usd is not None:
        lines.append(f"- ${state.cost_usd:.2f} of ${budget.max_cost_usd:.2f} are spent")
    if state.incumbent is not None:
        best = state.incumbent
        credit = f" (credit {best.credit:.2f})" if best.speedup is not None else ""
        lines.append(f"- best so far: {worth_text(best.credit, best.speedup)}{credit}, found at {best.node_id}")
    return "# Budget\n\n" + "\n".join(lines)


def _frontier_line(node: Node, terms: Terms) -> str:
    """Say a node's id and score, and where V counts for less or for more than it says."""
    reasons = [f"V {node.priority:.2f} counts {terms.belief:.2f}, {node.failures} failed"] if node.failures else []
    if node.boost:
        reasons.append(f"people added {node.boost:+.2f}")
    if node.pinned:
        reasons.append("people want it next")
    said = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{node.node_id} {terms.total:.2f}{said}"
