"""The read model of a run: one fold of its journal, with the queries of all views. Pure: reads no files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

import msgspec

from actors.planner.core.evolve import Step as Rehearsal
from actors.planner.core.evolve import evolve
from actors.planner.core.state import Incumbent, Provisional, SearchState, path_titles
from actors.planner.core.steering import carry_out
from actors.planner.jobs import Texts, whole_written
from evaluators.hardware.roofline import Roofline, roofline
from messages.base import ROOT, Language, Role, Usage
from messages.codec import Record
from messages.events import (
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ContinueRequested,
    EditsProposed,
    Event,
    JobLost,
    PauseRequested,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import (
    AttemptFinished,
    BranchStarted,
    ConfirmationFinished,
    Decided,
    EditsApplied,
    Fact,
    IncumbentChanged,
    NodeInserted,
    RunFinished,
    SearchReopened,
    SpendRecorded,
    WriteRequested,
)
from messages.models import Lineup, Offer, Price
from messages.settings import SearchSettings
from messages.steering import SteeringRequested
from messages.tasks import Candidate
from messages.verdicts import Measured, Scored, TimedWorkload

DUPLICATE = "duplicate"
UNDER_WAY = "under way"
Order: TypeAlias = StopRequested | PauseRequested | ContinueRequested | SteeringRequested
Standing: TypeAlias = Literal["running", "paused", "stopping", "finished"]
Against: TypeAlias = Literal["rounds", "seconds", "dollars"]
"""Measure of a run's effort, as an axis."""
Payer: TypeAlias = Literal["planner", "coder"]
PriceOf: TypeAlias = Callable[[str], Price | None]
"""A function from a model's name to its price."""
S = TypeVar("S", bound=msgspec.Struct)
_ROLES: dict[type, Role] = {CandidateWritten: "coder", CandidateBuilt: "builder", CandidateEvaluated: "evaluator"}


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """The incumbent of a run of kernels."""

    candidate_id: str
    path: str
    """Folder that holds its files."""
    node_id: str
    found_by: tuple[str, ...]
    """Titles of the actions from the root's child down to its node."""
    round: int
    speedup_vs_reference: float
    speedup_interval: tuple[float, float]
    """95 % interval; its lower bound is the credit."""
    latency_us: float
    """Median over timed calls."""
    reference_latency_us: float | None
    """The same for the reference, interleaved with the candidate's calls."""
    device: str
    screen_speedup: float | None = None
    """Speedup in its first measurement, before the one that counts; None if it was measured once."""
    workloads: tuple[TimedWorkload, ...] = ()
    """Each of several workloads; latencies and speedups above are geometric means then."""
    roofline_us: float | None = None
    """Least time by the device's data sheet, in us; null if it is not known, or with several workloads."""
    roofline_limited_by: str = ""
    """`memory`: a lower bound. `arithmetic`: an estimate from the reference's operations."""

    @property
    def faster(self) -> bool:
        """Return True if the whole interval is above the reference."""
        return self.speedup_interval[0] > 1.0

    @property
    def roofline_words(self) -> str:
        """Return how near it is to the device's limit, as text to follow a latency; empty if that is not known."""
        if self.roofline_us is None:
            return ""
        percent = 100 * self.roofline_us / self.latency_us
        return f", {percent:.0f} % of the roofline ({self.roofline_us:.2f} us, {self.roofline_limited_by})"


