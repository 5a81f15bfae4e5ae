"""Extensions that a module builds inside: which of a library's functions do they call past torch's dispatcher?

They are linked with torch, and what they call through its dispatcher is denied in the runner like any other call. Not
seen there are the kernels behind the operators, which torch's libraries export, and the vendors' libraries.
"""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.policy.elf import BadLibraryError, Imports, read_imports
from evaluators.policy.symbols import FINDERS, is_allowed, is_runtime
from evaluators.runners.inline import INLINE
from messages.errors import EvaluatorError
from messages.tasks import TaskRules

_TORCH = re.compile(r"(libtorch\w*|libc10\w*|libpython[0-9.]*)\.so[.0-9]*")
_VENDORS = re.compile(
    r"(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|nvjpeg|npp[a-z]|mkl|vml|dnnl|onednn|openblas|cblas|"
    r"lapack|aoti_torch|dfti|nnp_|xnn_|qnnp|pytorch_q|fbgemm|_ZNK?(6fbgemm|7qnnpack|4dnnl|5ideep)|gemm_|uv_dl|"
    r"[sdcz](gemm|gemv|symm|hemm|syrk|herk|trmm|trsm|ge(qrf|trf|trs|sv|sdd|ev|ls)|po(trf|tri|trs)|(sy|he)(ev|trf|trs)|"
    r"(or|un)(gqr|mqr))|i?[sdcz](dot[cu]?|axpy|scal|nrm2|asum|copy|amax)_?$|"
    r"vm?[sdcz](exp|ln|log|sqrt|pow|a?(sin|cos|tan)|tanh|erf|mul|add|sub|div|inv|trunc))",
    re.IGNORECASE,
)
"""Functions of a BLAS and of LAPACK have names without an underscore as well. What finds others by name counts, too."""
_BEHIND_OPERATORS = re.compile(
    r"_ZNK?2at(3cpu|6native|8cpublas|4meta|14DynamicLibrary|4cuda(?!\d+(getCurrentDeviceProperties|getDeviceProperties|warp_size|"
    r"getCurrentCUDAStream|getDefaultCUDAStream|getStreamFromPool|setCurrentCUDAStream)))"
)
"""Mangled names in the namespaces that hold torch's kernels, and its `dlopen`; of `at::cuda`, what asks about the
device is free."""


def foreign_call_inside(folder: Path, rules: TaskRules) -> str:
    """Return what the extensions of an artifact call that is not their own work; empty if nothing.

    Raises:
        EvaluatorError: one cannot be read.
    """
    for library in sorted((folder / INLINE).glob("*/*.so")):
        try:
            found = _foreign_call(read_imports(library.read_bytes()), rules)
        except BadLibraryError as error:  # what the candidate executes while it is built can have made it so
            return f"extension {library.stem} cannot be looked into ({error})"
        except OSError as error:
            raise EvaluatorError(f"what was built cannot be read: {error}") from error
        if found:
            return f"extension {library.stem}: {found}"
    return ""


def _foreign_call(imports: Imports, rules: TaskRules) -> str:
    for file in imports.needed:
        if not (is_runtime(file) or _TORCH.fullmatch(file) or is_allowed(file, rules)):
            return f"it is linked with {file}"
    for symbol in imports.undefined:
        if symbol.name in FINDERS:
            return f"it calls {symbol.name}, which finds functions of other libraries while the program runs"
        known = any(names.match(symbol.name) for names in (_VENDORS, _BEHIND_OPERATORS))
        if known and not is_allowed(symbol.name, rules):
            return f"it calls {symbol.name[:120]}, a function of a library"
    return ""
