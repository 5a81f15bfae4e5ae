"""A run in plain lines: events as they happen, status and result. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from actors.planner.core.decide import NO_ANSWER
from actors.planner.core.selection import calibration
from actors.planner.core.state import Incumbent, Provisional, SearchState
from ksearch_async.runs.run import DUPLICATE, Best, BestScore, Run, repeats_known
from ksearch_async.views.text import counted, dollars, fitted, padded, shortened, workload_table
from messages.base import fault_words
from messages.codec import Body, Record
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
from messages.steering import (
    Audience,
    InstructionForgotten,
    InstructionGiven,
    NodeBoosted,
    NodeForbidden,
    NodePinned,
    NodeReleased,
    SteeringRefused,
)
from messages.verdicts import GOOD_FATES, score_text, worth_text

AUDIENCES: dict[Audience, str] = {"both": "planner and coders", "planner": "the planner", "coder": "the coders"}


def steering_words(fact: Fact, state: SearchState) -> str:
    """Return the effect of a person's order as text; empty for any other fact."""
    match fact:
        case InstructionGiven(number=number, text=text, to=to):
            return f"instruction {number}, to {AUDIENCES[to]}: {text}"
        case InstructionForgotten(number=number):
            return f"instruction {number} is forgotten"
        case NodeInserted(node_id=node_id, parent_id=parent_id, origin="person", title=title):
            return f"{node_id} is your own kernel under {parent_id}: {title}"
        case SteeringRefused(reason=reason):
            return f"refused: {reason}"
        case _:
            return _node_words(fact, state)


def _node_words(fact: Fact, state: SearchState) -> str:
    match fact:
        case NodePinned(node_id=node_id):
            return f"{node_id} is pinned: {_when(state, node_id)}"
        case NodeBoosted(node_id=node_id, by=by):
            return f"{by:+.2f} on the score of {node_id}"
        case NodeForbidden(node_id=node_id, reason=reason):
            why = f" ({reason})" if reason else ""
            at_work = any(state.node(branch.node_id).barred for branch in state.branches.values())
            ends = "; what is in flight there ends after its attempt" if at_work else ""
            return f"{node_id} is forbidden, and all below it{ends}{why}"
        case NodeReleased(node_id=node_id):
            return f"{node_id} is released: it counts for its own score"
        case _:
            return ""


def _when(state: SearchState, node_id: str) -> str:
    node = state.node(node_id)
    if node.state == "in_flight":
        return "its branch has begun"
    if node_id in state.frontier_ids:
        return "it is chosen as soon as a branch is free"
    return f"it is chosen once {node.parent_id} has a correct candidate"


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


def state_line(chronicle: Run, *, in_use: bool, with_failure: bool = True) -> str:
    """Return whether the run is active, and the reason if it ended."""
    finished = chronicle.finished
    if finished is None and in_use:
        return "paused" if chronicle.resting else "going on"
    if finished is None:
        return "stopped before its end (killed, or stopped at once)"
    told = with_failure or finished.stopped_by != "infrastructure"
    detail = f" ({finished.detail})" if finished.detail and told else ""
    return f"ended: {STOP_WORDS[finished.stopped_by]}{detail}"


def standing(chronicle: Run, *, in_use: bool) -> str:
    """Return a run's state: `running`, `paused`, `stopped` (killed), `ended`, `interrupted`, `failed`."""
    finished = chronicle.finished
    if finished is None and in_use:
        return "paused" if chronicle.resting else "running"
    if finished is None:
        return "stopped"
    return {"interrupted": "interrupted", "infrastructure": "failed"}.get(finished.stopped_by, "ended")


def way_on(chronicle: Run, *, in_use: bool, run: str) -> str:
    """Return the command that continues a paused or interrupted run; empty for any other."""
    match standing(chronicle, in_use=in_use):
        case "paused":
            return f"ksearch continue {run}"
        case "stopped" | "interrupted" | "failed":
            return f"ksearch resume {run}"
        case _:
            return ""


_STATUS = {"outpaced": "stopped early"}
"""Words for people, where a verdict's tag is not clear."""