class BestScore(msgspec.Struct, frozen=True, kw_only=True):
    """The incumbent of a run of scored programs."""

    candidate_id: str
    path: str
    node_id: str
    found_by: tuple[str, ...]
    round: int
    score: float
    """Score by the task's own evaluator; larger is better."""
    initial_score: float | None
    """Score of the initial program; null while it is not known."""
    metrics: dict[str, float | str]
    device: str

    @property
    def faster(self) -> bool:
        """Say whether the score is above the initial program's."""
        return self.initial_score is not None and self.score > self.initial_score


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A new incumbent: a step of the best-so-far curve."""

    candidate_id: str
    node_id: str
    round: int
    """Round in which it was screened."""
    elapsed_s: float
    cost_usd: float
    calls: int
    """Model calls so far."""
    credit: float
    speedup: float | None = None
    """Null for a score, which is its credit."""
    speedup_high: float | None = None
    latency_us: float | None = None
    reference_latency_us: float | None = None
    baseline: str = ""
    baseline_latency_us: float | None = None
    speedup_vs_baseline: float | None = None
    screen_speedup: float | None = None
    """Speedup in its first measurement; None if it was measured once."""
    workloads: tuple[TimedWorkload, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's figures after a record."""

    standing: Standing = "running"
    stopped_by: str = ""
    detail: str = ""
    rounds: int = 0
    elapsed_s: float = 0.0
    """Wall-clock over all sessions, without pauses."""
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    """Of the answers with a known price."""
    unpriced_calls: int = 0
    """Answers without a known price."""
    fates: dict[str, int] = msgspec.field(default_factory=dict)
    """Attempts by status; `duplicate` counts those that wrote a known candidate."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """Failed tries of model calls, by kind."""
    best_id: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of a run. It changes when the run continues with another budget."""

    run_id: str
    task: str
    task_id: str
    language: Language
    device: str
    toolchain: str
    started_at: str
    """ISO 8601, UTC."""
    seed: int
    scored: bool = False
    """True if candidates have scores instead of speedups."""
    branches: int = 1
    world_model: str = "evolving"
    max_rounds: int = 0
    max_seconds: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    target_speedup: float | None = None
    models: tuple[str, ...] = ()
    """Names of the run's models, the planner's first."""
    roofline_us: float | None = None
    roofline_limited_by: str = ""
    workloads: tuple[str, ...] = ()
    summary: str = ""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Effort of a run up to an event."""

    rounds: int
    seconds: float
    """Wall-clock over all sessions, without pauses."""
    dollars: float | None
    """Cost of its models; null if a price is not known."""

    def on(self, against: Against) -> float | None:
        """Return the effort on one axis."""
        return {"rounds": self.rounds, "seconds": self.seconds, "dollars": self.dollars}[against]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A new incumbent. A confirmed candidate counts from its confirmation, not from its screening."""

    mark: Mark
    at: Place

    @property
    def value(self) -> float:
        """Median speedup, or the score."""
        return self.mark.credit if self.mark.speedup is None else self.mark.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the speedup; for a score, the score twice."""
        return self.mark.credit, self.value if self.mark.speedup_high is None else self.mark.speedup_high


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with its outcome."""

    fact: AttemptFinished
    node_id: str
    at: Place


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A coder's answer, with its texts."""

    node_id: str
    number: int
    """Number among the node's answers, from 1, in order of arrival."""
    job_id: str
    branch_id: str
    mode: str
    """`apply`, `debug` or `improve`."""
    fate: str = UNDER_WAY
    outcome: str = ""
    round: int = 0
    """Round of its evaluation; 0: nothing was evaluated for it."""
    candidate_id: str | None = None
    base_id: str | None = None
    """Candidate that the coder was asked to change; null: none."""
    complaint: str = ""
    declined: str = ""
    notes: tuple[str, ...] = ()
    """Repairs that were needed to read the answer."""
    model: str
    finish_reason: str
    latency_s: float
    usage: Usage
    prompt: str
    answer: str


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """Answers and their cost."""

    usage: Usage = Usage()
    latencies_s: tuple[float, ...] = ()
    cost_usd: float = 0.0
    """Of the answers with a known price."""
    unpriced_calls: int = 0
    """Answers without a known price."""

    @property
    def known_usd(self) -> float | None:
        """The whole cost; None if a price is not known."""
        return None if self.unpriced_calls else self.cost_usd

    def plus(self, other: Spend) -> Spend:
        """Return the sum of both."""
        return Spend(
            usage=self.usage.plus(other.usage),
            latencies_s=self.latencies_s + other.latencies_s,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
        )


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a run's models: in all, by model and by action."""

    by_model: Mapping[tuple[Payer, str], Spend] = {}
    """By role and name; without models that were never called."""
    by_node: Mapping[str, Spend] = {}
    """Cost of coders by the action that they wrote for."""
    titles: Mapping[str, str] = {}
    """Titles of those actions."""

    def of_role(self, role: Payer) -> Spend:
        """Return the cost of one role, all its models together."""
        return _sum(spend for (asked, _), spend in self.by_model.items() if asked == role)


