"""Modules: how a candidate becomes a program that a runner can import."""

from __future__ import annotations

import sys
from pathlib import Path

from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind, programs_of, refuse_program
from evaluators.languages.python import contract, diagnostics, function_contract, toolchain
from evaluators.languages.python.inline import compiles_inside, plan_inline
from evaluators.runners.base import BAD_OUTPUT
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild, Wrong

_SYNTAX = Path(__file__).with_name("syntax.py")
_TIMEOUT_S = 30.0


class PythonSupport:
    """Language `python`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "python.2"
    entry_point = contract.ENTRY_POINT
    runner: RunnerKind = "module"
    runs_on = "the CPU"
    not_timed = ""
    builds_for_tensors = False

    def probe_target(self, device: str) -> Target:  # noqa: ARG002 - there is one
        """Say what runs candidates here."""
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
        target: Target,
        workloads: tuple[CalledWith, ...] = (),  # noqa: ARG002 - nothing is called
    ) -> BuildPlan:
        """Return the command that reads the sources; those that compile inside are executed by it, others are not.

        Raises:
            EvaluatorError: it compiles inside, and what that needs is missing here.
        """
        if compiles_inside(candidate):
            return plan_inline(candidate, target)
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
        """Return what importing or making the module raised, or why its parameters do not fit."""
        return diagnostics.explain_build(log)

    def explain_call_failure(self, status: int, log: str) -> Crashed | Wrong:
        """Return what the call raised, or why what it returned is no output."""
        return diagnostics.explain_output(log) if status == BAD_OUTPUT else diagnostics.explain_call(log)

    def describe(self, tensors: tuple[TensorSpec, ...], call: CallForm | None = None, entry_point: str = "") -> str:
        """Tell the calling contract for these tensors."""
        if call is not None and call.calling != "module":
            return function_contract.describe(tensors, call, entry_point)
        return contract.describe(tensors, call)


PYTHON = PythonSupport()
