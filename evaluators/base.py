"""Interfaces of builders and evaluators: verdicts on bad candidates, errors for our own faults."""

from __future__ import annotations

from typing import Protocol

import msgspec

from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.verdicts import DidNotBuild, Verdict


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a build went."""

    outcome: Built | DidNotBuild
    cached: bool
    wall_s: float
    cpu_s: float


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and what it cost."""

    verdict: Verdict
    device: str
    unit: str = ""
    """Which of several like devices of its host: `cuda:1`; empty where there is one."""
    wall_s: float
    lease_s: float
    isolation: tuple[str, ...] = ()
    """The layers that the candidate's process was kept behind, as it said before it loaded the candidate."""


class Builder(Protocol):
    """Compiles candidates on CPU workers."""

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Build for the job's target, or find the artifact built before. Safe to call many times at once.

        Raises:
            messages.base.EvaluatorError: the toolchain, the disk or the target is at fault.
        """


class Evaluator(Protocol):
    """Checks and times built candidates."""

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate.

        Raises:
            messages.base.EvaluatorError: judge, artifact or device is at fault.
        """

    async def aclose(self) -> None:
        """End all processes."""
