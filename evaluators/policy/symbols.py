"""Which libraries do a candidate's work for it: read from the shared library that was built, whatever its text says.

The linker insists that every symbol is found (`-z defs`), so the names of the libraries say nearly all. What remains
are symbols that may be missing, and the functions that find others while the program runs.
"""

from __future__ import annotations

import re

from evaluators.policy.elf import Imports
from evaluators.policy.native_text import names_in
from messages.base import Language
from messages.tasks import Candidate, TaskRules

_ALLOWED = re.compile(
    r"(libc|libm|libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s|libgomp|libomp|libiomp5|libpthread|librt|libdl|ld-linux.*|"
    r"libtvm_ffi|libcudart|libcuda)\.so[.0-9]*"
)
"""What a kernel of one's own may be linked with: the languages' runtimes, and those of CUDA."""

_LIBRARIES = re.compile(
    r"(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|nvjpeg|npp[a-z]|mkl|vml|dnnl|onednn|openblas|cblas|lapack|"
    r"aoti_torch|torch|at::|Py[A-Z_])",
    re.IGNORECASE,
)
_NAMESPACES = re.compile(r"_ZNK?S?t?(2at|3c10|5torch|7cutlass)")
"""Mangled names in the namespaces of torch."""

FINDERS = frozenset(("dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode", "__libc_dlsym"))
"""Functions by which a program can call a library that it was not linked with."""

LIBRARIES = (
    "cublas",
    "cublasLt",
    "cudnn",
    "cusparse",
    "cusolver",
    "cufft",
    "curand",
    "cutensor",
    "nccl",
    "mkl",
    "dnnl",
    "openblas",
)
"""What a task may allow by name, besides operators and their families."""


def foreign_call(imports: Imports, rules: TaskRules, language: Language) -> str:
    """Return what a built library calls that is not its own work; empty if nothing.

    Args:
        imports: of the library.
        rules: the task's.
        language: what it is written in: CUDA's runtime, which is linked in, looks for the driver by itself.
    """
    if rules.library_calls == "allow":
        return ""
    for file in imports.needed:
        if not is_runtime(file) and not is_allowed(file, rules):
            return f"it is linked with {file}"
    for symbol in imports.undefined:
        if symbol.name in FINDERS and language != "cuda":
            return f"it calls {symbol.name}, which finds functions of other libraries while the program runs"
        known = _LIBRARIES.match(symbol.name) or _NAMESPACES.match(symbol.name)
        if known is not None and not is_allowed(symbol.name, rules):
            return f"it calls {symbol.name[:120]}, a function of a library"
    return ""


def finder_in(candidate: Candidate) -> str:
    """Return which function that finds others a text in CUDA names; empty if none. Its library cannot say."""
    if candidate.language != "cuda":
        return ""
    found = sorted({name for file in candidate.files for name in FINDERS & names_in(file.text)})
    return f"it names {found[0]}, which finds functions of other libraries while the program runs" if found else ""


def is_runtime(file: str) -> bool:
    """Say whether a library's file name is that of a language's runtime, or of CUDA's."""
    return _ALLOWED.fullmatch(file) is not None


def is_allowed(name: str, rules: TaskRules) -> bool:
    """Say whether a task allows a library, or a function of one, by name."""
    bare = name.removeprefix("lib").lower()
    return any(bare.startswith(allowed.lower()) for allowed in rules.allowed if "::" not in allowed)
