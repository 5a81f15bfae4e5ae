"""Says in plain lines, as it happens, what a search does. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from actors.planner.core.decide import NO_ANSWER
from actors.planner.core.state import Incumbent, Provisional
from ksearch_async.chronicle import Chronicle, repeats_known
from ksearch_async.phrases import fitted, padded, shortened
from ksearch_async.steering_words import steering_words
from ksearch_async.summary import STOP_WORDS
from messages.codec import Record
from messages.events import CandidateWritten, EditsProposed, JobsUnserved
from messages.facts import (
    AttemptFinished,
    ConfirmationFinished,
    EditsApplied,
    EditsRefused,
    Fact,
    InitialScored,
    LossNoted,
    NodeInserted,
    NodePruned,
    NodeUpdated,
    PlanAbandoned,
    RunContinued,
    RunPaused,
    RunStopping,
)
from messages.faults import fault_words
from messages.verdicts import GOOD_FATES, worth_text

_TITLE_WIDTH = 44
_WIDE = 128
"""Columns from which on a line of an attempt has room for all of what it says."""
_NARROW = 56
"""Columns below which it has none for its title."""
_BRIEF_WIDTH = 31
"""Of `12.85x [12.80, 12.96], 543.9 us`."""


class Narrator:
    """Tells a run while it goes on."""

    def __init__(
        self,
        chronicle: Chronicle,
        columns: Callable[[], int | None] = lambda: None,
        *,
        open_count: Callable[[], int] | None = None,
    ) -> None:
        """Make a narrator.

        Args:
            chronicle: folds the run's records.
            columns: says how wide a line may be now; null: it is told whole.
            open_count: says how many nodes are open now, for who knows it; null: they are counted.
        """
        self._chronicle = chronicle
        self._columns = columns
        self._open_count = open_count or self._counted_open

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield a line for each thing in it that is worth one."""
        if isinstance(record.body, CandidateWritten | EditsProposed) and record.body.faults:
            yield self.fitted(fault_line(record.body))
        elif isinstance(record.body, JobsUnserved):
            yield from self.unserved_lines(record.body)
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

    def unserved_lines(self, unserved: JobsUnserved) -> Iterator[str]:
        """Say which jobs nobody does, and what to start: in one line, or in as many as let a terminal show it all."""
        said = f"waiting for {_article(unserved.role)} {unserved.role}: {unserved.detail}"
        columns = self._columns()
        if columns is None or len(said) + 2 <= columns:
            yield f"  {said}"
            return
        first, *more = said.split("; ")
        yield self.fitted(first)
        yield from (fitted(f"    {part}", columns) for part in more)

    def is_best(self, fact: AttemptFinished) -> bool:
        """Say whether an attempt, folded just now, is to become the incumbent, or to be confirmed first."""
        if fact.credit is None or fact.fate not in GOOD_FATES:
            return False
        top = self._chronicle.top
        return top is None or fact.credit > top.credit

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
                if refusals[0].reason == NO_ANSWER:  # why is told in the line before
                    return "world model: no edits came; asked for again"
                return f"world model: edits refused and asked for again ({refusals[0].reason})"
            case PlanAbandoned(reason=reason):
                return f"world model: no usable edits ({reason})"
            case InitialScored(outcome=outcome):
                return f"initial program: {outcome}"
            case ConfirmationFinished():
                return self._confirmation(fact)
            case LossNoted(job_id=job_id, error=error):
                return f"lost: {job_id}: {error}"
            case _:
                return _course_words(fact) or _steered(steering_words(fact, self._chronicle.state))

    def _attempt_line(self, fact: AttemptFinished, columns: int | None) -> str:
        state = self._chronicle.state
        title = " ".join(state.node(state.branches[fact.branch_id].node_id).title.split())
        total = state.settings.budget.max_rounds
        number = f"{fact.round or '-':>{len(str(total))}}/{total}"
        outcome = " ".join(fact.outcome.split())
        lowers = self.is_best(fact) and _is_lower(fact.speedup, self._chronicle.top)
        standing = f"({self._standing(fact, brief=columns is not None)})"
        by = self._by(fact)
        if columns is None or (columns >= _WIDE and not lowers):
            room = max(_TITLE_WIDTH, 0 if columns is None else columns - _WIDE + _TITLE_WIDTH)
            whole = title if columns is None else shortened(title, room)
            return fitted(f"{number}  {padded(whole, _TITLE_WIDTH)}  {outcome}  {standing}{by}", columns)
        brief = self._brief(fact)
        short = brief.rpartition(",")[0]  # without its latency
        if columns < _NARROW:
            return fitted(f"{number}  {short or outcome}  {standing}", columns)
        room = max(8, min(_TITLE_WIDTH, columns - len(number) - _BRIEF_WIDTH - 18))
        left = columns - len(number) - room - len(standing) - 6
        told = (brief if len(brief) <= left else short) or shortened(outcome, max(8, left))
        room = min(room, max(8, room + left - len(short)))
        return fitted(f"{number}  {padded(shortened(title, room), room)}  {told}  {standing}", columns)

    def _by(self, fact: AttemptFinished) -> str:
        """Name who judged it, where several do."""
        worker = self._chronicle.worker_of(fact.candidate_id) if fact.round else ""
        return f"  {worker}" if worker and len(self._chronicle.workers.get("evaluator", ())) > 1 else ""

    def _brief(self, fact: AttemptFinished) -> str:
        """Return speedup, interval and latency of a timed candidate in few words, or nothing."""
        verdict = self._chronicle.measured(fact.candidate_id)
        if verdict is None or verdict.speedup_interval is None or verdict.latency_us is None:
            return ""
        interval = verdict.speedup_interval
        return f"{fact.speedup:.2f}x [{interval.low:.2f}, {interval.high:.2f}], {verdict.latency_us:.1f} us"

    def _standing(self, fact: AttemptFinished, *, brief: bool) -> str:
        top = self._chronicle.top
        if fact.measured_again:
            return "measured again"
        if self.is_best(fact):
            is_provisional = fact.speedup is not None and self._chronicle.state.settings.confirm
            if reason := _reason(fact, top, brief=brief):
                return f"new best: {reason}{'; to be confirmed' if is_provisional and not brief else ''}"
            return "new best, to be confirmed" if is_provisional else "new best"
        if top is None:
            return "no best yet"
        owed = ", to be confirmed" if isinstance(top, Provisional) else ""
        return f"best {worth_text(top.credit, top.speedup)}{owed}"

    def _confirmation(self, fact: ConfirmationFinished) -> str:
        """Say what came of measuring a candidate again; whether it is the new best is in the next fact."""
        told = fact.outcome.removeprefix("measured: ")
        screened = f"screening said {fact.screen_speedup:.2f}x"
        if fact.fate != "measured":
            return f"round {fact.round} not confirmed: {told} ({screened})"
        incumbent = self._chronicle.state.incumbent
        if incumbent is not None and (fact.credit or 0.0) <= incumbent.credit:
            standing = f"best {worth_text(incumbent.credit, incumbent.speedup)}"
            return f"round {fact.round} confirmed: {told} ({screened}; {standing})"
        reason = _reason(fact, incumbent, brief=False)
        whole = f"round {fact.round} confirmed: {told} ({screened}; the best{f': {reason}' if reason else ''})"
        columns = self._columns()
        if not reason or columns is None or len(whole) + 2 <= columns:
            return whole
        return f"round {fact.round} confirmed: {fact.speedup:.2f}x (the best: {_reason(fact, incumbent, brief=True)})"

    def _world_model(self, fact: EditsApplied) -> str:
        kinds = [(NodeInserted, "new"), (NodeUpdated, "revised"), (NodePruned, "pruned")]
        counts = [(sum(isinstance(change, kind) for change in fact.changes), word) for kind, word in kinds]
        said = [f"{count} {word}" for count, word in counts if count]
        if fact.refusals:
            said.append(f"{len(fact.refusals)} refused")
        waiting = self._open_count()
        is_at_a_loss = fact.summary and not said and not waiting
        why = f" ({' '.join(fact.summary.split())})" if is_at_a_loss else ""
        return f"world model: {', '.join(said) or 'no changes'}; {waiting} open{why}"

    def _counted_open(self) -> int:
        return [node.state for node in self._chronicle.state.nodes.values()].count("open")


