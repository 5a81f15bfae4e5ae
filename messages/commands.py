"""Jobs in work queues. A job carries everything that its worker needs."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from messages.base import EditFormat, Language, Message
from messages.calls import CallForm
from messages.tasks import Action, AttemptBrief, Candidate, ModuleTerms, Target, TaskDescription, TaskSpec, TensorSpec
from messages.verdicts import Verdict, WorkloadProfile

WriteMode: TypeAlias = Literal["apply", "debug", "improve"]
"""`apply` an action to its parent's code, `debug` a failing attempt, `improve` a passing one."""

Purpose: TypeAlias = Literal["screen", "confirm"]
"""Reason for timing a candidate. Results of different purposes are never mixed."""


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
    base_profile: tuple[WorkloadProfile, ...] = ()
    """GPU activity in a call of the base; empty: unknown."""
    second: Candidate | None = None
    """A candidate of another branch with a technique to merge into the base; None: nothing is merged."""
    second_outcome: str = ""
    """The second candidate's verdict in one line."""
    current: Candidate | None = None
    """The branch's latest attempt if it is not the base: one that failed, or that is slower."""
    current_verdict: Verdict | None = None
    history: tuple[AttemptBrief, ...] = ()
    complaint: str = ""
    """Complaint about the previous answer."""
    instructions: tuple[str, ...] = ()
    """Instructions of people, oldest first."""
    target: Target | None = None
    """Device to write for; null: the one in the task's text."""
    edit_format: EditFormat = "whole"
    sample: int = 0
    """Number of this draw for the same action; extra samples have numbers above 0."""
    model: str = ""
    """Coder model to call; empty: the coder's only one."""


class BuildCandidate(Message, frozen=True, kw_only=True, tag="build_candidate.v1"):
    """Ask a builder to compile a candidate for a target. CPU only."""

    job_id: str
    run_id: str
    candidate: Candidate
    target: Target
    tensors: tuple[TensorSpec, ...] = ()
    """Tensors of the task, for languages with kernels that are compiled for their calls; empty: unknown."""
    other_tensors: tuple[tuple[TensorSpec, ...], ...] = ()
    """The same of each further workload."""
    modules: tuple[ModuleTerms, ...] = ()
    """Construction of torch modules, of each workload; empty: unknown, or none."""
    calls: tuple[CallForm, ...] = ()
    """Call form of each workload; empty: tensors one after the other, or unknown."""

    def for_task(self, described: TaskDescription) -> BuildCandidate:
        """Return the same job with the calls of a task."""
        return msgspec.structs.replace(
            self,
            tensors=described.tensors,
            other_tensors=described.other_tensors,
            modules=described.modules,
            calls=described.calls,
        )


class EvaluateCandidate(Message, frozen=True, kw_only=True, tag="evaluate_candidate.v1"):
    """Ask an evaluator to check and time a built candidate."""

    job_id: str
    run_id: str
    task: TaskSpec
    candidate: Candidate
    artifact_id: str
    artifact_blob: str = ""
    """Address of the artifact if the evaluator's store lacks it; see `Built.blob`."""
    target: Target
    purpose: Purpose = "screen"
    profile: bool = False
    """Record the calls of a measured candidate on a GPU. Confirmations are recorded in any case."""
    keep_above: float | None = None
    """Timing ends early, or does not begin, with `outpaced`, if the speedup is clearly below. None: the evaluator's own
    rules. 0: slow candidates are measured, too, as far as a minute of timing suffices."""


Command: TypeAlias = WriteCandidate | BuildCandidate | EvaluateCandidate
