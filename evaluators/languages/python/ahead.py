"""Modules with Triton kernels inside: the plan of a build that compiles them before there is a GPU."""

from __future__ import annotations

import msgspec

from evaluators.languages.base import BuildPlan, CalledWith
from evaluators.languages.programs import ADDRESS_SPACE_BYTES, MEMORY_BYTES, command_of, programs_of
from evaluators.languages.triton.ahead import ARCHITECTURES, capability_of
from evaluators.runners.kernels import KERNELS, LAUNCHER
from messages.calls import CallForm
from messages.tasks import Candidate, ModuleTerms, Target, TensorSpec

_MODULE = "evaluators.languages.python.gpu_building"
_WORD = "triton"
_LIMIT_S, _TIMEOUT_S = 90.0, 150.0
_JOB_BYTES = 64 << 10
"""Of a job: it stands on a command line, and in one message to the warm process."""
# No measurements of configurations: there are none here.
_LEAVES = rf"{KERNELS}/[^/]+/((?![^/]+\.autotune\.json)[^/]+\.(json|source|ttir|ttgir|llir|ptx|cubin)|{LAUNCHER})"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Construction and arguments of a module on one workload; or arguments of a function."""

    arguments: str
    parameters: int
    trains: bool
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of each."""
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    """Likewise."""
    form: CallForm | None
    """None: a module, which takes the inputs one after the other."""
    state: tuple[tuple[str, tuple[int, ...], str], ...]
    """Name, shape and dtype of each parameter, then of each buffer."""


class AheadJob(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the building process; see `gpu_building.py`."""

    entry_point: str
    program: str
    """The main file."""
    programs: tuple[str, ...]
    inline: str = ""
    """The job of `building.py`, if the candidate builds extensions."""
    calls: tuple[Call, ...] = ()
    """One per workload; empty: nothing is called."""
    why_not: str = ""
    """Said if nothing is called."""
    capability: int
    shared_bytes: int
    """Limit of a block."""
    limit_s: float = _LIMIT_S
    """For calling, and for compiling."""
    memory_bytes: int = MEMORY_BYTES
    """Address space for calling, besides what importing took."""


def launches_kernels(candidate: Candidate) -> bool:
    """Say whether a candidate's text names what kernels are written in."""
    return any(_WORD in file.text for file in candidate.files if file.path.endswith(".py"))


def calls_of(workloads: tuple[CalledWith, ...]) -> tuple[Call, ...]:
    """Return how a candidate is made and called, each way once; of workloads of which that is known."""
    known = (each for each in workloads if each.module is not None or _is_function(each.call))
    return tuple(dict.fromkeys(map(_call, known)))


def plan_ahead(candidate: Candidate, target: Target, calls: tuple[Call, ...], inline: BuildPlan | None) -> BuildPlan:
    """Return the command that reads or builds the candidate, and compiles what calls of it launch.

    Args:
        candidate: one with a text that names Triton.
        target: of a GPU of `ARCHITECTURES`.
        calls: at least one.
        inline: the plan by which its extensions are built, if it has some.
    """
    job = AheadJob(
        entry_point=candidate.entry_point,
        program=candidate.files[0].path,
        programs=programs_of(candidate),
        inline=inline.command[-1] if inline else "",
        calls=calls,
        capability=capability_of(target.arch),
        shared_bytes=ARCHITECTURES[target.arch],
    )
    if len(msgspec.json.encode(job)) > _JOB_BYTES:
        job = msgspec.structs.replace(job, calls=(), why_not="the module has too many tensors")
    # The tools stand on the command line so that the build may read where they lie.
    tools = inline.command[5:-1] if inline else ()
    return BuildPlan(
        command=command_of(_MODULE, *tools, msgspec.json.encode(job).decode()),
        product=candidate.files[0].path,
        memory_bytes=ADDRESS_SPACE_BYTES,
        timeout_s=_TIMEOUT_S + (inline.timeout_s if inline else 0.0),
        warm=_MODULE,
        leaves=f"{_LEAVES}|{inline.leaves}" if inline else _LEAVES,
    )


def _is_function(form: CallForm | None) -> bool:
    return form is not None and form.calling != "module"


def _call(workload: CalledWith) -> Call:
    made = workload.module or ModuleTerms()
    return Call(
        arguments=made.arguments,
        parameters=made.parameters,
        trains=made.trains,
        inputs=_shapes(workload.tensors, "input"),
        outputs=_shapes(workload.tensors, "output"),
        form=workload.call,
        state=tuple((spec.name, spec.shape, spec.dtype) for spec in workload.tensors if spec.role == "parameter"),
    )


def _shapes(tensors: tuple[TensorSpec, ...], role: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((spec.shape, spec.dtype) for spec in tensors if spec.role == role)
