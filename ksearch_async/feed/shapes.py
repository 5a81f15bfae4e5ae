"""What lenses get of a run: small values that replace earlier ones by their key, one `Update` per record of the stream.

Page, report, pictures, comparison, trackers and notices all read these and compute nothing of a run anew. Whoever keeps
the latest `NodeView` and `JobView` by id, and all `Mark`s, knows the run as it is; whoever keeps all updates can show
how it was after any of them. Field names are the JSON's; fields at their default are left out of it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from actors.planner.core.state import NodeState
from ksearch_async.chronicle import Standing
from messages.base import Language
from messages.plans import Origin
from messages.verdicts import Fate, TimedWorkload

JobVerb: TypeAlias = Literal["planning", "writing", "building", "evaluating", "confirming"]
NoteKind: TypeAlias = Literal["best", "world_model", "attempt", "loss", "steering", "course"]
"""What a line tells of: a new best or its confirmation, the tree, an attempt, what the infrastructure lost, an order of
a person's, how the run goes on or ends."""


class Worth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a correct candidate is worth."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's 95 % interval, or a score; null: not timed."""
    speedup: float | None = None
    """Median against the reference; null for scores and where nothing was timed."""
    speedup_high: float | None = None
    latency_us: float | None = None
    is_least: bool = False
    """`speedup` is the least that it may be: its time could not be told."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action of the tree as it is after a record."""

    node_id: str
    parent_id: str
    """Empty for the root."""
    title: str
    state: NodeState
    priority: float = 0.0
    """V, as the planner's model last said it."""
    difficulty: int = 1
    depth: int = 0
    origin: Origin = "model"
    second_id: str = ""
    expected_gain: float | None = None
    best: Worth | None = None
    """Of its branches that ended; see `JobView` for what is under way."""
    rounds: int = 0
    tries: int = 0
    fates: tuple[tuple[Fate, int], ...] = ()
    in_flight: int = 0
    """Branches at work on it."""
    prune_reason: str = ""
    spent: bool = False
    pinned: bool = False
    boost: float = 0.0
    forbidden: bool = False
    """It, or an action above it."""


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of work, from the record that asked for it to the one that answered."""

    job_id: str
    verb: JobVerb
    node_id: str
    """`n0` for the planner's calls."""
    began_s: float
    """Seconds of the run at which it was asked for: queueing is included."""
    ended_s: float | None = None
    """Null: under way."""
    busy_s: float | None = None
    """Of the time between, what its worker itself says that it took; null: it does not say."""
    branch_id: str = ""
    candidate_id: str = ""
    worker: str = ""
    """Process that did it; empty in a run of one process."""
    unit: str = ""
    """Device of an evaluation, as its evaluator names it; the model's name of a question."""
    result: str = ""
    """Verdict's tag, `built`, `written`, `unusable`, `edits`, `refused`, `lost`, `dropped`; empty: under way."""


class AttemptView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt, or one draft of it, that has its outcome."""

    node_id: str
    branch_id: str
    fate: Fate
    outcome: str
    round: int = 0
    """0: nothing was evaluated for it."""
    candidate_id: str = ""
    worth: Worth | None = None
    repeats_known: bool = False
    """It wrote what another attempt had written."""


class ConfirmationView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A candidate that was measured a second time: from then on it counts for what that said, not its attempt."""

    candidate_id: str
    fate: Fate
    outcome: str
    worth: Worth | None = None
    """Null: it was refuted."""
    screen_speedup: float
    """What its first measurement had said."""


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A new incumbent: a step of the best-so-far curve."""

    candidate_id: str
    node_id: str
    round: int
    """In which it was screened."""
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
    """What its first measurement had said; null if it was measured once."""
    workloads: tuple[TimedWorkload, ...] = ()


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for people."""

    kind: NoteKind
    text: str
    node_id: str = ""


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
    """Of the answers whose price is known."""
    unpriced_calls: int = 0
    """Answers whose price is not."""
    fates: dict[str, int] = msgspec.field(default_factory=dict)
    """Attempts by fate; `duplicate` counts those that wrote a known candidate."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """Failed tries of model calls, by kind."""
    best_id: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is: told once, and again when it goes on with another budget."""

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
    """Candidates have scores instead of speedups."""
    branches: int = 1
    world_model: str = "evolving"
    max_rounds: int = 0
    max_seconds: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    target_speedup: float | None = None
    models: tuple[str, ...] = ()
    """Planner's first; those that the run's line-up names."""
    roofline_us: float | None = None
    roofline_limited_by: str = ""
    workloads: tuple[str, ...] = ()
    summary: str = ""


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one record changed."""

    seq: int
    """Of the record: a reader that knows the run up to here goes on after it."""
    at: str
    """ISO 8601, UTC."""
    totals: Totals
    head: Head | None = None
    nodes: tuple[NodeView, ...] = ()
    """Those that changed, as they are now."""
    jobs: tuple[JobView, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    confirmations: tuple[ConfirmationView, ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[Note, ...] = ()
