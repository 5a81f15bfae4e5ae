"""Says in plain lines how a run stands and what it amounts to. Pure: a chronicle in, lines out."""

from __future__ import annotations

from collections import Counter

from actors.planner.core.beliefs import calibration
from actors.planner.core.state import SearchState
from ksearch_async.chronicle import DUPLICATE, Best, BestScore, Chronicle
from ksearch_async.phrases import counted, dollars
from ksearch_async.workload_table import workload_table
from messages.verdicts import score_text

STOP_WORDS = {
    "rounds": "its rounds are used up",
    "wall_clock": "its time is used up",
    "calls": "its model calls are used up",
    "cost": "its money is spent",
    "tokens": "its tokens are used up",
    "target": "the target is reached",
    "exhausted": "neither the model nor the machine found anything more to try",
    "infrastructure": "the infrastructure failed",
    "interrupted": "interrupted",
}


def state_line(chronicle: Chronicle, *, in_use: bool, with_failure: bool = True) -> str:
    """Say whether the run goes on, and what ended it.

    Args:
        chronicle: the run's.
        in_use: whether a process leads it now.
        with_failure: say what failed where the infrastructure did.
    """
    finished = chronicle.finished
    if finished is None and in_use:
        return "paused" if chronicle.resting else "going on"
    if finished is None:
        return "stopped before its end (killed, or stopped at once)"
    told = with_failure or finished.stopped_by != "infrastructure"
    detail = f" ({finished.detail})" if finished.detail and told else ""
    return f"ended: {STOP_WORDS[finished.stopped_by]}{detail}"


def standing(chronicle: Chronicle, *, in_use: bool) -> str:
    """Say in a word how a run stands: `running`, `paused`, `stopped` (killed), `ended`, `interrupted`, `failed`."""
    finished = chronicle.finished
    if finished is None and in_use:
        return "paused" if chronicle.resting else "running"
    if finished is None:
        return "stopped"
    return {"interrupted": "interrupted", "infrastructure": "failed"}.get(finished.stopped_by, "ended")


def way_on(chronicle: Chronicle, *, in_use: bool, run: str) -> str:
    """Return the command with which a run goes on that rests or was cut off; empty for any other.

    Args:
        chronicle: the run's.
        in_use: whether a process leads it now.
        run: how it is named.
    """
    match standing(chronicle, in_use=in_use):
        case "paused":
            return f"ksearch continue {run}"
        case "stopped" | "interrupted" | "failed":
            return f"ksearch resume {run}"
        case _:
            return ""


def fates_line(chronicle: Chronicle) -> str:
    """Return the counts by fate, most frequent first: `31 measured, 2 wrong, …`."""
    counted = [(count, fate) for fate, count in chronicle.fates.items() if fate != DUPLICATE]
    said = [f"{count} {fate}" for count, fate in sorted(counted, key=lambda pair: (-pair[0], pair[1]))]
    if chronicle.fates[DUPLICATE]:
        said.append(f"{chronicle.fates[DUPLICATE]} repeated (not evaluated again)")
    return ", ".join(said) or "none"


def faults_line(chronicle: Chronicle) -> str:
    """Return the counts of failed tries, most frequent first; empty without any."""
    return ", ".join(f"{count} {words}" for words, count in chronicle.faults.most_common())


def usage_line(chronicle: Chronicle) -> str:
    """Return what models were asked and cost: `46 calls, 135,817 tokens, $0.83 of $5.00`."""
    usage, spent = chronicle.state.usage, spend_words(chronicle)
    return f"{counted(usage.calls, 'call', 'calls')}, {usage.tokens:,} tokens{f', {spent}' if spent else ''}"


def spend_words(chronicle: Chronicle) -> str:
    """Say what the answers cost, and how many have no price; nothing where money is not counted."""
    state, unpriced = chronicle.state, chronicle.unpriced_calls
    limit = state.settings.budget.max_cost_usd
    if not state.cost_usd and limit is None:
        return ""
    of = f" of ${limit:,.2f}" if limit is not None else ""
    return f"{dollars(state.cost_usd)}{of}{f' + {unpriced} unpriced' if unpriced else ''}"


def workers_line(chronicle: Chronicle) -> str:
    """Return how many processes gave results (`2 coders, 1 builder, 3 evaluators`); empty in a run of one process."""
    counts = [(role, len(chronicle.workers.get(role, ()))) for role in ("coder", "builder", "evaluator")]
    return ", ".join(counted(count, role, f"{role}s") for role, count in counts if count)


