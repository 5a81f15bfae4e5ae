"""What a run begins with that another has found: a tree, and candidates that are measured anew before they count."""

from __future__ import annotations

from messages.base import Message
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
    """What came of it there, in one line: told, and never taken for a measurement of this run."""
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
