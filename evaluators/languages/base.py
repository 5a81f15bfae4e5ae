"""What building and describing ask of a language."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild

RunnerKind: TypeAlias = Literal["native", "interpreted"]
"""Which of `evaluators/runners/` calls what was built."""


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to build one candidate. All paths are relative to the folder that holds its files."""

    command: tuple[str, ...]
    product: str
    """File that the command makes."""
    memory_bytes: int = 4 << 30
    product_bytes: int = 256 << 20
    timeout_s: float = 60.0


class LanguageSupport(Protocol):
    """One language: its toolchain, and its calling contract."""

    contract_version: str
    """Part of every artifact's id; changes with the contract or the way of building."""
    entry_point: str
    runner: RunnerKind
    runs_on: str
    """What programs are to be fast on, as a coder is told."""
    not_timed: str
    """Why this host cannot say how fast they are; empty where candidates are timed."""

    def probe_target(self) -> Target:
        """Say what this host builds for and runs.

        Raises:
            messages.errors.EvaluatorError: there is no usable toolchain; the text says what to install.
        """

    def refuse(self, candidate: Candidate) -> DidNotBuild | None:
        """Say why the candidate cannot even be given to the compiler, if so."""

    def plan_build(self, candidate: Candidate, target: Target) -> BuildPlan:
        """Return how to build it; the same candidate and target always give the same plan."""

    def explain_failure(self, log: str, candidate: Candidate) -> DidNotBuild:
        """Read a failed compiler's output: the first error, and a bounded log without paths of this host."""

    def summarize_remarks(self, log: str) -> str:
        """Bound and clean what a successful compiler printed."""

    def check_product(self, product: Path, candidate: Candidate) -> DidNotBuild | None:
        """Say what is missing from the product, if something is."""

    def explain_load_failure(self, status: int, log: str) -> DidNotBuild | Crashed:
        """Say why a runner could not load the product.

        Args:
            status: the runner's; `NOT_LOADED` or `NO_ENTRY_POINT` of `evaluators/runners/base.py`.
            log: what was printed, without paths of this host.
        """

    def explain_call_failure(self, status: int, log: str) -> Crashed:
        """Say why a call did not go well: its status was not 0."""

    def describe(self, tensors: tuple[TensorSpec, ...]) -> str:
        """Tell the calling contract for these tensors, as prose and code for a model."""
