"""Holds a candidate in this process to its task's rules: denied torch operators, numpy's linear algebra, launches.

Kernels of denied operators are replaced by one that raises, for C++ as for Python. This is policy, not security: it
covers what goes through the dispatcher, even if the error is caught; `evaluators/policy/` looks at the rest.

Of numpy, products, decompositions and transforms are refused from Python and from C (the loops of its ufuncs are
replaced), and so are tensors that become arrays or share memory with one. Not covered: numpy's elementwise functions
and sums on data that a candidate copies to an array through Python objects or an address.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from evaluators.build.policy.operators import PERMITTED, bare_name
from evaluators.runners.base import (
    ARRAYS,
    COMPILER,
    LIBRARY_CALL,
    NO_KERNEL,
    NUMPY,
    SHARED_LIBRARY,
    STATIC_RUNTIME,
    UNNAMED,
)

if TYPE_CHECKING:
    from evaluators.runners.triton_hooks import Launches

_KEYS = (
    *("CPU", "CUDA", "MkldnnCPU", "QuantizedCPU", "QuantizedCUDA", "SparseCPU", "SparseCUDA"),
    *("SparseCsrCPU", "SparseCsrCUDA", "NestedTensorCPU", "NestedTensorCUDA"),
)
"""Dispatch keys of the backends that reach a kernel of the library."""

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
    """Refused operators, in this process and those forked from it; notes which ones the candidate called."""

    def __init__(self, denied: Sequence[str] = ()) -> None:
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
        """Restore the kernels."""
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
        """Return the answer to a call that ended with a status: a refused operator comes first."""
        return LIBRARY_CALL + self._called[0] if self._called else status

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
    """True if Triton's interpreter runs kernels here: it uses numpy, for products of matrices too."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _keys() -> Iterator[str]:
    has_cuda = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    return (key for key in _KEYS if has_cuda or not key.endswith("CUDA"))


def _shown(tensor: torch.Tensor, **_: object) -> str:
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

    All that this process needs is loaded, and importing modules goes another way.
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


_UFUNCS = ("matmul", "vecdot", "matvec", "vecmat")
_FUNCTIONS = (
    *_UFUNCS,
    *("dot", "vdot", "inner", "outer", "tensordot", "einsum", "c_einsum", "kron", "cross", "convolve", "correlate"),
    "correlate2",
)
_MODULES = ("numpy.linalg", "numpy.fft")
_LOOPS = ("numpy.linalg._umath_linalg", "numpy.fft._pocketfft_umath")
_LOOP = ctypes.CFUNCTYPE(None, *4 * [ctypes.c_void_p])


class _Ufunc(ctypes.Structure):
    """The beginning of numpy's `PyUFuncObject`, which is part of its binary interface."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("counts", ctypes.c_int * 4),
        ("functions", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("types", ctypes.c_int),
    )


class Loops:
    """Replaces the loops of numpy's products, decompositions and transforms by `note`."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._loop = _LOOP(lambda *_: note())
        address = ctypes.cast(self._loop, ctypes.c_void_p).value
        self._replaced = [(_Ufunc.from_address(id(ufunc)), ufunc) for ufunc in _heavy_ufuncs()]
        self._former = [head.functions for head, _ in self._replaced]
        self._tables = [(ctypes.c_void_p * head.types)(*head.types * [address]) for head, _ in self._replaced]
        for (head, _), table in zip(self._replaced, self._tables, strict=True):
            head.functions = ctypes.addressof(table)

    def undo(self) -> None:
        """Restore the loops."""
        for (head, _), functions in zip(self._replaced, self._former, strict=True):
            head.functions = functions


def _heavy_ufuncs() -> Iterator[object]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    named = vars(numpy)
    yield from (named[name] for name in _UFUNCS if name in named)
    for module in _LOOPS:
        known: Mapping[str, object] = vars(sys.modules[module]) if module in sys.modules else {}
        yield from (value for value in known.values() if isinstance(value, named["ufunc"]))


def refuse_functions(refuse: Callable[..., None]) -> None:
    """Have numpy's functions for linear algebra raise, in all its modules, and `ndarray.dot`."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    for module in _numpy_modules():
        named = vars(module)
        heavy = [name for name in _FUNCTIONS if callable(named.get(name))]
        if module.__name__.startswith(_MODULES):
            heavy += [name for name, value in named.items() if callable(value) and not isinstance(value, type)]
        named.update(dict.fromkeys(heavy, refuse))
    array: type = vars(numpy)["ndarray"]
    # A type written in C has read-only attributes; its proxy stands for its dictionary.
    gc.get_referents(vars(array))[0].update(dot=refuse)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(array))


def _numpy_modules() -> list[ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "numpy"]
    return [module for name in names if isinstance(module := sys.modules[name], ModuleType)]


def keep_tensors_out(refuse: Callable[..., None]) -> None:
    """Refuse tensors that become arrays; make tensors of arrays by copying only."""
    for name in ("numpy", "__array__"):
        setattr(torch.Tensor, name, refuse)
    for module in _numpy_modules():
        if "from_dlpack" in vars(module):
            vars(module).update(from_dlpack=refuse)
    known = vars(torch)
    for name in ("from_numpy", "frombuffer", "as_tensor", "asarray", "from_dlpack"):
        known[name] = _copying(known[name])
    vars(torch.utils.dlpack).update(from_dlpack=known["from_dlpack"])


def _copying(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    clone, tensor = torch.Tensor.clone, torch.Tensor

    def copied(source: object, *args: object, **options: object) -> torch.Tensor:
        made = make(source, *args, **options)
        return made if isinstance(source, tensor) else clone(made)

    return copied


class Rules:
    """The rules of `judge/check/terms.py`, in force before the candidate is imported; statuses tell of broken ones."""

    def __init__(self, terms: Mapping[str, object], denial: Denial) -> None:
        self._denial = denial
        denial.keep()
        self._launches: Launches | None = None
        if terms["launches"]:
            from evaluators.runners.triton_hooks import Launches  # noqa: PLC0415 - needs numpy, modules have none

            self._launches = Launches()

    def of_load(self, status: int) -> int:
        """Return the answer to a load that ended with a status."""
        return self._denial.status(status)

    def of_call(self, call: Callable[[], int]) -> Callable[[], int]:
        """Wrap a call so that its status tells of broken rules."""

        def watched() -> int:
            if self._launches is not None:
                self._launches.count = 0
            status = call()
            if status == 0 and self._launches is not None and not self._launches.count:
                status = NO_KERNEL
            return self._denial.status(status)

        return watched