class Answer(msgspec.Struct, kw_only=True):
    """A coder's answer, with its outcome."""

    written: CandidateWritten
    asked: WriteRequested
    fate: str = UNDER_WAY
    outcome: str = ""
    round: int = 0


class Archive:
    """The texts of a run: prompts, answers, sources, compiler logs, verdicts."""

    def __init__(self, branches: Mapping[str, BranchStarted]) -> None:
        self.texts = Texts()
        self.answers: dict[str, list[Answer]] = {}
        """Coders' answers by node, in order of arrival."""
        self.written: dict[str, tuple[Candidate, BranchStarted]] = {}
        """Candidates that coders wrote, each with the branch in which it first came up."""
        self.builds: dict[str, list[CandidateBuilt]] = {}
        self.verdicts: dict[str, list[tuple[CandidateEvaluated, str]]] = {}
        """Verdicts with the time stamps of their records."""
        self._branches = branches
        self._asked: dict[str, WriteRequested] = {}
        self._drafts: dict[tuple[str, int], Answer] = {}
        """The latest answer for each draft of a branch."""

    def take(self, event: Event, at: str) -> None:
        """Keep an event's texts."""
        self.texts.take(event)
        match event:
            case CandidateBuilt():
                self.builds.setdefault(event.candidate_id, []).append(event)
            case CandidateEvaluated():
                self.verdicts.setdefault(event.candidate_id, []).append((event, at))
            case CandidateWritten() if branch := self._branches.get(event.branch_id):
                if event.candidate is not None:
                    self.written.setdefault(event.candidate.candidate_id, (event.candidate, branch))
                if asked := self._asked.get(event.job_id):  # else no process asks for it any more
                    answer = self._drafts[asked.branch_id, asked.draft] = Answer(written=event, asked=asked)
                    self.answers.setdefault(branch.node_id, []).append(answer)
            case _:
                pass

    def take_fact(self, fact: Fact) -> None:
        """Keep a fact about an answer."""
        if isinstance(fact, WriteRequested):
            self._asked[fact.job_id] = fact
        elif isinstance(fact, AttemptFinished) and (answer := self._drafts.get((fact.branch_id, fact.draft))):
            answer.fate, answer.outcome, answer.round = fact.fate, fact.outcome, fact.round or answer.round

    def told(self, node_id: str) -> list[Told]:
        """Return the answers for a node, with their full texts."""
        return [
            taken(
                Told,
                whole_written(answer.written, self.texts.quoted),
                node_id=node_id,
                number=number,
                mode=answer.asked.mode,
                fate=answer.fate,
                outcome=answer.outcome,
                round=answer.round,
                candidate_id=answer.written.candidate.candidate_id if answer.written.candidate else None,
                base_id=answer.asked.current_id or answer.asked.base_id,
            )
            for number, answer in enumerate(self.answers.get(node_id, ()), start=1)
        ]