def _is_lower(speedup: float | None, before: Incumbent | Provisional | None) -> bool:
    """Say whether a speedup is below that of what was the best before."""
    return speedup is not None and before is not None and before.speedup is not None and speedup < before.speedup


def _reason(
    fact: AttemptFinished | ConfirmationFinished, before: Incumbent | Provisional | None, *, brief: bool
) -> str:
    """Say why what has a smaller speedup is the best: by the lower ends of both intervals; else nothing."""
    if fact.credit is None or before is None or not _is_lower(fact.speedup, before):
        return ""
    digits = 2 if f"{fact.credit:.2f}" != f"{before.credit:.2f}" else 4
    own, other = f"{fact.credit:.{digits}f}x", f"{before.credit:.{digits}f}x"
    return f"at least {own}, before {other}" if brief else f"at least {own}, the one before at least {other}"


def _course_words(fact: Fact) -> str:
    """Say that a run rests, goes on or is to end; nothing for any other fact."""
    match fact:
        case RunPaused(reason=reason):
            return f"paused: what is in flight is finished, nothing new begins{f' ({reason})' if reason else ''}"
        case RunContinued():
            return "goes on after a pause"
        case RunStopping(stopped_by="infrastructure"):
            return f"stopping: {STOP_WORDS['infrastructure']}"  # the line before says how
        case RunStopping(stopped_by=stopped_by, detail=detail):
            return f"stopping: {STOP_WORDS[stopped_by]}{f' ({detail})' if detail else ''}"
        case _:
            return ""


def _steered(words: str) -> str:
    return f"a person: {words}" if words else ""


def fault_line(answered: CandidateWritten | EditsProposed) -> str:
    """Say which tries failed before an answer came."""
    job = answered.job_id.rpartition("-")[2]
    return f"endpoint: {job} answered after failed tries: {fault_words(answered.faults)}"


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
