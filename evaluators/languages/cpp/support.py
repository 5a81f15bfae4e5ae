"""C++: how a candidate becomes `kernel.so`."""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.languages.base import BuildPlan, CalledWith, RunnerKind, check_exported
from evaluators.languages.cpp import contract, diagnostics, toolchain
from messages.base import EvaluatorError
from messages.calls import CallForm
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild

PRODUCT = "kernel.so"
_UNITS = (".cpp", ".cc", ".cxx")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MARCH = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


class CppSupport:
    """Language `cpp`; see `evaluators.languages.base.LanguageSupport`."""

    contract_version = "cpp.1"
    entry_point = contract.ENTRY_POINT
    runner: RunnerKind = "native"
    runs_on = "the CPU"
    not_timed = ""
    builds_for_tensors = False

    def probe_target(self, device: str) -> Target:  # noqa: ARG002 - there is one
        """Say what this host builds for."""
        return toolchain.probe()

    def probe_builder(self, asked: Target) -> Target:  # noqa: ARG002 - it builds for itself only
        """Say what this host builds for."""
        return toolchain.probe()

    def refuse(self, candidate: Candidate) -> DidNotBuild | None:
        """Say why the candidate cannot be given to the compiler, if so."""
        if _IDENTIFIER.fullmatch(candidate.entry_point) is None:
            return DidNotBuild(reason=f"entry point {candidate.entry_point!r} is no C identifier")
        if not _units(candidate):
            return DidNotBuild(reason=f"no file to compile: at least one must end in {', '.join(_UNITS)}")
        return None

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
        units = ("-o", PRODUCT, *_units(candidate))
        return BuildPlan(command=(*compiled, *units, *_tvm_ffi_flags(candidate)), product=PRODUCT)

    def explain_failure(self, log: str, candidate: Candidate) -> DidNotBuild:
        """Return the first error and the first errors' source lines."""
        return diagnostics.explain(_without_our_paths(log), tuple(file.path for file in candidate.files))

    def summarize_remarks(self, log: str) -> str:
        """Return warnings, bounded."""
        return diagnostics.bound(_without_our_paths(log))

    def check_product(self, product: Path, candidate: Candidate) -> DidNotBuild | None:
        """Look for the entry point in the shared library."""
        return check_exported(product, candidate.entry_point)

    def explain_load_failure(self, status: int, log: str) -> DidNotBuild | Crashed:
        """Return what the dynamic linker said."""
        return diagnostics.explain_load(status, log)

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


def _units(candidate: Candidate) -> tuple[str, ...]:
    """Return the files to compile; the others are headers."""
    return tuple(file.path for file in candidate.files if file.path.endswith(_UNITS))


def _tvm_ffi_flags(candidate: Candidate) -> tuple[str, ...]:
    if not any("tvm/ffi/" in file.text or "dlpack/" in file.text for file in candidate.files):
        return ()
    folder = toolchain.tvm_ffi_folder()
    if folder is None:
        raise EvaluatorError("apache-tvm-ffi is not installed: `pip install apache-tvm-ffi`", permanent=True)
    return ("-isystem", str(folder / "include"), f"-L{folder / 'lib'}", "-ltvm_ffi")


def _without_our_paths(log: str) -> str:
    folder = toolchain.tvm_ffi_folder()
    return log if folder is None else log.replace(str(folder), "<tvm-ffi>")