class _Payments:
    def __init__(self) -> None:
        self.answered_by: dict[str, None] = {}
        """Names of the models that answered, in order."""
        self._lineups: list[Lineup] = []
        self._spends: list[SpendRecorded] = []
        self._titles = {ROOT: "the reference"}
        """Titles of actions, as they were inserted."""

    def take(self, said: Event | Fact) -> None:
        """Keep an event or fact about a payment."""
        match said:
            case SpendRecorded():
                self._spends.append(said)
            case CandidateWritten() | EditsProposed() if said.model:
                self.answered_by[said.model] = None
            case RunStarted() | RunResumed() if said.lineup is not None:
                self._lineups.append(said.lineup)
            case NodeInserted() | EditsApplied():
                changes = said.changes if isinstance(said, EditsApplied) else (said,)
                self._titles |= {each.node_id: each.title for each in changes if isinstance(each, NodeInserted)}
            case _:
                pass

    def summed(self, price_of: PriceOf | None) -> Spending:
        """Return the sums by model and by node."""
        by_model: dict[tuple[Payer, str], Spend] = {}
        by_node: dict[str, Spend] = {}
        for fact in self._spends:
            spend, key = _spend(fact, price_of), (fact.role, fact.model)
            by_model[key] = by_model.get(key, Spend()).plus(spend)
            if fact.node_id:
                by_node[fact.node_id] = by_node.get(fact.node_id, Spend()).plus(spend)
        by_model |= dict.fromkeys([key for lineup in self._lineups for key in _unasked(lineup, by_model)], Spend())
        return Spending(by_model=by_model, by_node=by_node, titles=self._titles)


