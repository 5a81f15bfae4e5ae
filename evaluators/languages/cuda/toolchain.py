"""Finds nvcc and its targets. No GPU is needed: the target comes from the evaluator."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evaluators.languages.cpp.toolchain import find_compiler
from messages.base import EvaluatorError
from messages.tasks import Target

NVCC_VARIABLE = "KSEARCH_NVCC"
_HOME_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_USUAL = "/usr/local/cuda"
_RELEASE = re.compile(r"^Cuda compilation tools, .*$", re.MULTILINE)
_ARCH = re.compile(r"sm_[0-9]{2,3}")
_SPECIFIC_SINCE = 90
"""From this architecture on some instructions are of the exact one alone: `sm_90a` (PTX ISA, target directives)."""


class Nvcc(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler, and where its parts are if it does not find them itself."""

    path: str
    release: str
    """`Cuda compilation tools, release 13.0, V13.0.88`."""
    architectures: tuple[str, ...]
    """Targets of its machine code."""
    folders: tuple[str, ...] = ()
    """Roots with `include` and `lib` that a wheel of nvcc leaves to others."""


def find_nvcc() -> Nvcc:
    """Return the compiler: `$KSEARCH_NVCC`, else on the PATH, in `$CUDA_HOME`, /usr/local/cuda, or the wheel.

    Raises:
        EvaluatorError: there is none, or it does not run.
    """
    wanted = os.environ.get(NVCC_VARIABLE)
    for name in (wanted,) if wanted else _places():
        path = shutil.which(name)
        if path is not None:
            return _ask(path)
    what = f"${NVCC_VARIABLE} is {wanted!r}, which cannot be run" if wanted else "no CUDA compiler (nvcc) here"
    raise EvaluatorError(
        f"{what}: install the CUDA toolkit or `pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl`, "
        f"or set {NVCC_VARIABLE}",
        permanent=True,
    )


def probe(device: str, arch: str) -> Target:
    """Return the target of one GPU, with the compiler that this host has.

    Args:
        device: the GPU's name.
        arch: `sm_90`.

    Raises:
        EvaluatorError: there is no compiler, or it knows no such architecture.
    """
    nvcc = find_nvcc()
    find_compiler()  # nvcc leaves the code of the host to it
    if arch not in nvcc.architectures:
        raise EvaluatorError(
            f"{nvcc.path!r} ({nvcc.release}) makes no code for {arch}; it does for: {', '.join(nvcc.architectures)}",
            permanent=True,
        )
    return Target(arch=arch, march="", toolchain=nvcc.release, device=device)


def generation_flags(arch: str) -> tuple[str, ...]:
    """Return the flags that make machine code for exactly one architecture, and nothing that a driver would compile."""
    if _ARCH.fullmatch(arch) is None:
        raise EvaluatorError(f"{arch!r} is no architecture of an NVIDIA GPU", permanent=True)
    number = arch.removeprefix("sm_")
    exact = f"{number}a" if int(number) >= _SPECIFIC_SINCE else number
    return ("-gencode", f"arch=compute_{exact},code=sm_{exact}")


def search_flags(nvcc: Nvcc) -> tuple[str, ...]:
    """Return where headers and libraries are that the compiler does not find itself."""
    return tuple(flag for folder in nvcc.folders for flag in ("-isystem", f"{folder}/include", f"-L{folder}/lib"))


def _places() -> Iterator[str]:
    yield "nvcc"
    for variable in _HOME_VARIABLES:
        if home := os.environ.get(variable):
            yield f"{home}/bin/nvcc"
    yield f"{_USUAL}/bin/nvcc"
    for folder in _wheels():
        yield f"{folder}/bin/nvcc"


def _wheels() -> Iterator[Path]:
    """Yield where NVIDIA's wheels put their files: `nvidia/cu13` together, older ones each in a folder of its own."""
    installed = Path(sysconfig.get_path("purelib")) / "nvidia"
    yield from sorted(installed.glob("cu[0-9]*"), reverse=True)
    yield from (installed / name for name in ("cuda_nvcc", "cuda_runtime", "cuda_cccl") if (installed / name).is_dir())


@functools.cache
def _ask(path: str) -> Nvcc:
    release = _RELEASE.search(_run(path, "--version"))
    if release is None:
        raise EvaluatorError(f"{path!r} --version names no release: is it NVIDIA's nvcc?", permanent=True)
    architectures = tuple(sorted(set(_ARCH.findall(_run(path, "--list-gpu-code"))), key=_number))
    own = Path(path).resolve().parents[1]
    folders = tuple(str(folder) for folder in _wheels() if own in {*_wheels()} and folder != own)
    return Nvcc(path=path, release=release[0], architectures=architectures, folders=folders)


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


def _run(path: str, argument: str) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own compiler
            (path, argument), capture_output=True, text=True, check=False, timeout=20, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EvaluatorError(f"cannot run the compiler {path!r}: {error}", permanent=True) from error
    if answer.returncode != 0:
        raise EvaluatorError(f"{path!r} {argument} failed: {answer.stderr.strip()[:200]!r}", permanent=True)
    return answer.stdout
