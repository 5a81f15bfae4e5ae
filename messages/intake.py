"""Whether a task can tell a kernel from a trick: what was found when its reference was run for the first time."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from messages.base import Message

Fitness: TypeAlias = Literal["fit", "marked", "refused"]
"""`marked`: a candidate could leave out part of the work and pass; `refused`: it could leave out all of it."""


class TrivialAnswer(Message, frozen=True, kw_only=True):
    """An answer that computes nothing, put through the task's own check."""

    name: str
    """`zeros`, `the mean everywhere`, `input x`, `the output for other inputs`."""
    passes: bool
    wrong_share: float
    """Share of the elements that the check finds wrong."""


class Influence(Message, frozen=True, kw_only=True):
    """What changing one tensor alone does to the outputs."""

    tensor: str
    role: Literal["input", "parameter", "buffer"]
    matters: bool | None
    """Whether any output moves by more than the tolerance; null: not looked at."""
    moved_share: float = 0.0
    """Share of the output elements that do."""
    why_not: str = ""
    """Why it was not looked at."""


class Intake(Message, frozen=True, kw_only=True):
    """The findings on a task; not for models, whom they would teach what to leave out."""

    fitness: Fitness
    findings: tuple[str, ...] = ()
    """Why it is not simply fit, a sentence each."""
    tolerance: str = ""
    """The profile that it holds for."""
    reference_us: float | None = None
    """About how long the reference takes in the judge, which is in no hurry."""
    answers: tuple[TrivialAnswer, ...] = ()
    influences: tuple[Influence, ...] = ()
    read_shares: dict[str, float] = msgspec.field(default_factory=dict)
    """Of the workloads that are shown (`""`: there is one), the share of the bytes of inputs and parameters that the
    outputs depend on for data as the task draws it; empty: not looked at."""