class Run:
    """Folds a run's records, one after the other, and answers the queries of views."""

    def __init__(self, *, with_texts: bool = False) -> None:
        """Begin. `with_texts` keeps an `archive`."""
        self.state = SearchState()
        self.started: RunStarted | None = None
        self.started_at = ""
        """ISO 8601, UTC."""
        self.last_seq = 0
        self.elapsed_s = 0.0
        """Wall-clock over all sessions, without pauses, from the records' stamps."""
        self.last_at: datetime | None = None
        """Stamp of the latest record."""
        self.fates: Counter[str] = Counter()
        """Attempts by status; `DUPLICATE` counts those that wrote a known candidate."""
        self.faults: Counter[str] = Counter()
        """Failed tries of model calls, by kind. The calls may have succeeded with a later try."""
        self.unpriced_calls = 0
        """Answers without a known price."""
        self.workers: dict[Role, Counter[str]] = {}
        """Number of results by process, where there are several processes."""
        self.was_asked_to_rest = False
        """True if this session was asked to stop or pause, even if its planner has not seen the order yet."""
        self.finished: RunFinished | None = None
        self.curve: list[float] = []
        """The incumbent's speedup (its credit, if nothing is timed) after each round; 0 while there is none."""
        self.branches: dict[str, BranchStarted] = {}
        self.tried: list[Tried] = []
        self.steps: list[Step] = []
        self.confirmations: list[ConfirmationFinished] = []
        self.undecided: dict[int, SteeringRequested] = {}
        """Orders without a decision, by their place in the stream."""
        self.archive = Archive(self.branches) if with_texts else None
        self._payments = _Payments()
        self._marks: list[Mark] = []
        self._incumbent: CandidateEvaluated | None = None
        self._measured: dict[str, CandidateEvaluated] = {}
        self._judged: dict[str, str] = {}

    @classmethod
    def of(cls, records: Iterable[Record], *, with_texts: bool = False) -> Run:
        """Fold a run's records."""
        run = cls(with_texts=with_texts)
        for record in records:
            run.fold(record)
        return run

    def fold(self, record: Record) -> None:
        """Take one record."""
        for _ in self.unfold(record):
            pass

    def unfold(self, record: Record) -> Iterator[Fact]:
        """Take one record, and yield each of its facts right after it was folded."""
        body = record.body
        at = datetime.fromisoformat(record.at)
        goes_on = self.finished is None and not self.resting
        if self.last_at is not None and goes_on and not isinstance(body, RunResumed):
            self.elapsed_s += max(0.0, (at - self.last_at).total_seconds())
        self.last_seq, self.last_at = record.seq, at
        if isinstance(body, SteeringRequested):
            self.undecided[record.seq] = body
        if not isinstance(body, Decided):
            self._fold_event(body)
            self._payments.take(body)
            if self.archive is not None:
                self.archive.take(body, record.at)
            return
        self.undecided.pop(body.cause, None)
        for fact in body.facts:
            self._fold_fact(fact)
            self._payments.take(fact)
            if self.archive is not None:
                self.archive.take_fact(fact)
            yield fact
        place = self.place
        attempts = [fact for fact in body.facts if isinstance(fact, AttemptFinished)]
        self.tried += [Tried(fact=fact, node_id=self.node_of(fact.branch_id), at=place) for fact in attempts]
        self.steps += [Step(mark=mark, at=place) for mark in self._marks[len(self.steps) :]]

    @property
    def waiting(self) -> Provisional | None:
        """The best of the candidates that screened better than the incumbent and wait for confirmation."""
        return max(self.state.provisional.values(), key=lambda found: found.credit, default=None)

    @property
    def top(self) -> Incumbent | Provisional | None:
        """The incumbent, or a better candidate that was measured only once."""
        return self.waiting or self.state.incumbent

    @property
    def step(self) -> Step | None:
        """The incumbent, and the point at which it became the best."""
        return self.steps[-1] if self.steps else None

    @property
    def scored(self) -> bool:
        """Return True if candidates have scores instead of speedups."""
        return self.started is not None and self.started.initial is not None

    @property
    def outlook(self) -> SearchState:
        """State of the search once all orders are decided on."""
        rehearsal = Rehearsal(self.state)
        for asked in self.undecided.values():
            carry_out(rehearsal, asked.order)
        return rehearsal.state

    @property
    def resting(self) -> bool:
        """Return True if the run is paused."""
        return self.state.running and self.state.paused

    @property
    def is_over(self) -> bool:
        """Return True if the run has ended for good. A stopped run has not: it continues when it is resumed."""
        return self.finished is not None and self.finished.stopped_by not in ("interrupted", "infrastructure")

    @property
    def standing(self) -> Standing:
        """State of the run, in a word."""
        if self.finished is not None:
            return "finished"
        if self.state.status == "stopping":
            return "stopping"
        return "paused" if self.resting else "running"

    @property
    def place(self) -> Place:
        """Effort of the run so far."""
        dollars = None if self.unpriced_calls else self.state.cost_usd
        return Place(rounds=self.state.rounds, seconds=round(self.elapsed_s, 3), dollars=dollars)

    @property
    def settings(self) -> SearchSettings:
        """The search's settings. A resumed run may have another budget."""
        return self.started.settings if self.started and not self.state.run_id else self.state.settings

    @property
    def lineup(self) -> Lineup:
        """The models that the run calls."""
        return self.started.lineup if self.started and not self.state.run_id else self.state.lineup

    @property
    def totals(self) -> Totals:
        """The run's figures."""
        state, usage = self.state, self.state.usage
        return taken(
            Totals,
            usage,
            standing=self.standing,
            stopped_by=state.stopped_by or "",
            detail=state.stop_detail,
            rounds=state.rounds,
            elapsed_s=round(self.elapsed_s, 3),
            cost_usd=state.cost_usd,
            unpriced_calls=self.unpriced_calls,
            fates=dict(self.fates),
            faults=dict(self.faults),
            best_id=state.incumbent.candidate_id if state.incumbent else "",
        )

    @property
    def head(self) -> Head | None:
        """Description of the run; None before its first event."""
        started = self.started
        if started is None:
            return None
        settings, bound, target = self.settings, self.roofline(), started.target
        budget, offers = settings.budget, (self.lineup.planner, *self.lineup.coders)
        return Head(
            run_id=started.run_id,
            task=started.task.name,
            task_id=started.task.task_id,
            language=started.description.language,
            device=target.device,
            toolchain=target.toolchain,
            started_at=self.started_at,
            seed=started.seed,
            scored=self.scored,
            branches=settings.branches,
            world_model=settings.world_model,
            max_rounds=budget.max_rounds,
            max_seconds=budget.wall_clock_s,
            max_calls=budget.max_calls,
            max_tokens=budget.max_tokens,
            max_cost_usd=budget.max_cost_usd,
            target_speedup=budget.target_speedup,
            models=tuple(dict.fromkeys(offer.name for offer in offers if offer.name)),
            roofline_us=bound.time_us if bound else None,
            roofline_limited_by=bound.limited_by if bound else "",
            workloads=tuple(workload.name for workload in started.description.workloads),
            summary=self.state.summary,
        )

    def node_of(self, branch_id: str) -> str:
        """Return the node that a branch refines."""
        return self.branches[branch_id].node_id if branch_id in self.branches else ROOT

    def worker_of(self, candidate_id: str | None) -> str:
        """Return the process that evaluated a candidate last; empty in a run of one process."""
        return self._judged.get(candidate_id or "", "")

    def best(self, folder: str) -> Best | BestScore | None:
        """Return the incumbent; `folder` is the path of its files."""
        incumbent, evaluated = self.state.incumbent, self._incumbent
        if incumbent is None or evaluated is None:
            return None
        verdict, found_by = evaluated.verdict, path_titles(self.state, incumbent.node_id)
        if isinstance(verdict, Scored):
            initial = self.state.node(ROOT).best
            return taken(
                BestScore,
                incumbent,
                path=folder,
                found_by=found_by,
                score=verdict.score,
                initial_score=initial.credit if initial else None,
                metrics=verdict.metrics,
                device=evaluated.device,
            )
        if not isinstance(verdict, Measured) or incumbent.speedup is None or incumbent.latency_us is None:
            return None
        interval, bound = verdict.speedup_interval, self.roofline()
        return taken(
            Best,
            incumbent,
            path=folder,
            found_by=found_by,
            speedup_vs_reference=incumbent.speedup,
            speedup_interval=(incumbent.credit, interval.high if interval else incumbent.speedup),
            reference_latency_us=verdict.reference_latency_us,
            device=evaluated.device,
            workloads=verdict.workloads,
            roofline_us=bound.time_us if bound else None,
            roofline_limited_by=bound.limited_by if bound else "",
        )

    def roofline(self) -> Roofline | None:
        """Return the least time by the device's data sheet; None if it is not known, or there are several workloads."""
        started = self.started
        if started is None or started.description.workloads:
            return None
        return roofline(started.description, started.target)

    def untimed(self) -> tuple[str, ...]:
        """Return the ids of candidates that are correct but could not be timed, in order of their verdicts."""
        return tuple(each for each in self._measured if (found := self.measured(each)) is not None and not found.timed)

    def measured(self, candidate_id: str | None) -> Measured | None:
        """Return the latest verdict on a candidate that was measured."""
        evaluated = self.evaluated(candidate_id)
        return evaluated.verdict if evaluated and isinstance(evaluated.verdict, Measured) else None

    def evaluated(self, candidate_id: str | None) -> CandidateEvaluated | None:
        """Return the latest evaluation of a candidate in which it was measured or scored."""
        return self._measured.get(candidate_id or "")

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the run's models; if its line-up names none, those of the models that answered."""
        offers = (self.lineup.planner, *self.lineup.coders)
        named = dict.fromkeys(offer.name for offer in offers if offer.name)
        return tuple(named or self._payments.answered_by)

    def spending(self, price_of: PriceOf | None = None) -> Spending:
        """Add up the costs of models.

        Args:
            price_of: returns prices to use instead of the journal's; None for a model keeps the journal's price.
        """
        return self._payments.summed(price_of)

    def _fold_event(self, event: Event) -> None:
        if isinstance(event, CandidateWritten | EditsProposed | JobLost):
            self.faults.update(fault.words for fault in event.faults)
        if isinstance(event, CandidateWritten | CandidateBuilt | CandidateEvaluated) and event.worker:
            self.workers.setdefault(_ROLES[type(event)], Counter())[event.worker] += 1
        match event:
            case RunStarted():
                self.started, self.started_at = event, self.last_at.isoformat() if self.last_at else ""
            case StopRequested() | PauseRequested():
                self.was_asked_to_rest = True
            case RunResumed() | ContinueRequested():
                self.was_asked_to_rest = False
            case CandidateEvaluated():
                self._judged[event.candidate_id] = event.worker
                if isinstance(event.verdict, Measured | Scored):
                    self._measured[event.candidate_id] = event
            case _:
                pass

    def _fold_fact(self, fact: Fact) -> None:
        self.state = evolve(self.state, fact)
        match fact:
            case BranchStarted():
                self.branches[fact.branch_id] = fact
            case AttemptFinished():
                self.fates[DUPLICATE if repeats_known(fact) else fact.fate] += 1
                self.curve += self.curve[-1:] or [0.0] if fact.round else []
            case ConfirmationFinished():
                self.confirmations.append(fact)
            case IncumbentChanged():
                self.curve[-1:] = [fact.credit if fact.speedup is None else fact.speedup]
                self._incumbent = self._measured.get(fact.candidate_id)
                self._marks.append(self._mark(fact))
            case SpendRecorded(cost_usd=None):
                self.unpriced_calls += fact.usage.calls
            case RunFinished():
                self.finished = fact
            case SearchReopened():
                self.finished = None
            case _:
                pass

    def _mark(self, fact: IncumbentChanged) -> Mark:
        best, verdict = self.best(""), self.measured(fact.candidate_id)
        timed = best if isinstance(best, Best) else None
        return taken(
            Mark,
            fact,
            elapsed_s=round(self.elapsed_s, 3),
            cost_usd=self.state.cost_usd,
            calls=self.state.usage.calls,
            speedup_high=timed.speedup_interval[1] if timed else None,
            reference_latency_us=timed.reference_latency_us if timed else None,
            baseline=verdict.baseline if verdict else "",
            baseline_latency_us=verdict.baseline_latency_us if verdict else None,
            speedup_vs_baseline=verdict.speedup_vs_baseline if verdict else None,
            workloads=timed.workloads if timed else (),
        )


