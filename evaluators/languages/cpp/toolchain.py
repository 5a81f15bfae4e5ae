"""The C++ compiler of this host, and what it can build for. Flags are ours: a candidate chooses its own by pragmas."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from evaluators.hardware.roofline import cpu_facts
from messages.base import EvaluatorError
from messages.tasks import Target

COMPILER_VARIABLE = "KSEARCH_CXX"
_COMPILERS = ("c++", "g++", "clang++")
_AARCH64_MARCH = "armv8-a"

_X86_LEVELS = (
    (
        "x86-64-v4",
        {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    ),
    (
        "x86-64-v3",
        {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    ),
    (
        "x86-64-v2",
        {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    ),
)
"""Micro-architecture levels of the x86-64 psABI, with the names that /proc/cpuinfo gives to their features."""


def find_compiler() -> str:
    """Return the path of the compiler: `$KSEARCH_CXX`, else the first of c++, g++, clang++ on the PATH."""
    wanted = os.environ.get(COMPILER_VARIABLE)
    names = (wanted,) if wanted else _COMPILERS
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    what = f"${COMPILER_VARIABLE} is {wanted!r}, which cannot be run" if wanted else "no C++ compiler on the PATH"
    raise EvaluatorError(
        f"{what}: install g++ or clang++ (Debian, Ubuntu: `apt install g++`), or set {COMPILER_VARIABLE}",
        permanent=True,
    )


def probe() -> Target:
    """Return this host's architecture, `-march` level, compiler version and CPU model.

    Raises:
        EvaluatorError: there is no compiler, or it knows no level that this CPU has.
    """
    compiler = find_compiler()
    version = _run((compiler, "--version"))
    if version.returncode != 0 or not version.stdout.strip():
        raise EvaluatorError(f"{compiler!r} --version failed: {version.stderr.strip()[:200]!r}", permanent=True)
    model, flags = _read_cpu()
    arch = platform.machine()
    for march in _marches(arch, flags):
        if _knows(compiler, march):
            toolchain = version.stdout.splitlines()[0].strip()
            return Target(arch=arch, march=march, toolchain=toolchain, device=model, cpu=cpu_facts())
    raise EvaluatorError(
        f"{compiler!r} builds no shared library for a CPU like this one ({arch}): install a newer g++", permanent=True
    )


@functools.cache
def tvm_ffi_folder() -> Path | None:
    """Return where apache-tvm-ffi is installed, without importing it; None if it is not."""
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def tvm_ffi_library() -> str:
    """Return the path of its shared library; empty if it is not installed."""
    folder = tvm_ffi_folder()
    return "" if folder is None else str(folder / "lib" / "libtvm_ffi.so")


def cpu_model() -> str:
    """Return the CPU's name.

    Raises:
        EvaluatorError: the system does not tell.
    """
    return _read_cpu()[0]


def features_of(march: str) -> frozenset[str]:
    """Return the features that a CPU needs for a level, as /proc/cpuinfo names them; none where that is not known."""
    names = [name for name, _ in _X86_LEVELS]
    if march not in names:
        return frozenset()
    return frozenset().union(*(needed for _, needed in _X86_LEVELS[names.index(march) :]))


def _marches(arch: str, flags: frozenset[str]) -> tuple[str, ...]:
    if arch in {"aarch64", "arm64"}:
        return (_AARCH64_MARCH,)
    if arch != "x86_64":
        return ()
    levels = [
        name for index, (name, _) in enumerate(_X86_LEVELS) if all(needed <= flags for _, needed in _X86_LEVELS[index:])
    ]
    return (*levels, "x86-64")


def _read_cpu() -> tuple[str, frozenset[str]]:
    model, flags = "", frozenset[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EvaluatorError(f"cannot read /proc/cpuinfo: {error.strerror}", permanent=True) from error
    for line in lines:
        key, _, value = line.partition(":")
        match key.strip():
            case "model name":
                model = model or value.strip()
            case "flags" | "Features":
                flags = flags or frozenset(value.split())
            case _:
                pass
    return model or platform.machine(), flags


def _knows(compiler: str, march: str) -> bool:
    """Say whether a compiler builds a library for a level: a program that merely ends well is no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        product = Path(folder) / "empty.so"
        command = (compiler, f"-march={march}", "-shared", "-fPIC", "-x", "c++", os.devnull, "-o", str(product))
        return _run(command).returncode == 0 and product.exists()


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the user's own compiler
            command, capture_output=True, text=True, check=False, timeout=20, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EvaluatorError(f"cannot run the compiler {command[0]!r}: {error}", permanent=True) from error
