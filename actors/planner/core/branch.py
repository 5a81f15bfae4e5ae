"""Branches of the search: attempts, the drafts that one attempt consists of, and what is told of a branch that ended.

Values only; `drafting` folds facts into them.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from messages.verdicts import CORRECT_FATES, Fate


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A correct candidate and what it is worth."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's interval, or a score; None where it was not timed."""
    speedup: float | None = None
    speedup_high: float | None = None
    """Upper bound of the speedup's interval; None where it is not known."""
    latency_us: float | None = None

    @property
    def is_least(self) -> bool:
        """Say whether `speedup` is only what it has at least, since its time was not steady enough to be told."""
        return self.speedup is not None and self.speedup == self.credit and (self.speedup_high or 0.0) > self.speedup


def better(first: Score | None, second: Score | None) -> Score | None:
    """Return the one with the larger credit; the first on a tie, and the timed one where only one was timed."""
    if first is None or second is None:
        return first or second
    return second if (second.credit or 0.0) > (first.credit or 0.0) else first


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a coder and its outcome; of several drafts the best one's."""

    number: int
    candidate_id: str | None
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    round: int = 0
    """0 if nothing was evaluated for it."""
    evidence: tuple[str, ...] = ()
    """What is known besides the outcome; bounded."""
    others: tuple[str, ...] = ()
    """Outcomes of the attempt's other drafts."""

    @property
    def score(self) -> Score | None:
        """What it is worth; None unless it is correct."""
        if self.fate not in CORRECT_FATES or self.candidate_id is None:
            return None
        return Score(
            candidate_id=self.candidate_id,
            credit=self.credit,
            speedup=self.speedup,
            speedup_high=self.speedup_high,
            latency_us=self.latency_us,
        )


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a coder that is under way: being written, built, evaluated, or waiting for another's verdict."""

    number: int
    """From 0, within its attempt."""
    job_id: str | None = None
    """The job it waits for."""
    candidate_id: str | None = None
    """The candidate that is being built or evaluated for it, or whose verdict it awaits."""
    awaiting: bool = False
    """Another draft is having the same candidate evaluated."""
    model: str = ""
    """Which of several coder models was asked."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The local refinement of one node."""

    branch_id: str
    node_id: str
    base: Score | None
    """The parent's candidate; None: the reference."""
    second: Score | None = None
    """Candidate of a second parent, whose technique is to be merged into the base."""
    expected_gain: float | None = None
    """What was expected of its action when it began."""
    attempts: tuple[Attempt, ...] = ()
    best: Score | None = None
    stale: int = 0
    """Attempts in a row without improvement; without a correct candidate all of them."""
    attempt_limit: int | None = None
    drafts: tuple[Draft, ...] = ()
    """Those of the present attempt that are under way; none: the next one may begin."""
    ended: tuple[Attempt, ...] = ()
    """Outcomes of its other drafts."""
    improved: bool = False
    """One of these was better than all before."""
    sample: int = 0
    """How many branches and extra samples there were on this node before it."""

    @property
    def extra(self) -> bool:
        """It is an extra sample: one attempt for a node that another branch refines."""
        return self.attempt_limit is not None

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that it waits for."""
        return tuple(draft.job_id for draft in self.drafts if draft.job_id is not None)

    def draft(self, number: int) -> Draft:
        """Return a draft that is under way; one that waits for nothing if it is not."""
        return next((draft for draft in self.drafts if draft.number == number), Draft(number=number))

    def with_draft(self, draft: Draft) -> Branch:
        """Return the branch with this draft under way, as it now is."""
        kept = [other for other in self.drafts if other.number != draft.number]
        return replace(self, drafts=tuple(sorted([*kept, draft], key=lambda other: other.number)))

    def without_draft(self, number: int) -> Branch:
        """Return the branch with one draft less under way; with the last one the attempt is over."""
        left = tuple(draft for draft in self.drafts if draft.number != number)
        branch = replace(self, drafts=left)
        return branch if left else branch.concluded()

    def concluded(self) -> Branch:
        """Return the branch with what ended of the present attempt as its outcome."""
        if not self.ended:
            return self
        ranked = sorted(self.ended, key=_promise)
        best, others = ranked[0], tuple(attempt.outcome for attempt in ranked[1:])
        return replace(
            self,
            attempts=(*self.attempts, replace(best, number=len(self.attempts) + 1, others=others)),
            stale=0 if self.improved else self.stale + 1,
            ended=(),
            improved=False,
        )


_NEARNESS: tuple[Fate, ...] = (
    "wrong", "timed_out", "crashed", "rejected", "quarantined", "did_not_build", "declined", "unusable",
)  # fmt: skip
"""Of drafts that all failed the one nearest to a correct candidate goes on."""


def _promise(attempt: Attempt) -> tuple[int, float]:
    """Rank drafts of one attempt: correct ones by credit, others by how far they came, equals in order of ending."""
    if attempt.fate in CORRECT_FATES:
        return -1, -(attempt.credit or 0.0)
    return _NEARNESS.index(attempt.fate) if attempt.fate in _NEARNESS else len(_NEARNESS), 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A finished branch that the planner's model has not been told of."""

    branch_id: str
    node_id: str
    reason: str
    base: Score | None
    best: Score | None
    attempts: tuple[Attempt, ...]
    second: Score | None = None
    expected_gain: float | None = None
    extra: bool = False
    """An extra sample: told along with others, no reason to call."""
    refuted: bool = False
    """No branch: a candidate that was attached, and that its confirmation refuted."""
    told: bool = False
    """A call under way tells of it."""
