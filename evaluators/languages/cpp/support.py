"""C++: how a candidate becomes `kernel.so`."""

from __future__ import annotations

import re

from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind
from evaluators.languages.compiled import CompiledSupport, tvm_ffi_flags, without_our_paths
from evaluators.languages.cpp import contract, diagnostics, toolchain
from messages.base import EvaluatorError
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild

PRODUCT = "kernel.so"
_MARCH = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


class CppSupport(CompiledSupport):
    """Language `cpp`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "cpp.1"
    entry_point = contract.ENTRY_POINT
    runner: RunnerKind = "native"
    runs_on = "the CPU"
    units = (".cpp", ".cc", ".cxx")

    def probe_target(self, device: str) -> Target:  # noqa: ARG002 - there is one
        """Say what this host builds for."""
        return toolchain.probe()

    def probe_builder(self, asked: Target) -> Target:  # noqa: ARG002 - it builds for itself only
        """Say what this host builds for."""
        return toolchain.probe()

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,
        workloads: tuple[CalledWith, ...] = (),  # noqa: ARG002 - the compiler needs none
    ) -> BuildPlan:
        """Return the compiler's command line. No flag comes from the candidate.

        Raises:
            EvaluatorError: no compiler, a strange `-march`, or apache-tvm-ffi is wanted and not installed.
        """
        if _MARCH.fullmatch(target.march) is None:
            raise EvaluatorError(f"{target.march!r} is no -march value", permanent=True)
        compiled = (toolchain.find_compiler(), *contract.COMPILER_FLAGS, f"-march={target.march}")
        units = ("-o", PRODUCT, *self.sources(candidate))
        return BuildPlan(command=(*compiled, *units, *tvm_ffi_flags(candidate)), product=PRODUCT)

    def explain_failure(self, log: str, candidate: Candidate) -> DidNotBuild:
        """Return the first error and the first errors' source lines."""
        return diagnostics.explain(without_our_paths(log), tuple(file.path for file in candidate.files))

    def summarize_remarks(self, log: str) -> str:
        """Return warnings, bounded."""
        return diagnostics.bound(without_our_paths(log))

    def explain_call_failure(self, status: int, log: str) -> Crashed:
        """Return what the function returned."""
        return Crashed(reason=f"{self.entry_point} returned {status} instead of 0", log=log)

    def describe(
        self,
        tensors: tuple[TensorSpec, ...],
        call: CallForm | None = None,
        entry_point: str = "",  # noqa: ARG002 - there is one
    ) -> str:
        """Tell the calling contract for these tensors."""
        return contract.describe(tensors, call)


CPP = CppSupport()
