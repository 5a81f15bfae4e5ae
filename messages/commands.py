"""Requests: what one actor asks of another through a work queue. A job carries whatever it needs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from messages.base import Language, Message
from messages.tasks import Action, AttemptBrief, Candidate, Target, TaskDescription, TaskSpec
from messages.verdicts import Verdict

WriteMode: TypeAlias = Literal["apply", "debug", "improve"]
"""`apply` an action to its parent's code, `debug` a failing attempt, `improve` a passing one."""

Purpose: TypeAlias = Literal["screen", "confirm"]
"""Why a candidate is timed. Results of different purposes are never mixed."""


class WriteCandidate(Message, frozen=True, kw_only=True, tag="write_candidate.v1"):
    """Ask a coder for one candidate."""

    job_id: str
    run_id: str
    branch_id: str
    language: Language
    mode: WriteMode
    task: TaskDescription
    action: Action
    base: Candidate | None = None
    """The code to build on: the better of parent and branch best. None: start from the reference."""
    base_outcome: str = ""
    """The base's verdict in one line."""
    current: Candidate | None = None
    """The branch's latest attempt where it is not the base: what failed, or what regressed."""
    current_verdict: Verdict | None = None
    history: tuple[AttemptBrief, ...] = ()
    complaint: str = ""
    """Why the previous answer could not be used."""
    sample: int = 0
    """Number of this draw for the same action; extra samples have numbers above 0."""


class BuildCandidate(Message, frozen=True, kw_only=True, tag="build_candidate.v1"):
    """Ask a builder to compile a candidate for a target. CPU only."""

    job_id: str
    run_id: str
    candidate: Candidate
    target: Target


class EvaluateCandidate(Message, frozen=True, kw_only=True, tag="evaluate_candidate.v1"):
    """Ask an evaluator to check and time a built candidate."""

    job_id: str
    run_id: str
    task: TaskSpec
    candidate: Candidate
    artifact_id: str
    target: Target
    purpose: Purpose = "screen"


Command: TypeAlias = WriteCandidate | BuildCandidate | EvaluateCandidate
