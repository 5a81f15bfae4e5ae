"""Which notices are due, worked out from a run's records. Pure: sends nothing, knows no clock but the records' stamps.

A notice holds figures and our own words: no source, no output of a kernel, no model's text, no error's text.
"""

from __future__ import annotations

import msgspec

from ksearch_async.feed.folding import Folding
from ksearch_async.feed.shapes import Head, Mark, Totals
from ksearch_async.notices.asked import NoticeKind
from ksearch_async.summary import STOP_WORDS
from messages.codec import Record
from messages.events import JobLost, JobsUnserved

_QUIET_S = 600.0
"""Trouble of one kind is told of once in this time."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How the run stands, and its best."""

    standing: str
    stopped_by: str
    rounds: int
    max_rounds: int
    elapsed_s: float
    cost_usd: float
    model_calls: int
    speedup: float | None = None
    """Median against the reference; null: there is no best, or it has a score."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    score: float | None = None
    best_id: str = ""
    best_round: int = 0


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook's request."""

    id: str
    """The same whenever this notice is sent again: receivers know duplicates by it."""
    kind: NoticeKind
    run: str
    task: str
    at: str
    """ISO 8601, UTC: when it happened."""
    text: str
    """A line for people."""
    figures: Figures
    version: int = 1


class Herald:
    """Folds a run's records and says which notices are due. Pure but for the time that trouble is told of again."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._folding = Folding()
        self._head: Head | None = None
        self._best: Mark | None = None
        self._told_at: dict[str, float] = {}

    def take(self, record: Record) -> list[Notice]:
        """Return the notices of a record."""
        was_over = self._folding.chronicle.finished is not None
        update = self._folding.take(record)
        self._head = update.head or self._head
        if self._head is None:
            return []
        notices = []
        for mark in update.marks[-1:]:
            self._best = mark
            notices.append(self._notice("best", record, update.totals, self._best_words()))
        if trouble := _trouble_words(record):
            elapsed_s, told_s = update.totals.elapsed_s, self._told_at.get(trouble)
            if told_s is None or elapsed_s - told_s >= _QUIET_S:
                self._told_at[trouble] = elapsed_s
                notices.append(self._notice("trouble", record, update.totals, trouble))
        if update.totals.standing == "finished" and not was_over:
            notices.append(self._notice("finished", record, update.totals, self._end_words(update.totals)))
        return [notice for notice in notices if notice.kind in self._kinds]

    def failed(self) -> list[Notice]:
        """Return the notice of a session that ended by an error of ours or of the disk, which no record tells of."""
        chronicle = self._folding.chronicle
        if self._head is None or chronicle.last_at is None or "trouble" not in self._kinds:
            return []
        totals = Totals(rounds=chronicle.state.rounds, elapsed_s=chronicle.elapsed_s, cost_usd=chronicle.state.cost_usd)
        text = f"{self._head.run_id}: the session failed; ksearch resume {self._head.run_id} goes on"
        return [self._made("trouble", f"failed-{chronicle.last_seq}", chronicle.last_at.isoformat(), text, totals)]

    def _notice(self, kind: NoticeKind, record: Record, totals: Totals, words: str) -> Notice:
        head = self._head
        return self._made(kind, f"{kind}-{record.seq}", record.at, f"{head.run_id if head else ''}: {words}", totals)

    def _made(self, kind: NoticeKind, suffix: str, at: str, text: str, totals: Totals) -> Notice:
        head, best = self._head, self._best
        run_id = head.run_id if head else ""
        figures = Figures(
            standing=totals.standing,
            stopped_by=totals.stopped_by,
            rounds=totals.rounds,
            max_rounds=head.max_rounds if head else 0,
            elapsed_s=round(totals.elapsed_s, 3),
            cost_usd=totals.cost_usd,
            model_calls=totals.calls,
        )
        if best is not None:
            is_score = best.speedup is None
            figures = msgspec.structs.replace(
                figures,
                speedup=best.speedup,
                speedup_low=None if is_score else best.credit,
                speedup_high=best.speedup_high,
                latency_us=best.latency_us,
                score=best.credit if is_score else None,
                best_id=best.candidate_id,
                best_round=best.round,
            )
        task = head.task if head else ""
        return Notice(id=f"{run_id}.{suffix}", kind=kind, run=run_id, task=task, at=at, text=text, figures=figures)

    def _best_words(self) -> str:
        best = self._best
        return f"new best: {_worth_words(best)}, round {best.round}" if best else ""

    def _end_words(self, totals: Totals) -> str:
        why = STOP_WORDS.get(totals.stopped_by, totals.stopped_by)
        found = f"best {_worth_words(self._best)}" if self._best else "nothing found"
        return f"over after {totals.rounds} rounds ({why}): {found}"


def _worth_words(best: Mark) -> str:
    if best.speedup is None:
        return f"score {best.credit:g}"
    high = f", {best.speedup_high:.2f}" if best.speedup_high is not None else ""
    latency = f", {best.latency_us:.1f} us" if best.latency_us is not None else ""
    return f"{best.speedup:.2f}x [{best.credit:.2f}{high}]{latency}"


def _trouble_words(record: Record) -> str:
    """Say what is wrong with what a search needs, without what a kernel, a model or an endpoint has said."""
    body = record.body
    if isinstance(body, JobsUnserved):
        return f"jobs wait, and there is no {body.role} who can do them"
    if isinstance(body, JobLost):
        passing = "will not pass by itself" if body.permanent else "is tried again"
        return f"the infrastructure lost a job ({body.kind}), which {passing}"
    return ""
