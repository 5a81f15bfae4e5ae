"""Settings of a search that its journal holds: budget, search, and what it started from.

They come from people, so unknown fields are refused, in a journal as well: after the first release a new field means a
new version of `run.started` and `search.opened`, which an older release then names as such.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from messages.base import EditFormat, Message
from messages.tasks import Candidate


class InheritedNode(Message, frozen=True, kw_only=True):
    """An action of an earlier run."""

    parent: int
    """Place of its parent among the inherited nodes, which comes before it; -1: the root."""
    title: str
    description: str
    difficulty: int
    priority: float
    earlier: str = ""
    """Its result there, in one line: shown to models, and never taken for a measurement of this run."""
    pruned: str = ""
    """Why it was given up there; it stays so."""
    candidate: Candidate | None = None
    """Its best candidate there, where task, device and toolchain agree: the first attempt when the action is chosen."""


class Heritage(Message, frozen=True, kw_only=True):
    """The world model of an earlier run."""

    origin: str
    """The run, or the file, for people."""
    summary: str = ""
    open_questions: tuple[str, ...] = ()
    nodes: tuple[InheritedNode, ...] = ()
    """Parents before their children."""


Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Weight: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0)]
WorldModel: TypeAlias = Literal["evolving", "frozen", "off"]
"""How much of the tree is the planner's model's: `evolving`: it revises the tree as results come in (K-Search);
`frozen`: it is asked once, for the first actions; `off`: never. The machine then supplies the rest: direct attempts,
and variations of the best results."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to stop; null means without limit."""

    max_rounds: Positive = 40
    """Evaluations; a candidate that does not build counts as one."""
    wall_clock_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_calls: Positive | None = None
    """Questions to models, planner and coders together: answered ones, and those under way when a run was stopped."""
    max_tokens: Positive | None = None
    """Prompts included. Nothing is asked with an answer that is not expected to fit, along with all that is under
    way."""
    max_cost_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """US dollars for models, by the run's prices; likewise."""
    target_speedup: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Stop once the incumbent's credit reaches it."""


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the next node is chosen; see `actors/planner/core/selection.py` for the formula."""

    rule: Literal["auto", "paper", "spread"] = "auto"
    """`paper`: largest V, ties to the simpler (K-Search). `spread`: with evidence, exploration and virtual loss.
    `auto`: `paper` with one branch, `spread` with more."""
    exploration: Weight = 0.15
    virtual_loss: Weight = 0.25
    """Taken off a node's score for each branch in flight on its siblings or under its parent."""
    evidence: Weight = 0.2
    difficulty: Weight = 0.04
    """Taken off per step of difficulty above 1."""
    failure_decay: Share = 0.5
    """A node's V is multiplied by this for each branch on it that ended without a correct candidate."""
    patience: Weight = 0.2
    """Under `spread`, a branch's window shrinks by a factor of e for each step of this size (a logarithm of speedups)
    that its best is behind the incumbent: 10 % behind it is 0.6 K, 30 % behind 0.2 K, never less than one attempt.
    0: it does not shrink."""


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that decide the course of a search, besides the models and the seed."""

    world_model: WorldModel = "evolving"
    branches: Positive = 4
    """Branches refined at once: the slots."""
    stagnation_window: Positive = 3
    """K: a branch ends after this many attempts in a row without improvement (K-Search, section 3, which has 5)."""
    repair_window: Positive | None = 5
    """The same as long as a branch has no correct candidate: this many attempts in a row may fail. Null: K as well."""
    samples: Positive = 1
    """Drafts of one attempt that are written and evaluated at once; the best goes on."""
    max_difficulty: Annotated[int, msgspec.Meta(ge=1, le=5)] = 5
    """Harder actions wait until nothing easier is open."""
    max_new_nodes: Positive = 8
    """Inserts (and parts of splits) that one script may hold, unless more were asked for."""
    max_tries: Positive = 3
    """Branches on one node that may end without a correct candidate before it is given up."""
    refusals: Annotated[int, msgspec.Meta(ge=0)] = 2
    """Times that a script with conflicts is refused as a whole and asked for again."""
    max_idle_attempts: Positive = 60
    """Attempts in a row that led to no evaluation (known candidates, unusable answers) before the search ends."""
    max_lost: Positive = 5
    """Jobs in a row that the infrastructure lost before the run gives up, to be resumed later."""
    confirm: bool = True
    """A timed candidate is measured a second time before it becomes the incumbent."""
    edit_format: EditFormat = "auto"
    budget: Budget = Budget()
    selection: Selection = Selection()