def fates_line(chronicle: Run) -> str:
    """Return the counts by status, most frequent first: `31 measured, 2 wrong, …`."""
    counted = [(count, fate) for fate, count in chronicle.fates.items() if fate != DUPLICATE]
    said = [
        f"{count} {_STATUS.get(fate, fate.replace('_', ' '))}"
        for count, fate in sorted(counted, key=lambda pair: (-pair[0], pair[1]))
    ]
    if chronicle.fates[DUPLICATE]:
        said.append(f"{chronicle.fates[DUPLICATE]} repeated (not evaluated again)")
    return ", ".join(said) or "none"


def faults_line(chronicle: Run) -> str:
    """Return the counts of failed tries, most frequent first; empty without any."""
    return ", ".join(f"{count} {words}" for words, count in chronicle.faults.most_common())


def usage_line(chronicle: Run) -> str:
    """Return the model calls and their cost: `46 calls, 135,817 tokens, $0.83 of $5.00`."""
    usage, spent = chronicle.state.usage, spend_words(chronicle)
    return f"{counted(usage.calls, 'call', 'calls')}, {usage.tokens:,} tokens{f', {spent}' if spent else ''}"


def spend_words(chronicle: Run) -> str:
    """Return the cost of the answers, and the number without a price; empty if money is not counted."""
    state, unpriced = chronicle.state, chronicle.unpriced_calls
    limit = state.settings.budget.max_cost_usd
    if not state.cost_usd and limit is None:
        return ""
    of = f" of ${limit:,.2f}" if limit is not None else ""
    return f"{dollars(state.cost_usd)}{of}{f' + {unpriced} unpriced' if unpriced else ''}"


def workers_line(chronicle: Run) -> str:
    """Return the processes that gave results: `2 coders, 1 builder, 3 evaluators`; empty in a run of one."""
    counts = [(role, len(chronicle.workers.get(role, ()))) for role in ("coder", "builder", "evaluator")]
    return ", ".join(counted(count, role, f"{role}s") for role, count in counts if count)


def expectations_line(state: SearchState) -> str:
    """Compare the gains that the planner's model expected with the measured ones; empty without any."""
    record = calibration(state)
    if record.mean_ratio is None:
        return ""
    return (
        f"{record.reached} of {record.count} actions gained what the model had expected of them; "
        f"measured / expected {record.mean_ratio:.2f} on average (geometric mean)"
    )


def confirmations_line(chronicle: Run) -> str:
    """Return the number of candidates measured again, and how much their speedups moved; empty if none was."""
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


def result_lines(chronicle: Run, best: str, candidates: str) -> list[str]:
    """Return the worth and path of the best candidate, or what was found instead."""
    found, untimed = chronicle.best(best), _untimed_lines(chronicle, candidates)
    waiting = _provisional_lines(chronicle)
    if found is None and waiting:
        return ["best       none yet: nothing that was timed has been confirmed", *waiting, *untimed]
    if found is None and chronicle.fates["measured"] and not untimed:
        return ["best       none: no timed candidate was confirmed"]
    if found is None and untimed:
        return ["best       none: nothing was timed", *untimed]
    return [*best_lines(found), *waiting, *untimed]


def best_lines(best: Best | BestScore | None) -> list[str]:
    """Return the worth, path and origin of the best candidate."""
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


def _provisional_lines(chronicle: Run) -> list[str]:
    top = chronicle.waiting
    if top is None:
        return []
    count = counted(len(chronicle.state.provisional), "candidate is", "candidates are")
    said = f"{count} provisional: measured once, up to {top.speedup:.2f}x (round {top.round}), not confirmed"
    return [f"waiting    {said}"]


def _untimed_lines(chronicle: Run, candidates: str) -> list[str]:
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


_TITLE_WIDTH = 44
_WIDE = 128
"""Terminal width, in columns, from which the line of an attempt shows everything."""
_NARROW = 56
"""Terminal width, in columns, below which it leaves out the title."""
_BRIEF_WIDTH = 31
"""Columns of `12.85x [12.80, 12.96], 543.9 us`."""


