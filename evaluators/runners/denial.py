"""Refuses torch operators in this process, from C++ as from Python: their kernels are replaced by one that raises.

It is policy, not security: a process cannot be kept from computing what it likes. What is decided by it (a call of a
denied operator ends in `rejected`) holds for whatever goes through the dispatcher, whoever calls it and catches the
error; what does not go through it is looked at elsewhere (`evaluators/build/policy/`).
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from evaluators.build.policy.operators import PERMITTED, bare_name
from evaluators.runners.base import (
    ARRAYS,
    COMPILER,
    LIBRARY_CALL,
    NUMPY,
    SHARED_LIBRARY,
    STATIC_RUNTIME,
    UNNAMED,
)
from evaluators.runners.numpy_denial import Loops, keep_tensors_out, refuse_functions

_KEYS = (
    "CPU",
    "CUDA",
    "MkldnnCPU",
    "QuantizedCPU",
    "QuantizedCUDA",
    "SparseCPU",
    "SparseCUDA",
    "SparseCsrCPU",
    "SparseCsrCUDA",
    "NestedTensorCPU",
    "NestedTensorCUDA",
)
"""Dispatch keys of the backends that a kernel of the library could be reached by."""

_SHOWN = 8
_PACKAGES = (
    "scipy sklearn numba cupy jax jaxlib tensorflow onnxruntime mkl torchvision torchaudio flash_attn flashinfer "
    "xformers transformer_engine apex liger_kernel cudnn"
)
LIBRARY_PACKAGES = frozenset(_PACKAGES.split())
"""Packages that compute past the dispatcher, or by operators of their own; they cannot be imported."""

_DRIVERS = ("libcuda.so", "libnvidia-ml.so")
_INDUCTOR = "torch._inductor.compile_fx"
_RUNTIMES = frozenset(("_jit_to_static_module", "_fuse_to_static_module", "StaticModule"))
"""Of `torch._C`."""


class LibraryCallError(RuntimeError):
    """A denied operator was called."""


class Denial:
    """Operators that are refused, and which of them the candidate called nevertheless."""

    def __init__(self, denied: Sequence[str] = ()) -> None:
        """Replace their kernels in this process, and so in processes that are forked from it."""
        self.denied = tuple(denied)
        self._index = {name: index for index, name in enumerate(denied)}
        self._called: list[int] = []
        self._libraries: list[object] = []
        """Holder of the registrations of replaced kernels."""
        self._loops: Loops | None = None
        if denied:
            self._loops = Loops(lambda: self._called.append(self._unnamed(NUMPY))) if not _interprets() else None
            with _no_warnings():
                self._replace_kernels()

    def undo(self) -> None:
        """Bring the kernels back."""
        self._libraries.clear()
        if self._loops is not None:
            self._loops.undo()

    def keep(self) -> None:
        """Refuse for good, other ways past the dispatcher too: before the candidate is imported."""
        if not self.denied:
            return
        while self._libraries:
            # Never freed, and held by no Python object: `torch.library.Library` could be found and destroyed.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._libraries.pop()))
        refusals = {name: self._refusal(name, self._unnamed(name)) for name in UNNAMED}
        _refuse_compiling(refusals[COMPILER])
        _refuse_loading(refusals[SHARED_LIBRARY])
        _refuse_static_runtime(refusals[STATIC_RUNTIME])
        sys.modules.update(dict.fromkeys(LIBRARY_PACKAGES - sys.modules.keys()))  # type: ignore[arg-type] # to None
        if not _interprets():
            refuse_functions(refusals[NUMPY])
            if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                keep_tensors_out(refusals[ARRAYS])
        vars(torch._tensor_str).update(_str=_shown)  # noqa: SLF001 - it calls reductions

    def status(self, status: int) -> int:
        """Return what to answer for a call that ended with a status: a refused operator goes before all else."""
        if not self._called:
            return status
        return LIBRARY_CALL + self._called[0]

    def _unnamed(self, name: str) -> int:
        return len(self.denied) + UNNAMED.index(name)

    def _replace_kernels(self) -> None:
        spaces: dict[str, list[tuple[str, Callable[..., None]]]] = {}
        for full in torch._C._dispatch_get_all_op_names():  # noqa: SLF001 - there is no public list
            index = self._index.get(bare_name(full))
            if index is not None:
                space, _, name = full.partition("::")
                spaces.setdefault(space, []).append((name, self._refusal(full, index)))
        for space, refusals in spaces.items():
            for key in _keys():
                library = torch._C._dispatch_library("IMPL", space, key, "", 0)  # noqa: SLF001 - see below
                for name, refusal in refusals:
                    library.impl(name, key, refusal, False)  # type: ignore[call-arg] # torch's stub lacks the last
                self._libraries.append(library)

    def _refusal(self, name: str, index: int) -> Callable[..., None]:
        def refuse(*_: object, **__: object) -> None:
            self._called.append(index)
            raise LibraryCallError(f"{name} may not be called: this task denies library calls. {PERMITTED}")

        return refuse


def _interprets() -> bool:
    """Say whether Triton's interpreter runs kernels here: by numpy, products of matrices too."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _keys() -> Iterator[str]:
    has_cuda = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    return (key for key in _KEYS if has_cuda or not key.endswith("CUDA"))


def _shown(tensor: torch.Tensor, **_: object) -> str:
    """Return what `print` says of a tensor: its first elements and its form."""
    first = tensor.detach().flatten()[:_SHOWN].tolist()
    more = ", ..." if tensor.numel() > _SHOWN else ""
    return (
        f"tensor({str(first)[:-1]}{more}], shape={tuple(tensor.shape)}, dtype={tensor.dtype}, device={tensor.device})"
    )


def _refuse_compiling(refuse: Callable[..., None]) -> None:
    """Have `torch.compile` raise: what it generates would be the library's work, and passes by the dispatcher."""
    torch.compile = refuse  # type: ignore[assignment]
    sys.modules[_INDUCTOR] = None  # type: ignore[assignment] # so that importing it fails


def _refuse_static_runtime(refuse: Callable[..., None]) -> None:
    """Have torch's runtimes for inference raise: they call the kernels behind operators, past the dispatcher."""
    known = vars(torch._C)  # noqa: SLF001 - they have no public names
    known.update(dict.fromkeys(_RUNTIMES & known.keys(), refuse))


def _refuse_loading(refuse: Callable[..., None]) -> None:
    """Have ctypes load no library but the GPU driver's, which torch asks when it needs to: torch's own export a BLAS.

    What this process needs is loaded, and importing modules goes another way.
    """
    load: Callable[[str | None, int], int] = vars(ctypes)["_dlopen"]

    def load_driver(name: str | None, mode: int) -> int:
        if not os.path.basename(name or "").startswith(_DRIVERS):  # noqa: PTH119 - a name for the dynamic linker
            refuse()
        return load(name, mode)

    vars(ctypes).update(_dlopen=load_driver)
    vars(_ctypes).update(dlopen=load_driver)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
