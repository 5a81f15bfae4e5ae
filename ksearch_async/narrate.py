"""Says in plain lines, as it happens, what a search does. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Iterator

from ksearch_async.chronicle import DUPLICATE, Best, Chronicle, repeats_known
from messages.codec import Record
from messages.facts import (
    AttemptFinished,
    EditsApplied,
    EditsRefused,
    Fact,
    LossNoted,
    NodeInserted,
    NodePruned,
    NodeUpdated,
    PlanAbandoned,
    RunStopping,
)

_TITLE_WIDTH = 44
_REASON_WIDTH = 160
STOP_WORDS = {
    "rounds": "its rounds are used up",
    "wall_clock": "its time is used up",
    "calls": "its model calls are used up",
    "tokens": "its tokens are used up",
    "target": "the target speedup is reached",
    "exhausted": "neither the model nor the machine found anything more to try",
    "infrastructure": "the infrastructure failed",
    "interrupted": "interrupted",
}


class Narrator:
    """Tells a run while it goes on."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield a line for each thing in it that is worth one."""
        for fact in self._chronicle.unfold(record):
            line = self._line(fact)
            if line:
                yield line

    def _line(self, fact: Fact) -> str:
        match fact:
            case AttemptFinished():
                return self._attempt_line(fact)
            case EditsApplied():
                return self._world_model_line(fact)
            case EditsRefused(refusals=refusals):
                return f"  world model: edits refused and asked for again ({refusals[0].reason})"
            case PlanAbandoned(reason=reason):
                return f"  world model: no usable edits ({reason})"
            case LossNoted(job_id=job_id, error=error):
                return f"  lost: {job_id}: {error}"
            case RunStopping(stopped_by=stopped_by, detail=detail):
                return f"  stopping: {STOP_WORDS[stopped_by]}{f' ({detail})' if detail else ''}"
            case _:
                return ""

    def _attempt_line(self, fact: AttemptFinished) -> str:
        if repeats_known(fact):
            return ""
        state = self._chronicle.state
        title = shortened(state.node(state.branches[fact.branch_id].node_id).title, _TITLE_WIDTH)
        total = state.settings.budget.max_rounds
        number = f"{fact.round or '-':>{len(str(total))}}/{total}"
        return f"{number}  {title:<{_TITLE_WIDTH}}  {shortened(fact.outcome, 100)}  ({self._standing(fact)})"

    def _standing(self, fact: AttemptFinished) -> str:
        incumbent = self._chronicle.state.incumbent
        if fact.credit is not None and (incumbent is None or fact.credit > incumbent.credit):
            return "new best"
        return f"best {incumbent.speedup:.2f}x" if incumbent else "no best yet"

    def _world_model_line(self, fact: EditsApplied) -> str:
        kinds = [(NodeInserted, "new"), (NodeUpdated, "revised"), (NodePruned, "pruned")]
        counts = [(sum(isinstance(change, kind) for change in fact.changes), word) for kind, word in kinds]
        said = [f"{count} {word}" for count, word in counts if count]
        if fact.refusals:
            said.append(f"{len(fact.refusals)} refused")
        waiting = sum(node.state == "open" for node in self._chronicle.state.nodes.values())
        why = f" ({shortened(fact.summary, _REASON_WIDTH)})" if fact.summary and not said else ""
        return f"  world model: {', '.join(said) or 'no changes'}; {waiting} open{why}"


def shortened(text: str, width: int) -> str:
    """Return the text on one line, at most `width` characters long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def fates_line(chronicle: Chronicle) -> str:
    """Return the counts by fate, most frequent first: `31 measured, 2 wrong, …`."""
    counted = [(count, fate) for fate, count in chronicle.fates.items() if fate != DUPLICATE]
    said = [f"{count} {fate}" for count, fate in sorted(counted, key=lambda pair: (-pair[0], pair[1]))]
    if chronicle.fates[DUPLICATE]:
        said.append(f"{chronicle.fates[DUPLICATE]} repeated (not evaluated again)")
    return ", ".join(said) or "none"


def best_lines(best: Best | None) -> list[str]:
    """Say what the best kernel is worth, where it lies and how it was found."""
    if best is None:
        return ["best       none: no candidate was correct and timed"]
    low, high = best.speedup_interval
    against = f", the reference {best.reference_latency_us:.1f} us" if best.reference_latency_us is not None else ""
    standing = "" if best.faster else ": not faster than the reference"
    return [
        f"best       {best.speedup_vs_reference:.2f}x the reference [{low:.2f}, {high:.2f}] (95 % interval){standing}",
        f"latency    {best.latency_us:.1f} us{against}; {best.device}",
        f"found      in round {best.round}: {' > '.join(best.found_by)}",
        f"lies in    {best.path}",
    ]


def state_line(chronicle: Chronicle, *, in_use: bool) -> str:
    """Say whether the run goes on, and what ended it."""
    finished = chronicle.finished
    if finished is None:
        return "going on" if in_use else "stopped before its end (killed, or stopped at once)"
    detail = f" ({finished.detail})" if finished.detail else ""
    return f"ended: {STOP_WORDS[finished.stopped_by]}{detail}"


def duration(seconds: float) -> str:
    """Return seconds for people: `48.2 s`, `3 min 12 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"
