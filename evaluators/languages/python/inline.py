"""Modules that compile C++ or CUDA inside: the plan of their build, which executes them as far as importing goes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from evaluators.languages.base import BuildPlan
from evaluators.languages.cpp.toolchain import find_compiler
from evaluators.languages.cuda.toolchain import find_nvcc
from evaluators.languages.programs import ADDRESS_SPACE_BYTES, command_of, programs_of
from evaluators.runners.inline import INLINE
from messages.base import EvaluatorError
from messages.tasks import Candidate, Target

_MODULE = "evaluators.languages.python.building"
_WORD = "cpp_extension"
_TIMEOUT_S = 300.0
"""torch's headers take a compiler 20 s of a quiet core, nvcc more, and builds share the host."""


class InlineJob(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the building process; see `building.py`."""

    entry_point: str
    program: str
    """The main file."""
    programs: tuple[str, ...]
    ninja: str
    compiler: str
    nvcc: str = ""
    """Empty: there is none, or the target has no GPU."""
    cuda_home: str = ""
    architecture: str = ""
    """As in torch's `TORCH_CUDA_ARCH_LIST`: `9.0a`."""


def compiles_inside(candidate: Candidate) -> bool:
    """Say whether a candidate's text names what builds extensions."""
    return any(_WORD in file.text for file in candidate.files if file.path.endswith(".py"))


def plan_inline(candidate: Candidate, target: Target) -> BuildPlan:
    """Return the command that imports the candidate and keeps what it builds.

    Raises:
        EvaluatorError: ninja or a compiler is missing.
    """
    ninja = _find_ninja()
    nvcc = find_nvcc().path if target.platform == "cuda" else ""
    job = InlineJob(
        entry_point=candidate.entry_point,
        program=candidate.files[0].path,
        programs=programs_of(candidate),
        ninja=ninja,
        compiler=find_compiler(),
        nvcc=nvcc,
        cuda_home=str(Path(nvcc).resolve().parents[1]) if nvcc else "",
        architecture=_torch_name(target.arch) if nvcc else "",
    )
    # The tools stand on the command line so that the build may read where they lie.
    tools = tuple(path for path in (ninja, job.compiler, nvcc, job.cuda_home) if path)
    return BuildPlan(
        command=command_of(_MODULE, *tools, msgspec.json.encode(job).decode()),
        product=candidate.files[0].path,
        memory_bytes=ADDRESS_SPACE_BYTES,
        timeout_s=_TIMEOUT_S,
        warm=_MODULE,
        leaves=rf"{INLINE}/[0-9a-f]+/[^/]+\.so",
    )


def _find_ninja() -> str:
    own = Path(sys.executable).parent / "ninja"
    found = str(own) if own.exists() else shutil.which("ninja")
    if found is None:
        raise EvaluatorError(
            "ninja is not here, and torch builds extensions inside modules with it: `pip install ninja`",
            permanent=True,
        )
    return found


def _torch_name(arch: str) -> str:
    """Return `9.0a` for `sm_90`."""
    number = arch.removeprefix("sm_")
    specific = "a" if int(number) >= 90 else ""
    return f"{number[:-1]}.{number[-1]}{specific}"
