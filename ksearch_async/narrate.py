"""Says in plain lines, as it happens, what a search does. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ksearch_async.chronicle import DUPLICATE, Best, BestScore, Chronicle, repeats_known
from messages.codec import Record
from messages.events import CandidateWritten, EditsProposed
from messages.facts import (
    AttemptFinished,
    EditsApplied,
    EditsRefused,
    Fact,
    InitialScored,
    LossNoted,
    NodeInserted,
    NodePruned,
    NodeUpdated,
    PlanAbandoned,
    RunStopping,
)
from messages.faults import fault_words
from messages.verdicts import score_text, worth_text

_TITLE_WIDTH = 44
_WIDE = 128
"""Columns from which on a line of an attempt has room for all of what it says."""
_BRIEF_WIDTH = 31
"""Of `12.85x [12.80, 12.96], 543.9 us`."""
STOP_WORDS = {
    "rounds": "its rounds are used up",
    "wall_clock": "its time is used up",
    "calls": "its model calls are used up",
    "tokens": "its tokens are used up",
    "target": "the target is reached",
    "exhausted": "neither the model nor the machine found anything more to try",
    "infrastructure": "the infrastructure failed",
    "interrupted": "interrupted",
}


class Narrator:
    """Tells a run while it goes on."""

    def __init__(self, chronicle: Chronicle, columns: Callable[[], int | None] = lambda: None) -> None:
        """Make a narrator.

        Args:
            chronicle: folds the run's records.
            columns: says how wide a line may be now; null: it is told whole.
        """
        self._chronicle = chronicle
        self._columns = columns

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield a line for each thing in it that is worth one."""
        if isinstance(record.body, CandidateWritten | EditsProposed) and record.body.faults:
            yield self.fitted(fault_line(record.body))
        for fact in self._chronicle.unfold(record):
            line = self.line(fact)
            if line:
                yield line

    def line(self, fact: Fact) -> str:
        """Return the line for a fact that was folded just now, or nothing if it is not worth one."""
        if isinstance(fact, AttemptFinished):
            return "" if self._is_known(fact) else self._attempt_line(fact, self._columns())
        said = self._said(fact)
        return self.fitted(said) if said else ""

    def fitted(self, said: str) -> str:
        """Return a line that stands under those of the attempts."""
        return fitted(f"  {' '.join(said.split())}", self._columns())

    def is_best(self, fact: AttemptFinished) -> bool:
        """Say whether an attempt, folded just now, is to become the incumbent."""
        incumbent = self._chronicle.state.incumbent
        return fact.credit is not None and (incumbent is None or fact.credit > incumbent.credit)

    def _is_known(self, fact: AttemptFinished) -> bool:
        """Say whether the attempt, folded just now, tells nothing: a known program or none, or none for one reason."""
        before = self._chronicle.state.branches[fact.branch_id].attempts[-2:-1]
        says_again = fact.fate == "unusable" and any(attempt.outcome == fact.outcome for attempt in before)
        return repeats_known(fact) or says_again or fact.fate == "declined"

    def _said(self, fact: Fact) -> str:
        match fact:
            case EditsApplied():
                return self._world_model(fact)
            case EditsRefused(refusals=refusals):
                return f"world model: edits refused and asked for again ({refusals[0].reason})"
            case PlanAbandoned(reason=reason):
                return f"world model: no usable edits ({reason})"
            case InitialScored(outcome=outcome):
                return f"initial program: {outcome}"
            case LossNoted(job_id=job_id, error=error):
                return f"lost: {job_id}: {error}"
            case RunStopping(stopped_by="infrastructure"):
                return f"stopping: {STOP_WORDS['infrastructure']}"  # the line before says how
            case RunStopping(stopped_by=stopped_by, detail=detail):
                return f"stopping: {STOP_WORDS[stopped_by]}{f' ({detail})' if detail else ''}"
            case _:
                return ""

    def _attempt_line(self, fact: AttemptFinished, columns: int | None) -> str:
        state = self._chronicle.state
        title = " ".join(state.node(state.branches[fact.branch_id].node_id).title.split())
        total = state.settings.budget.max_rounds
        number = f"{fact.round or '-':>{len(str(total))}}/{total}"
        outcome = " ".join(fact.outcome.split())
        standing = f"({self._standing(fact)})"
        if columns is None or columns >= _WIDE:
            room = max(_TITLE_WIDTH, 0 if columns is None else columns - _WIDE + _TITLE_WIDTH)
            whole = title if columns is None else shortened(title, room)
            return fitted(f"{number}  {whole:<{_TITLE_WIDTH}}  {outcome}  {standing}", columns)
        room = max(8, min(_TITLE_WIDTH, columns - len(number) - _BRIEF_WIDTH - 18))
        left = columns - len(number) - room - len(standing) - 6
        told = shortened(self._brief(fact) or outcome, max(8, left))
        return fitted(f"{number}  {shortened(title, room):<{room}}  {told}  {standing}", columns)

    def _brief(self, fact: AttemptFinished) -> str:
        """Return speedup, interval and latency of a timed candidate in few words, or nothing."""
        verdict = self._chronicle.measured(fact.candidate_id)
        if verdict is None or verdict.speedup_interval is None or verdict.latency_us is None:
            return ""
        interval = verdict.speedup_interval
        return f"{fact.speedup:.2f}x [{interval.low:.2f}, {interval.high:.2f}], {verdict.latency_us:.1f} us"

    def _standing(self, fact: AttemptFinished) -> str:
        if self.is_best(fact):
            return "new best"
        incumbent = self._chronicle.state.incumbent
        return f"best {worth_text(incumbent.credit, incumbent.speedup)}" if incumbent else "no best yet"

    def _world_model(self, fact: EditsApplied) -> str:
        kinds = [(NodeInserted, "new"), (NodeUpdated, "revised"), (NodePruned, "pruned")]
        counts = [(sum(isinstance(change, kind) for change in fact.changes), word) for kind, word in kinds]
        said = [f"{count} {word}" for count, word in counts if count]
        if fact.refusals:
            said.append(f"{len(fact.refusals)} refused")
        waiting = sum(node.state == "open" for node in self._chronicle.state.nodes.values())
        is_at_a_loss = fact.summary and not said and not waiting
        why = f" ({' '.join(fact.summary.split())})" if is_at_a_loss else ""
        return f"world model: {', '.join(said) or 'no changes'}; {waiting} open{why}"


