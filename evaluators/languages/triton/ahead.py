"""Ahead-of-time compilation of a Triton candidate, on a host without a GPU.

The candidate's `ksearch_run` is called on tensors without data, in a process of its own under a guard; its launches are
compiled instead of executed (`recording.py`). That a kernel compiles says nothing about its numbers or its speed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import msgspec

import evaluators
from evaluators.build.folders import foreign_entry, remove_tree
from evaluators.languages.programs import headline
from evaluators.process.guarded import GuardJob, GuardReport, plain_environment, run_guarded
from evaluators.process.sandbox.profiles import readable_by
from evaluators.runners.structure import with_numbers
from messages.base import ConfigError, EvaluatorError
from messages.calls import CallForm
from messages.tasks import Candidate, TensorSpec

ARCHITECTURES = {
    "sm_80": 166_912,
    "sm_86": 101_376,
    "sm_89": 101_376,
    "sm_90": 232_448,
    "sm_100": 232_448,
    "sm_120": 101_376,
}
"""Shared memory that a block may have, in bytes (CUDA C++ programming guide, table of compute capabilities)."""

_LIMIT_S = 180.0
_MEMORY_BYTES = 64 << 30
_FILE_BYTES = 256 << 20
_REPORT, _LOG = "report.json", "log"


class CompiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel that was launched, for the types it was launched with."""

    name: str
    error: str = ""
    """The compiler's error and its place. Empty if it compiles."""
    registers: int | None = None
    """Per thread."""
    spilled_bytes: int | None = None
    """Registers written to local memory, per thread."""
    shared_bytes: int | None = None
    """Shared memory per block."""
    warps: int | None = None
    stages: int | None = None


class AheadReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of compiling a candidate ahead of time."""

    arch: str
    kernels: tuple[CompiledKernel, ...] = ()
    """In the order of their first launch."""
    error: str = ""
    """Why `ksearch_run` did not come to its end, if so; what it launched before is in `kernels`."""

    @property
    def compiles(self) -> bool:
        """True if every kernel that it launches compiles, and there is one."""
        return not self.error and bool(self.kernels) and not any(kernel.error for kernel in self.kernels)

    @property
    def reason(self) -> str:
        """Why it does not compile, in one line; empty if it does."""
        for kernel in self.kernels:
            if kernel.error:
                return f"{kernel.name}: {headline(kernel.error)}"
        if self.error:
            return headline(self.error)
        return "" if self.kernels else "no kernel was launched"


Argument: TypeAlias = tuple[tuple[int, ...], str] | bool | int | float
"""An argument of the entry point: a tensor's shape and dtype, or a number."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the compiling process; see `recording.py`."""

    folder: str
    program: str
    entry_point: str
    tensors: tuple[Argument, ...]
    others: tuple[tuple[Argument, ...], ...]
    """The same of each further workload."""
    capability: int
    shared_bytes: int
    """Limit of a block."""
    report: str = ""
    """File for the report."""


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    kernels: tuple[CompiledKernel, ...]
    error: str


def arguments_of(tensors: Sequence[TensorSpec], call: CallForm | None) -> tuple[Argument, ...]:
    """Return what the entry point is given on a workload: tensors, and among them the numbers of the call's form."""
    given = [(spec.shape, spec.dtype) for spec in tensors]
    return tuple(given if call is None else with_numbers(msgspec.to_builtins(call.arguments), given))  # type: ignore[arg-type]


def check_architecture(arch: str) -> None:
    """Refuse what cannot be compiled for."""
    if arch not in ARCHITECTURES:
        raise ConfigError(f"cannot compile for {arch!r}; there are: {', '.join(ARCHITECTURES)}")


def capability_of(arch: str) -> int:
    """Return 90 for `sm_90`."""
    return int(arch.removeprefix("sm_"))


async def compile_ahead(
    candidate: Candidate,
    tensors: Sequence[TensorSpec],
    *,
    arch: str = "sm_90",
    others: Sequence[Sequence[TensorSpec]] = (),
    calls: Sequence[CallForm] = (),
) -> AheadReport:
    """Compile every kernel that a candidate launches for tensors like these. Takes seconds.

    Args:
        candidate: in Triton; its first file holds the entry point.
        tensors: as a `TaskDescription` lists them: what the entry point is called with.
        arch: one of `ARCHITECTURES`.
        others: tensors of further workloads, for which it is compiled as well.
        calls: what it is called with besides tensors, of each workload; may be empty.

    Raises:
        ConfigError: another architecture.
        EvaluatorError: the compiling process could not do its work.
    """
    check_architecture(arch)
    folder = Path(await anyio.to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="ksearch-ahead-")))
    try:
        workloads = [arguments_of(*told) for told in zip_longest([tensors, *others], calls[: 1 + len(others)])]
        recording = await anyio.to_thread.run_sync(_lay_out, folder, candidate, workloads, arch)
        guard = await _run(recording, folder)
        return await anyio.to_thread.run_sync(_read, folder, guard, arch)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_tree, folder)


def _lay_out(folder: Path, candidate: Candidate, workloads: Sequence[tuple[Argument, ...]], arch: str) -> Recording:
    sources = folder / "sources"
    for file in candidate.files:
        path = sources / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8", errors="surrogatepass", newline="")
    tensors, *others = workloads
    return Recording(
        folder=str(sources),
        program=str(sources / candidate.files[0].path),
        entry_point=candidate.entry_point,
        tensors=tensors,
        others=tuple(others),
        capability=capability_of(arch),
        shared_bytes=ARCHITECTURES[arch],
        report=str(folder / _REPORT),
    )


async def _run(recording: Recording, folder: Path) -> GuardReport:
    script = "evaluators.languages.triton.recording"
    command = (sys.executable, "-P", "-m", script, msgspec.json.encode(recording).decode())
    job = GuardJob(
        command=command,
        wall_s=_LIMIT_S,
        memory_bytes=_MEMORY_BYTES,
        file_bytes=_FILE_BYTES,
        log_path=_LOG,
        isolation="auto",
        reads=await anyio.to_thread.run_sync(readable_by, command),
        scratch=str(folder),
    )
    environment = plain_environment(
        PYTHONPATH=str(Path(evaluators.__file__).parents[1]),
        PYTHONDONTWRITEBYTECODE="1",
        HOME=str(folder),
        TMPDIR=str(folder),
        TRITON_CACHE_DIR=str(folder / "cache"),
        TRITON_DUMP_PTXAS_LOG="1",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
    )
    return await run_guarded(job, cwd=folder, environment=environment)


def _read(folder: Path, guard: GuardReport, arch: str) -> AheadReport:
    if guard.how == "timed_out":
        return AheadReport(arch=arch, error=f"stopped after {_LIMIT_S:g} s")
    # The program could write here: a link would lead to a file of the user's.
    if found := foreign_entry(folder):
        return AheadReport(arch=arch, error=f"the program leaves {found}, where it is compiled")
    try:
        recorded = msgspec.json.decode((folder / _REPORT).read_bytes(), type=_Recorded)
    except (FileNotFoundError, msgspec.DecodeError) as error:
        log = (folder / _LOG).read_text(encoding="utf-8", errors="replace")
        last = (log.strip().splitlines() or ["it left no message"])[-1]
        if "ModuleNotFoundError" in last:
            raise EvaluatorError(f"cannot compile Triton here: {last}", permanent=True) from error
        return AheadReport(arch=arch, error=f"the compiling process ended early: {last[:300]}")
    return AheadReport(arch=arch, kernels=recorded.kernels, error=recorded.error)
