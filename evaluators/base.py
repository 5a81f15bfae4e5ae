"""Interfaces of builders and evaluators: verdicts on bad candidates, errors for our own faults."""

from __future__ import annotations

from typing import Protocol

import msgspec

from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.verdicts import DidNotBuild, Verdict


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a build."""

    outcome: Built | DidNotBuild
    cached: bool
    wall_s: float
    cpu_s: float


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and its cost."""

    verdict: Verdict
    device: str
    unit: str = ""
    """One of several equal devices of its host: `cuda:1`; empty if there is only one."""
    wall_s: float
    lease_s: float
    isolation: tuple[str, ...] = ()
    """Layers that isolated the candidate's process, as reported before it loaded the candidate."""


class Builder(Protocol):
    """Compiles candidates on CPU workers."""

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Build for the job's target, or find the artifact built before. Safe to call many times at once.

        Raises:
            messages.base.EvaluatorError: the toolchain, the disk or the target failed.
        """


class Evaluator(Protocol):
    """Checks and times built candidates."""

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate.

        Raises:
            messages.base.EvaluatorError: judge, artifact or device failed.
        """

    async def aclose(self) -> None:
        """End all processes."""