def fitted(line: str, columns: int | None) -> str:
    """Return the line, its end left out where it is longer than the columns there are; leading blanks stay."""
    return line if columns is None or len(line) <= columns else line[: columns - 1].rstrip() + "…"


def shortened(text: str, width: int) -> str:
    """Return the text on one line, at most `width` characters long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def fault_line(answered: CandidateWritten | EditsProposed) -> str:
    """Say which tries failed before an answer came."""
    job = answered.job_id.rpartition("-")[2]
    return f"endpoint: {job} answered after failed tries: {fault_words(answered.faults)}"


def faults_line(chronicle: Chronicle) -> str:
    """Return the counts of failed tries, most frequent first; empty without any."""
    return ", ".join(f"{count} {words}" for words, count in chronicle.faults.most_common())


def fates_line(chronicle: Chronicle) -> str:
    """Return the counts by fate, most frequent first: `31 measured, 2 wrong, …`."""
    counted = [(count, fate) for fate, count in chronicle.fates.items() if fate != DUPLICATE]
    said = [f"{count} {fate}" for count, fate in sorted(counted, key=lambda pair: (-pair[0], pair[1]))]
    if chronicle.fates[DUPLICATE]:
        said.append(f"{chronicle.fates[DUPLICATE]} repeated (not evaluated again)")
    return ", ".join(said) or "none"


def best_lines(best: Best | BestScore | None) -> list[str]:
    """Say what the best candidate is worth, where it lies and how it was found."""
    if best is None:
        return ["best       none: no candidate was correct and timed, or got a score"]
    if isinstance(best, BestScore):
        return [f"best       {_score_words(best)}", *_origin_lines(best)]
    low, high = best.speedup_interval
    against = f", the reference {best.reference_latency_us:.1f} us" if best.reference_latency_us is not None else ""
    standing = "" if best.faster else ": not faster than the reference"
    return [
        f"best       {best.speedup_vs_reference:.2f}x the reference [{low:.2f}, {high:.2f}] (95 % interval){standing}",
        f"latency    {best.latency_us:.1f} us{against}; {best.device}",
        *_origin_lines(best),
    ]


def result_lines(chronicle: Chronicle, best: str, candidates: str) -> list[str]:
    """Say what the best candidate is worth and where it lies, or what was found instead.

    Args:
        chronicle: the run's.
        best: the folder of the best candidate, as it is shown.
        candidates: the folder of all candidates, as it is shown.
    """
    found, untimed = chronicle.best(best), _untimed_lines(chronicle, candidates)
    if found is None and untimed:
        return ["best       none: nothing was timed", *untimed]
    return [*best_lines(found), *untimed]


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


def state_line(chronicle: Chronicle, *, in_use: bool, with_failure: bool = True) -> str:
    """Say whether the run goes on, and what ended it.

    Args:
        chronicle: the run's.
        in_use: whether a process leads it now.
        with_failure: say what failed where the infrastructure did.
    """
    finished = chronicle.finished
    if finished is None:
        return "going on" if in_use else "stopped before its end (killed, or stopped at once)"
    told = with_failure or finished.stopped_by != "infrastructure"
    detail = f" ({finished.detail})" if finished.detail and told else ""
    return f"ended: {STOP_WORDS[finished.stopped_by]}{detail}"


def standing(chronicle: Chronicle, *, in_use: bool) -> str:
    """Say in a word how a run stands: `running`, `stopped` (killed), `ended`, or `interrupted` and `failed`."""
    finished = chronicle.finished
    if finished is None:
        return "running" if in_use else "stopped"
    return {"interrupted": "interrupted", "infrastructure": "failed"}.get(finished.stopped_by, "ended")


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its word: `1 branch`, `4 branches`."""
    return f"{count:,} {one if count == 1 else many}"


def rough_duration(seconds: float) -> str:
    """Return seconds in one unit: `48 s`, `3 min`, `5 h`, `12 d`."""
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def duration(seconds: float) -> str:
    """Return seconds for people: `48.2 s`, `3 min 12 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"
