"""The interface of a language, and the arguments of an entry point."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from evaluators.hardware.roofline import Hardware
from messages.base import ConfigError
from messages.calls import CallForm, Number
from messages.tasks import Candidate, ModuleTerms, Platform, Target, TensorSpec
from messages.verdicts import Crashed, DidNotBuild, Wrong

Passed: TypeAlias = TensorSpec | Number


def passed(tensors: tuple[TensorSpec, ...], call: CallForm | None) -> tuple[Passed, ...]:
    """Return inputs with numbers in their places, then the state, then outputs."""
    given: list[Passed] = list(tensors)
    for number in call.numbers if call is not None else ():
        given.insert(number.place, number)
    return tuple(given)


def dtype_of(number: Number) -> str:
    """Return what kind of number it is, as torch would call it."""
    if isinstance(number.value, bool):
        return "bool"
    return "int64" if isinstance(number.value, int) else "float64"


def shape_text(tensor: TensorSpec) -> str:
    """Return a shape as Python writes a tuple."""
    return f"({', '.join(map(str, tensor.shape))}{',' if len(tensor.shape) == 1 else ''})"


def check_dtypes(tensors: tuple[TensorSpec, ...], types: Mapping[str, str], language: str) -> None:
    """Refuse tensors that a language cannot be given.

    Raises:
        ConfigError: a dtype has no declaration.
    """
    for tensor in tensors:
        if tensor.dtype not in types:
            raise ConfigError(
                f"tensor {tensor.name!r} is {tensor.dtype}; {language} candidates can be given: {', '.join(types)}"
            )


IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

RunnerKind: TypeAlias = Literal["native", "interpreted", "module", "cuda_native", "cuda_triton", "cuda_module"]
"""Which of `evaluators/runners/` calls what was built."""

TRITON_RUNNERS: frozenset[RunnerKind] = frozenset(("interpreted", "cuda_triton"))
"""Those in which every call of a candidate launches a kernel of its own."""
MODULE_RUNNERS: frozenset[RunnerKind] = frozenset(("module", "cuda_module"))
"""Those with candidates that hold the reference's parameters themselves, and return their outputs."""
TORCH_RUNNERS: frozenset[RunnerKind] = TRITON_RUNNERS | MODULE_RUNNERS
"""Those in which a candidate could call torch's operators."""


class CalledWith(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a candidate's calls on one workload."""

    tensors: tuple[TensorSpec, ...]
    module: ModuleTerms | None = None
    """Construction of the candidate, if it is a torch module; None: it is none, or unknown."""
    call: CallForm | None = None
    """Arguments besides tensors one after the other; None: none."""


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The build of one candidate. All paths are relative to the folder that holds its files."""

    command: tuple[str, ...]
    product: str
    """File that the command makes."""
    memory_bytes: int = 4 << 30
    product_bytes: int = 256 << 20
    timeout_s: float = 60.0
    warm: str = ""
    """Module that does the same in a process forked from one that has imported what it needs: `prepare()`, and
    `main(argument)` with the command's last argument (`evaluators/process/warm.py`)."""
    leaves: str | None = None
    """Where building executes the candidate: which files it makes besides the candidate's own, as a regular expression
    for their whole path. Others are removed, since runners could import them unchecked."""


class LanguageSupport(Protocol):
    """One language: its toolchain, and its calling contract."""

    contract_version: str
    """Part of every artifact's id; changes with the contract or the way of building."""
    entry_point: str
    runner: RunnerKind
    runs_on: str
    """Device on which programs are to be fast, for coders."""
    not_timed: str
    """Why this host cannot say how fast they are; empty where candidates are timed."""
    builds_for_tensors: bool
    """True if a build is for what the task's kernels are called with."""

    def probe_target(self, device: str) -> Target:
        """Say what this host builds for and runs.

        Args:
            device: `cpu`, or `cuda:0`, `cuda:1`, ….
        """

    def probe_builder(self, asked: Target) -> Target:
        """Say what this host's compilers make for a target; it need not be able to run it."""

    def refuse(self, candidate: Candidate) -> DidNotBuild | None:
        """Say why the candidate cannot even be given to the compiler, if so."""

    def plan_build(
        self,
        candidate: Candidate,
        target: Target,
        workloads: tuple[CalledWith, ...] = (),
    ) -> BuildPlan:
        """Return how to build it; the same arguments always give the same plan.

        Args:
            candidate: one that `refuse` does not refuse.
            target: who will run it.
            workloads: the task's, for languages with kernels that are compiled for their calls; empty: unknown.
        """

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

    def explain_call_failure(self, status: int, log: str) -> Crashed | Wrong:
        """Say why a call did not go well: its status was not 0."""

    def describe(self, tensors: tuple[TensorSpec, ...], call: CallForm | None = None, entry_point: str = "") -> str:
        """Tell the calling contract for these tensors, as prose and code for a model.

        Args:
            tensors: the task's.
            call: what stands beside them in a call; None: nothing.
            entry_point: what functions are to be called, where tasks say so.
        """


class Craft(Protocol):
    """Advice to coders: a module of the language's folder."""

    RULES: str
    """For every device."""
    EXAMPLE: str
    """An answer to another, small task."""

    def advice(self, hardware: Hardware) -> tuple[str, ...]:
        """Return lines for one generation of devices; may be empty."""


class LanguageSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a language: `SPEC` of its folder."""

    main_path: str
    """Default name of the main file."""
    suffixes: tuple[str, ...]
    """Of a single source for its compiler; the first one is the usual one."""
    fences: tuple[str, ...]
    """Tags of code blocks in models' answers; the first one stands in prompts."""
    is_native: bool
    """True if kernels are built as shared libraries; else they are Python."""
    supports: Mapping[Platform, LanguageSupport]
    craft: Craft
    proof: str
    """A right kernel: twice the input plus the mean of its row, with the language's entry point."""
    proof_part: str
    """Part of `proof` that makes it wrong if it is replaced by `x`."""
