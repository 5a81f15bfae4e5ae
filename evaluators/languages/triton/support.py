"""Triton: how a candidate becomes a program that a runner can import."""

from __future__ import annotations

import sys
from pathlib import Path

from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind
from evaluators.languages.entry_points import programs_of, refuse_program
from evaluators.languages.triton import contract, diagnostics, toolchain
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild

_SYNTAX = Path(__file__).with_name("syntax.py")
_TIMEOUT_S = 30.0


class TritonSupport:
    """Language `triton`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "triton.1"
    entry_point = contract.ENTRY_POINT
    runner: RunnerKind = "interpreted"
    runs_on = "an NVIDIA GPU"
    not_timed = "Triton's interpreter tells nothing about speed"
    builds_for_tensors = False

    def probe_target(self, device: str) -> Target:  # noqa: ARG002 - there is one
        """Say what interprets candidates here."""
        return toolchain.probe()

    def probe_builder(self, asked: Target) -> Target:  # noqa: ARG002 - it builds for itself only
        """Say what this host builds for."""
        return toolchain.probe()

    def refuse(self, candidate: Candidate) -> DidNotBuild | None:
        """Say why the candidate cannot be given to Python, if so."""
        return refuse_program(candidate)

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,  # noqa: ARG002 - one program for all
        workloads: tuple[CalledWith, ...] = (),  # noqa: ARG002 - nothing is called
    ) -> BuildPlan:
        """Return the command that reads the sources: nothing of them is executed before they are called."""
        command = (sys.executable, "-I", "-S", str(_SYNTAX), candidate.entry_point, *programs_of(candidate))
        return BuildPlan(command=command, product=candidate.files[0].path, timeout_s=_TIMEOUT_S)

    def explain_failure(self, log: str, candidate: Candidate) -> DidNotBuild:  # noqa: ARG002 - it names files itself
        """Return the first error with its source line."""
        return diagnostics.explain_build(log)

    def summarize_remarks(self, log: str) -> str:
        """Return what was printed, bounded."""
        return diagnostics.bound(log)

    def check_product(self, product: Path, candidate: Candidate) -> DidNotBuild | None:  # noqa: ARG002
        """Find nothing missing: the product is the candidate's own file."""
        return None

    def explain_load_failure(self, status: int, log: str) -> DidNotBuild:  # noqa: ARG002 - both mean the same here
        """Return what importing the program raised, or why its entry point cannot be called."""
        return diagnostics.explain_build(log)

    def explain_call_failure(self, status: int, log: str) -> Crashed:  # noqa: ARG002 - a call raises or does not
        """Return what the call raised."""
        return diagnostics.explain_call(log)

    def describe(
        self,
        tensors: tuple[TensorSpec, ...],
        call: CallForm | None = None,
        entry_point: str = "",  # noqa: ARG002 - there is one
    ) -> str:
        """Tell the calling contract for these tensors."""
        return contract.describe(tensors, call=call)


TRITON = TritonSupport()