def repeats_known(fact: AttemptFinished) -> bool:
    """Return True if the attempt wrote a known candidate, so that nothing was evaluated."""
    return fact.round == 0 and fact.fate not in ("unusable", "declined", "lost")


def taken(kind: type[S], source: object, **more: object) -> S:
    """Make a `kind` from `more`, and for the other fields from the attributes of `source`."""
    same = {
        name: getattr(source, name) for name in kind.__struct_fields__ if name not in more and hasattr(source, name)
    }
    return kind(**same, **more)


def _sum(spends: Iterable[Spend]) -> Spend:
    total = Spend()
    for spend in spends:
        total = total.plus(spend)
    return total


def _unasked(lineup: Lineup, asked: Mapping[tuple[Payer, str], Spend]) -> Iterator[tuple[Payer, str]]:
    """Yield the models that never answered. A single model may answer under the name that its endpoint gives it."""
    offers: dict[Payer, tuple[Offer, ...]] = {"planner": (lineup.planner,), "coder": lineup.coders}
    for role, known in offers.items():
        was_asked = any(who == role for who, _ in asked)
        if len(known) > 1 or not was_asked:
            yield from ((role, offer.name) for offer in known if offer.name and (role, offer.name) not in asked)


def _spend(fact: SpendRecorded, price_of: PriceOf | None) -> Spend:
    price = price_of(fact.model) if price_of is not None else None
    cost_usd = fact.cost_usd if price is None else price.of(fact.usage)
    return Spend(
        usage=fact.usage,
        latencies_s=(fact.latency_s,),
        cost_usd=cost_usd or 0.0,
        unpriced_calls=fact.usage.calls if cost_usd is None else 0,
    )
