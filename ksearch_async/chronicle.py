"""A run as its journal tells it: records folded into what people want to know. Knows no files and prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import msgspec

from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.core.tree import path_titles
from messages.base import ROOT
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten, EditsProposed, JobLost, RunResumed, RunStarted
from messages.facts import AttemptFinished, Decided, Fact, IncumbentChanged, RunFinished, SearchReopened
from messages.verdicts import Measured, Scored

DUPLICATE = "duplicate"


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """A run's incumbent, as it is shown: a kernel that was timed."""

    candidate_id: str
    path: str
    """Folder that holds its files."""
    node_id: str
    found_by: tuple[str, ...]
    """Titles of the actions from the root's child down to its node."""
    round: int
    speedup_vs_reference: float
    speedup_interval: tuple[float, float]
    """95 % bootstrap interval; its lower bound is the credit."""
    latency_us: float
    """Median over timed calls."""
    reference_latency_us: float | None
    """The same for the reference, interleaved with the candidate's calls."""
    device: str

    @property
    def faster(self) -> bool:
        """Say whether the whole interval lies above the reference."""
        return self.speedup_interval[0] > 1.0


class BestScore(msgspec.Struct, frozen=True, kw_only=True):
    """A run's incumbent, as it is shown: a program that was scored."""

    candidate_id: str
    path: str
    node_id: str
    found_by: tuple[str, ...]
    round: int
    score: float
    """By the task's own evaluator; larger is better."""
    initial_score: float | None
    """The initial program's; null while that is not known."""
    metrics: dict[str, float | str]
    device: str

    @property
    def faster(self) -> bool:
        """Say whether the score is above the initial program's."""
        return self.initial_score is not None and self.score > self.initial_score


class Chronicle:
    """Folds a run's records, one after the other."""

    def __init__(self) -> None:
        self.state = SearchState()
        self.started: RunStarted | None = None
        self.last_seq = 0
        self.elapsed_s = 0.0
        """Wall-clock over all sessions, from the records' stamps."""
        self.last_at: datetime | None = None
        """Stamp of the latest record."""
        self.fates: Counter[str] = Counter()
        """Attempts by fate; `DUPLICATE` counts those that wrote a known candidate."""
        self.faults: Counter[str] = Counter()
        """Failed tries of model calls, by kind; the calls may have gone on."""
        self.finished: RunFinished | None = None
        self.curve: list[float] = []
        """The incumbent's speedup (its credit, where time means nothing) after each round; 0 while there is none."""
        self._incumbent: CandidateEvaluated | None = None
        self._measured: dict[str, CandidateEvaluated] = {}

    def fold(self, record: Record) -> None:
        """Take one record."""
        for _ in self.unfold(record):
            pass

    def unfold(self, record: Record) -> Iterator[Fact]:
        """Take one record, and yield each of its facts right after it was folded."""
        body = record.body
        at = datetime.fromisoformat(record.at)
        if self.last_at is not None and not isinstance(body, RunResumed):
            self.elapsed_s += max(0.0, (at - self.last_at).total_seconds())
        self.last_seq, self.last_at = record.seq, at
        if isinstance(body, CandidateWritten | EditsProposed | JobLost):
            self.faults.update(fault.words for fault in body.faults)
        elif isinstance(body, RunStarted):
            self.started = body
        elif isinstance(body, CandidateEvaluated) and isinstance(body.verdict, Measured | Scored):
            self._measured[body.candidate_id] = body
        elif isinstance(body, Decided):
            for fact in body.facts:
                self._fold_fact(fact)
                yield fact

    def best(self, folder: str) -> Best | BestScore | None:
        """Return the incumbent; `folder` is where its files lie."""
        incumbent, evaluated = self.state.incumbent, self._incumbent
        if incumbent is None or evaluated is None:
            return None
        verdict, found_by = evaluated.verdict, path_titles(self.state, incumbent.node_id)
        if isinstance(verdict, Scored):
            initial = self.state.node(ROOT).best
            return BestScore(
                candidate_id=incumbent.candidate_id,
                path=folder,
                node_id=incumbent.node_id,
                found_by=found_by,
                round=incumbent.round,
                score=verdict.score,
                initial_score=initial.credit if initial else None,
                metrics=verdict.metrics,
                device=evaluated.device,
            )
        if not isinstance(verdict, Measured) or incumbent.speedup is None or incumbent.latency_us is None:
            return None
        interval = verdict.speedup_interval
        return Best(
            candidate_id=incumbent.candidate_id,
            path=folder,
            node_id=incumbent.node_id,
            found_by=found_by,
            round=incumbent.round,
            speedup_vs_reference=incumbent.speedup,
            speedup_interval=(incumbent.credit, interval.high if interval else incumbent.speedup),
            latency_us=incumbent.latency_us,
            reference_latency_us=verdict.reference_latency_us,
            device=evaluated.device,
        )

    def untimed(self) -> tuple[str, ...]:
        """Return the ids of the candidates that are correct and could not be timed, in order of their verdicts."""
        return tuple(
            candidate_id
            for candidate_id, evaluated in self._measured.items()
            if isinstance(evaluated.verdict, Measured) and not evaluated.verdict.timed
        )

    def measured(self, candidate_id: str | None) -> Measured | None:
        """Return the latest verdict on a candidate that was measured."""
        evaluated = self._measured.get(candidate_id or "")
        return evaluated.verdict if evaluated and isinstance(evaluated.verdict, Measured) else None

    def _fold_fact(self, fact: Fact) -> None:
        self.state = evolve(self.state, fact)
        if isinstance(fact, AttemptFinished):
            self.fates[DUPLICATE if repeats_known(fact) else fact.fate] += 1
            if fact.round:
                self.curve.append(self.curve[-1] if self.curve else 0.0)
        elif isinstance(fact, IncumbentChanged):
            self.curve[-1:] = [fact.credit if fact.speedup is None else fact.speedup]
            self._incumbent = self._measured.get(fact.candidate_id)
        elif isinstance(fact, RunFinished):
            self.finished = fact
        elif isinstance(fact, SearchReopened):
            self.finished = None


def repeats_known(fact: AttemptFinished) -> bool:
    """Say whether the attempt wrote what an earlier one had written: its verdict was known, nothing was evaluated."""
    return fact.round == 0 and fact.fate not in ("unusable", "declined", "lost")