class Narrator:
    """Reports a run in lines while it is active."""

    def __init__(
        self,
        chronicle: Run,
        columns: Callable[[], int | None] = lambda: None,
        *,
        open_count: Callable[[], int] | None = None,
    ) -> None:
        """Make a narrator."""
        self._chronicle = chronicle
        self._columns = columns
        self._open_count = open_count or (lambda: [node.state for node in chronicle.state.nodes.values()].count("open"))

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield a line for each noteworthy thing in it."""
        yield from self.event_lines(record.body)
        yield from filter(None, map(self.line, self._chronicle.unfold(record)))

    def line(self, fact: Fact) -> str:
        """Return the line for a fact that was folded just now; empty if it is not noteworthy."""
        if isinstance(fact, AttemptFinished):
            return "" if self._is_known(fact) else self._attempt_line(fact, self._columns())
        said = self._said(fact)
        return self.fitted(said) if said else ""

    def fitted(self, said: str) -> str:
        """Return a line indented to the outcomes of attempts."""
        return fitted(f"  {' '.join(said.split())}", self._columns())

    def event_lines(self, event: Body) -> Iterator[str]:
        """Report the failed tries of a call, or jobs without a worker, which may take several lines."""
        if isinstance(event, CandidateWritten | EditsProposed) and event.faults:
            yield self.fitted(fault_line(event))
        elif isinstance(event, JobsUnserved):
            yield from self._unserved_lines(event)

    def _unserved_lines(self, unserved: JobsUnserved) -> Iterator[str]:
        article = "an" if unserved.role[0] in "aeiou" else "a"
        said = f"waiting for {article} {unserved.role}: {unserved.detail}"
        columns = self._columns()
        if columns is None or len(said) + 2 <= columns:
            yield f"  {said}"
            return
        first, *more = said.split("; ")
        yield self.fitted(first)
        yield from (fitted(f"    {part}", columns) for part in more)

    def is_best(self, fact: AttemptFinished) -> bool:
        """Return True if an attempt, folded just now, becomes the incumbent or is to be confirmed first."""
        if fact.credit is None or fact.fate not in GOOD_FATES:
            return False
        top = self._chronicle.top
        return top is None or fact.credit > top.credit

    def _is_known(self, fact: AttemptFinished) -> bool:
        """Return True if the attempt, folded just now, shows nothing new: a known program, or none."""
        before = self._chronicle.state.branches[fact.branch_id].attempts[-2:-1]
        says_again = fact.fate == "unusable" and any(attempt.outcome == fact.outcome for attempt in before)
        return repeats_known(fact) or says_again or fact.fate == "declined"

    def _said(self, fact: Fact) -> str:
        match fact:
            case EditsApplied():
                return self._world_model(fact)
            case EditsRefused(refusals=refusals):
                if refusals[0].reason == NO_ANSWER:  # the line before has the reason
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
                steered = steering_words(fact, self._chronicle.state)
                return _course_words(fact) or (f"a person: {steered}" if steered else "")

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
        worker = self._chronicle.worker_of(fact.candidate_id) if fact.round else ""
        return f"  {worker}" if worker and len(self._chronicle.workers.get("evaluator", ())) > 1 else ""

    def _brief(self, fact: AttemptFinished) -> str:
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
        """Return the result of measuring a candidate again. The next fact says whether it is the new best."""
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


def _is_lower(speedup: float | None, before: Incumbent | Provisional | None) -> bool:
    return speedup is not None and before is not None and before.speedup is not None and speedup < before.speedup


def _reason(
    fact: AttemptFinished | ConfirmationFinished, before: Incumbent | Provisional | None, *, brief: bool
) -> str:
    """Explain why a candidate with a smaller speedup is the best, by the lower ends of both intervals; else empty."""
    if fact.credit is None or before is None or not _is_lower(fact.speedup, before):
        return ""
    digits = 2 if f"{fact.credit:.2f}" != f"{before.credit:.2f}" else 4
    own, other = f"{fact.credit:.{digits}f}x", f"{before.credit:.{digits}f}x"
    return f"at least {own}, before {other}" if brief else f"at least {own}, the one before at least {other}"


def _course_words(fact: Fact) -> str:
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


def fault_line(answered: CandidateWritten | EditsProposed) -> str:
    """Return the failed tries before an answer, as text."""
    job = answered.job_id.rpartition("-")[2]
    return f"endpoint: {job} answered after failed tries: {fault_words(answered.faults)}"