def expectations_line(state: SearchState) -> str:
    """Say how the gains that the planner's model expected compare with what was measured; empty without any."""
    record = calibration(state)
    if record.mean_ratio is None:
        return ""
    return (
        f"{record.reached} of {record.count} actions gained what the model had expected of them; "
        f"measured / expected {record.mean_ratio:.2f} on average (geometric mean)"
    )


def confirmations_line(chronicle: Chronicle) -> str:
    """Say how many candidates were measured again, and how far that moved them; empty if none was."""
    done = chronicle.confirmations
    if not done:
        return ""
    held = [fact.credit / fact.screen_credit - 1 for fact in done if fact.fate == "measured" and fact.credit]
    failed = Counter(fact.fate for fact in done if fact.fate != "measured")
    said = [f"{len(held)} of {counted(len(done), 'candidate', 'candidates')}"]
    if held:
        moved = 100 * sum(held) / len(held)
        said.append(f"credit on average {abs(moved):.1f} % {'below' if moved < 0 else 'above'} its screening's")
    said += [f"{count} {fate.replace('_', ' ')}" for fate, count in failed.most_common()]
    state = chronicle.state
    if state.confirm_s:
        said.append(f"{100 * state.confirm_s / (state.screen_s + state.confirm_s):.0f} % of the time for timing")
    return ", ".join(said)


def result_lines(chronicle: Chronicle, best: str, candidates: str) -> list[str]:
    """Say what the best candidate is worth and where it lies, or what was found instead.

    Args:
        chronicle: the run's.
        best: the folder of the best candidate, as it is shown.
        candidates: the folder of all candidates, as it is shown.
    """
    found, untimed = chronicle.best(best), _untimed_lines(chronicle, candidates)
    waiting = _provisional_lines(chronicle)
    if found is None and waiting:
        return ["best       none yet: nothing that was timed has been confirmed", *waiting, *untimed]
    if found is None and chronicle.fates["measured"] and not untimed:
        return ["best       none: what was timed was not confirmed, or its time could not be told again"]
    if found is None and untimed:
        return ["best       none: nothing was timed", *untimed]
    return [*best_lines(found), *waiting, *untimed]


def best_lines(best: Best | BestScore | None) -> list[str]:
    """Say what the best candidate is worth, where it lies and how it was found."""
    if best is None:
        return ["best       none: no candidate was correct and timed, or got a score"]
    if isinstance(best, BestScore):
        return [f"best       {_score_words(best)}", *_origin_lines(best)]
    low, high = best.speedup_interval
    against = f", the reference {best.reference_latency_us:.1f} us" if best.reference_latency_us is not None else ""
    standing = "" if best.faster else ": not faster than the reference"
    confirmed = "" if best.screen_speedup is None else f", confirmed (screening said {best.screen_speedup:.2f}x)"
    interval = f"[{low:.2f}, {high:.2f}] (95 % interval; its lower end counts)"
    return [
        f"best       {best.speedup_vs_reference:.2f}x the reference {interval}{confirmed}{standing}",
        f"latency    {best.latency_us:.1f} us{against}{best.roofline_words}; {best.device}",
        *workload_table(best.workloads),
        *_origin_lines(best),
    ]


def _provisional_lines(chronicle: Chronicle) -> list[str]:
    """Say that candidates may be better than the best, and have been measured only once; nothing without any."""
    top = chronicle.waiting
    if top is None:
        return []
    count = counted(len(chronicle.state.provisional), "candidate is", "candidates are")
    said = f"{count} provisional: measured once, up to {top.speedup:.2f}x (round {top.round}), not confirmed"
    return [f"waiting    {said}"]


def _untimed_lines(chronicle: Chronicle, candidates: str) -> list[str]:
    """Say how many candidates are correct and were not timed, why, and where the latest lies; nothing without any."""
    untimed = chronicle.untimed()
    if not untimed:
        return []
    verdict = chronicle.measured(untimed[-1])
    why_not = next((note for note in verdict.notes if note.startswith("not timed")), "") if verdict else ""
    count = "1 candidate is" if len(untimed) == 1 else f"{len(untimed)} candidates are"
    return [f"correct    {count} correct, {why_not or 'not timed'}", f"latest     {candidates}/{untimed[-1]}"]


def _score_words(best: BestScore) -> str:
    if best.initial_score is None:
        return f"score {score_text(best.score)}; the initial program's is not known"
    standing = "" if best.faster else ": not better than it"
    return f"score {score_text(best.score)}, the initial program {score_text(best.initial_score)}{standing}"


def _origin_lines(best: Best | BestScore) -> list[str]:
    return [f"found      in round {best.round}: {' > '.join(best.found_by)}", f"lies in    {best.path}"]
