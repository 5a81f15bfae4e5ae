"""CUDA: how a candidate becomes `kernel.so`."""

from __future__ import annotations

from evaluators.hardware.vendors.nvidia.facts import gpu_facts
from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind
from evaluators.languages.compiled import CompiledSupport, tvm_ffi_flags, without_our_paths
from evaluators.languages.cpp import toolchain as cpp_toolchain
from evaluators.languages.cuda import contract, diagnostics, toolchain
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild

PRODUCT = "kernel.so"
_MEMORY_BYTES = 16 << 30
"""The compiler of the device takes 1 GiB for templates as large as CUTLASS's; this is address space."""
_TIMEOUT_S = 180.0


class CudaSupport(CompiledSupport):
    """Language `cuda`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "cuda.1"
    entry_point = contract.ENTRY_POINT
    runner: RunnerKind = "cuda_native"
    runs_on = "an NVIDIA GPU"
    units = (".cu",)

    def probe_target(self, device: str) -> Target:
        """Say what one GPU of this host needs: its architecture, by the compiler here."""
        facts = gpu_facts(device)
        return toolchain.probe(facts.name, facts.arch)

    def probe_builder(self, asked: Target) -> Target:
        """Say what the compiler here makes for a GPU; none need be here."""
        return toolchain.probe(asked.device, asked.arch)

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,
        workloads: tuple[CalledWith, ...] = (),  # noqa: ARG002 - the compiler needs none
    ) -> BuildPlan:
        """Return the compiler's command line. No flag comes from the candidate.

        Raises:
            EvaluatorError: no compiler, a strange architecture, or apache-tvm-ffi is wanted and not installed.
        """
        nvcc = toolchain.find_nvcc()
        host = f"-ccbin={cpp_toolchain.find_compiler()}"
        flags = (host, *contract.COMPILER_FLAGS, *toolchain.generation_flags(target.arch))
        found = (*toolchain.search_flags(nvcc), *tvm_ffi_flags(candidate))
        return BuildPlan(
            command=(nvcc.path, *flags, "-o", PRODUCT, *self.sources(candidate), *found),
            product=PRODUCT,
            memory_bytes=_MEMORY_BYTES,
            timeout_s=_TIMEOUT_S,
        )

    def explain_failure(self, log: str, candidate: Candidate) -> DidNotBuild:
        """Return the first error and the first errors' source lines."""
        return diagnostics.explain(without_our_paths(log), tuple(file.path for file in candidate.files))

    def summarize_remarks(self, log: str) -> str:
        """Return what each kernel needs, then warnings, bounded."""
        return diagnostics.summarize(without_our_paths(log))

    def explain_call_failure(self, status: int, log: str) -> Crashed:
        """Return what the function returned: by the contract the number of a CUDA error."""
        told = f" ({_ERRORS[status]})" if status in _ERRORS else ""
        return Crashed(reason=f"{self.entry_point} returned {status} instead of 0{told}", log=log)

    def describe(
        self,
        tensors: tuple[TensorSpec, ...],
        call: CallForm | None = None,
        entry_point: str = "",  # noqa: ARG002 - there is one
    ) -> str:
        """Tell the calling contract for these tensors."""
        return contract.describe(tensors, call)


CUDA = CudaSupport()

_ERRORS = {
    1: "cudaErrorInvalidValue: an argument of a launch or call is out of range",
    2: "cudaErrorMemoryAllocation: out of device memory",
    9: "cudaErrorInvalidConfiguration: a grid, block or amount of shared memory that this GPU does not take",
    98: "cudaErrorInvalidDeviceFunction: the kernel was not built for this GPU",
    209: "cudaErrorNoKernelImageForDevice: the kernel was not built for this GPU",
    700: "cudaErrorIllegalAddress: a kernel read or wrote outside of what is allocated",
    701: "cudaErrorLaunchOutOfResources: too many registers or too much shared memory for this number of threads",
    715: "cudaErrorIllegalInstruction: a kernel executed an instruction that this GPU does not have",
    716: "cudaErrorMisalignedAddress: a kernel accessed an address that is not a multiple of the access's size",
    717: "cudaErrorInvalidAddressSpace: an instruction was given an address of another kind of memory",
    719: "cudaErrorLaunchFailure: a kernel failed on the device",
    900: "cudaErrorStreamCaptureUnsupported: synchronising or allocating while calls are captured into a graph",
}
"""Errors that candidates meet (cudaError in driver_types.h), in plain words."""
