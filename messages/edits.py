"""Edits of the tree that the planner's model may propose. Unknown fields are forbidden, machine-owned ones too."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Priority: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
"""V: how promising an action is, 0 to 1."""
Gain: TypeAlias = Annotated[float, msgspec.Meta(gt=0.0, le=10_000.0)]
"""Expected speedup of an action over its base: 1.3; below 1: a detour."""
Difficulty: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=5)]
Title: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
Description: TypeAlias = Annotated[str, msgspec.Meta(max_length=4000)]


class Proposal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new action, as a part of `split`."""

    title: Title
    description: Description
    difficulty: Difficulty
    priority: Priority
    expected_gain: Gain | None = None


class Insert(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="insert"):
    """Add an action under a node."""

    parent: str
    """Id of a node, or the `key` of an earlier insert of the same script."""
    title: Title
    description: Description
    difficulty: Difficulty
    priority: Priority
    expected_gain: Gain | None = None
    merge: str = ""
    """Id of a closed node of another branch with a technique to merge with the parent's code."""
    key: str = ""
    """A name for this insert inside the script; the machine gives the real id."""


class Update(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="update"):
    """Change beliefs about an action; null fields stay as they are."""

    node: str
    priority: Priority | None = None
    difficulty: Difficulty | None = None
    title: Title | None = None
    description: Description | None = None
    expected_gain: Gain | None = None


class Prune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="prune"):
    """Give up an action. In flight: when its branch ends. Closed: it gets no further children."""

    node: str
    reason: str


class Split(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="split"):
    """Replace an open action by two to eight smaller ones under the same parent."""

    node: str
    into: Annotated[tuple[Proposal, ...], msgspec.Meta(min_length=2, max_length=8)]


Edit: TypeAlias = Insert | Update | Prune | Split


class EditScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the planner's model: its picture of the task, and edits that are checked as one."""

    summary: Annotated[str, msgspec.Meta(max_length=8000)] = ""
    """Knowledge about the task and the hardware; replaces the previous summary unless empty."""
    open_questions: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why an edit of a script cannot be applied."""

    index: int
    """Position in `EditScript.edits`; -1 for the script as a whole."""
    reason: str
