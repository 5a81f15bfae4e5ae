"""Refuses torch operators in this process, from C++ as from Python: their kernels are replaced by one that raises.

It is policy, not security: a process cannot be kept from computing what it likes. What is decided by it (a call of a
denied operator ends in `rejected`) holds for whatever goes through the dispatcher, whoever calls it and catches the
error; what does not go through it is looked at elsewhere (`evaluators/policy/`).
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

from evaluators.policy.operators import bare_name
from evaluators.runners.base import LIBRARY_CALL, UNNAMED

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

_DRIVERS = ("libcuda.so", "libnvidia-ml.so")
_COMPILER = "torch._inductor.compile_fx"
_RUNTIMES = frozenset(("_jit_to_static_module", "_fuse_to_static_module", "StaticModule"))
"""Of `torch._C`."""


class LibraryCallError(RuntimeError):
    """A denied operator was called."""


class Denial:
    """The operators that this process refuses, and which of them the candidate called nevertheless."""

    def __init__(self, denied: Sequence[str]) -> None:
        """Replace their kernels, for good: before the candidate is imported, so that it can keep none of the old ones.

        Args:
            denied: names without overload. Empty: nothing is refused.
        """
        self._index = {name: index for index, name in enumerate(denied)}
        self._called: list[int] = []
        if denied:
            with _no_warnings():
                self._replace_kernels()
            refusals = [self._refusal(name, len(denied) + index) for index, name in enumerate(UNNAMED)]
            compiling, loading, running = refusals
            _refuse_compiling(compiling)
            _refuse_loading(loading)
            _refuse_static_runtime(running)

    def status(self, status: int) -> int:
        """Return what to answer for a call that ended with a status: a refused operator goes before all else."""
        if not self._called:
            return status
        return LIBRARY_CALL + self._called[0]

    def _replace_kernels(self) -> None:
        spaces: dict[str, list[tuple[str, Callable[..., None]]]] = {}
        for full in torch._C._dispatch_get_all_op_names():  # noqa: SLF001 - there is no public list
            index = self._index.get(bare_name(full))
            if index is not None:
                space, _, name = full.partition("::")
                spaces.setdefault(space, []).append((name, self._refusal(full, index)))
        for space, refusals in spaces.items():
            for key in _KEYS:
                library = torch._C._dispatch_library("IMPL", space, key, "", 0)  # noqa: SLF001 - see below
                for name, refusal in refusals:
                    library.impl(name, key, refusal, False)  # type: ignore[call-arg] # torch's stub lacks the last
                # Never freed, and held by no Python object: `torch.library.Library` could be found and destroyed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))

    def _refusal(self, name: str, index: int) -> Callable[..., None]:
        def refuse(*_: object, **__: object) -> None:
            self._called.append(index)
            raise LibraryCallError(f"{name} may not be called: this task denies library calls")

        return refuse


def _refuse_compiling(refuse: Callable[..., None]) -> None:
    """Have `torch.compile` raise: what it generates would be the library's work, and passes by the dispatcher."""
    torch.compile = refuse  # type: ignore[assignment]
    sys.modules[_COMPILER] = None  # type: ignore[assignment] # so that importing it fails


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
    """Keep what the dispatcher prints of replaced kernels from the candidate's log."""
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
