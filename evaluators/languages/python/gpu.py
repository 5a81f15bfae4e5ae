"""Modules on a GPU: the same programs, whatever they build inside."""

from __future__ import annotations

import platform

from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind
from evaluators.languages.python.ahead import calls_of, launches_kernels, plan_ahead
from evaluators.languages.python.inline import compiles_inside
from evaluators.languages.python.support import PythonSupport
from evaluators.languages.triton.ahead import ARCHITECTURES
from evaluators.languages.triton.toolchain import installed
from evaluators.vendors.nvidia.facts import gpu_facts
from messages.tasks import Candidate, Target


class PythonGpuSupport(PythonSupport):
    """Language `python` on platform `cuda`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "python.cuda.3"
    runner: RunnerKind = "cuda_module"
    runs_on = "an NVIDIA GPU"
    builds_for_tensors = True

    def probe_target(self, device: str) -> Target:
        """Say which versions run candidates here, on which GPU."""
        facts = gpu_facts(device)
        return Target(arch=facts.arch, march="", toolchain=_toolchain(), device=facts.name)

    def probe_builder(self, asked: Target) -> Target:
        """Say which versions there are here."""
        return Target(arch=asked.arch, march="", toolchain=_toolchain(), device=asked.device)

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


def _toolchain() -> str:
    found = [f"{name} {installed(name)}" for name in ("torch", "triton")]
    return ", ".join((*found, f"Python {platform.python_version()}"))


PYTHON_GPU = PythonGpuSupport()
