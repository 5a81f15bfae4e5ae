"""Modules: how a candidate becomes a program that a runner can import, on a CPU and on a GPU."""

from __future__ import annotations

from evaluators.hardware.vendors.nvidia.facts import gpu_facts
from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind
from evaluators.languages.programs import ProgramSupport, explain_call, headline, plan_reading
from evaluators.languages.python import contract, function_contract, toolchain
from evaluators.languages.python.ahead import calls_of, launches_kernels, plan_ahead
from evaluators.languages.python.inline import compiles_inside, plan_inline
from evaluators.languages.triton.ahead import ARCHITECTURES
from evaluators.runners.base import BAD_OUTPUT
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, Wrong


class PythonSupport(ProgramSupport):
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
        return plan_inline(candidate, target) if compiles_inside(candidate) else plan_reading(candidate, "module")

    def explain_call_failure(self, status: int, log: str) -> Crashed | Wrong:
        """Return what the call raised, or why what it returned is no output."""
        return Wrong(reason=f"bad output type: {headline(log)}") if status == BAD_OUTPUT else explain_call(log)

    def describe(self, tensors: tuple[TensorSpec, ...], call: CallForm | None = None, entry_point: str = "") -> str:
        """Tell the calling contract for these tensors."""
        if call is not None and call.calling != "module":
            return function_contract.describe(tensors, call, entry_point)
        return contract.describe(tensors, call)


class PythonGpuSupport(PythonSupport):
    """Language `python` on platform `cuda`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "python.cuda.3"
    runner: RunnerKind = "cuda_module"
    runs_on = "an NVIDIA GPU"
    builds_for_tensors = True

    def probe_target(self, device: str) -> Target:
        """Say which versions run candidates here, on which GPU."""
        facts = gpu_facts(device)
        return toolchain.probe_cuda(facts.name, facts.arch)

    def probe_builder(self, asked: Target) -> Target:
        """Say which versions there are here."""
        return toolchain.probe_cuda(asked.device, asked.arch)

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,
        workloads: tuple[CalledWith, ...] = (),
    ) -> BuildPlan:
        """Return the command that builds what is inside, or reads the sources, and compiles what calls would launch.

        Raises:
            EvaluatorError: it compiles inside, and what that needs is missing here.
        """
        plan = super().plan_build(candidate, target)
        calls = calls_of(workloads)
        if not calls or target.arch not in ARCHITECTURES or not launches_kernels(candidate):
            return plan
        return plan_ahead(candidate, target, calls, plan if compiles_inside(candidate) else None)


PYTHON = PythonSupport()
PYTHON_GPU = PythonGpuSupport()
