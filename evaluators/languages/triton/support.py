"""Triton: how a candidate becomes a program that a runner can import."""

from __future__ import annotations

import msgspec

from evaluators.hardware.vendors.nvidia.facts import gpu_facts
from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind
from evaluators.languages.cpp.diagnostics import bound
from evaluators.languages.programs import (
    ADDRESS_SPACE_BYTES,
    MEMORY_BYTES,
    ProgramSupport,
    command_of,
    explain_call,
    plan_reading,
    programs_of,
)
from evaluators.languages.triton import contract, toolchain
from evaluators.languages.triton.ahead import ARCHITECTURES, Argument, arguments_of, capability_of
from evaluators.runners.kernels import KERNELS, LAUNCHER
from messages.base import EvaluatorError
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed

_MODULE = "evaluators.languages.triton.building"
_GPU_TIMEOUT_S = 120.0
_MOST_APART = 64


class TritonSupport(ProgramSupport):
    """Language `triton`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "triton.1"
    entry_point = contract.ENTRY_POINT
    runner: RunnerKind = "interpreted"
    runs_on = "an NVIDIA GPU"
    further_rules = contract.INTERPRETED
    not_timed = "Triton's interpreter tells nothing about speed"
    builds_for_tensors = False

    def probe_target(self, device: str) -> Target:  # noqa: ARG002 - there is one
        """Say what interprets candidates here."""
        return toolchain.probe()

    def probe_builder(self, asked: Target) -> Target:  # noqa: ARG002 - it builds for itself only
        """Say what this host builds for."""
        return toolchain.probe()

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,  # noqa: ARG002 - one program for all
        workloads: tuple[CalledWith, ...] = (),  # noqa: ARG002 - nothing is called
    ) -> BuildPlan:
        """Return the command that reads the sources: nothing of them is executed before they are called."""
        return plan_reading(candidate, "kernels")

    def explain_call_failure(self, status: int, log: str) -> Crashed:  # noqa: ARG002 - a call raises or does not
        """Return what the call raised."""
        return explain_call(log)

    def describe(
        self,
        tensors: tuple[TensorSpec, ...],
        call: CallForm | None = None,
        entry_point: str = "",  # noqa: ARG002 - there is one
    ) -> str:
        """Tell the calling contract for these tensors."""
        return contract.describe(tensors, self.further_rules, call)


class BuildJob(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the building process; see `building.py`."""

    entry_point: str
    program: str
    """The main file."""
    programs: tuple[str, ...]
    tensors: tuple[Argument, ...]
    """Shape and dtype of each tensor, and numbers; empty: unknown, nothing is compiled."""
    others: tuple[tuple[Argument, ...], ...] = ()
    """The same for each further workload."""
    capability: int
    shared_bytes: int
    """Limit of a block."""
    most_apart: int = _MOST_APART
    """Further configurations of autotuned kernels that are compiled."""
    memory_bytes: int = MEMORY_BYTES
    """Address space for compiling, besides what importing took."""


class TritonGpuSupport(TritonSupport):
    """Language `triton` on platform `cuda`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "triton.cuda.3"
    runner: RunnerKind = "cuda_triton"
    further_rules = contract.ON_GPU
    not_timed = ""
    builds_for_tensors = True

    def probe_target(self, device: str) -> Target:
        """Say what one GPU of this host needs, and the versions that compile for it here."""
        facts = gpu_facts(device)
        return toolchain.probe_cuda(facts.name, facts.arch)

    def probe_builder(self, asked: Target) -> Target:
        """Say which versions compile here for a GPU; none need be here."""
        return toolchain.probe_cuda(asked.device, asked.arch)

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,
        workloads: tuple[CalledWith, ...] = (),
    ) -> BuildPlan:
        """Return the command that reads the sources, and compiles what a call with such tensors launches.

        Raises:
            EvaluatorError: an architecture that Triton does not compile for here.
        """
        if target.arch not in ARCHITECTURES:
            raise EvaluatorError(
                f"Triton candidates are compiled for {', '.join(ARCHITECTURES)}, not for {target.arch!r}",
                permanent=True,
            )
        job = BuildJob(
            entry_point=candidate.entry_point,
            program=candidate.files[0].path,
            programs=programs_of(candidate),
            tensors=arguments_of(workloads[0].tensors, workloads[0].call) if workloads else (),
            others=tuple(arguments_of(each.tensors, each.call) for each in workloads[1:]),
            capability=capability_of(target.arch),
            shared_bytes=ARCHITECTURES[target.arch],
        )
        return BuildPlan(
            command=command_of(_MODULE, msgspec.json.encode(job).decode()),
            product=candidate.files[0].path,
            memory_bytes=ADDRESS_SPACE_BYTES,
            timeout_s=_GPU_TIMEOUT_S,
            warm=_MODULE if workloads else "",
            leaves=rf"{KERNELS}/[^/]+/([^/]+\.(json|source|ttir|ttgir|llir|ptx|cubin)|{LAUNCHER})",
        )

    def summarize_remarks(self, log: str) -> str:
        """Return what each kernel needs, bounded."""
        return bound(log)


TRITON = TritonSupport()
TRITON_GPU = TritonGpuSupport()
