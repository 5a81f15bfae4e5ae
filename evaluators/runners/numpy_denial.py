"""Refuses numpy's linear algebra in this process, and numpy's arrays the contents of tensors.

Covered: products, decompositions and transforms, by function, method and operator, from Python and from C (the loops of
numpy's ufuncs are replaced); tensors that become arrays, or share memory with one. Not covered: numpy's elementwise
functions and sums on what a candidate copies to an array by way of Python objects, or by an address.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

import torch

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
    """The loops behind numpy's products, decompositions and transforms, replaced by one that does not compute."""

    def __init__(self, note: Callable[[], None]) -> None:
        """Replace them, in this process and those forked from it; there are none where numpy is not imported."""
        self._loop = _LOOP(lambda *_: note())
        address = ctypes.cast(self._loop, ctypes.c_void_p).value
        self._replaced = [(_Ufunc.from_address(id(ufunc)), ufunc) for ufunc in _heavy_ufuncs()]
        self._former = [head.functions for head, _ in self._replaced]
        self._tables = [(ctypes.c_void_p * head.types)(*head.types * [address]) for head, _ in self._replaced]
        for (head, _), table in zip(self._replaced, self._tables, strict=True):
            head.functions = ctypes.addressof(table)

    def undo(self) -> None:
        """Bring them back."""
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
    """Have numpy's functions for linear algebra raise, wherever it keeps them, and `ndarray.dot`."""
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
    # A type written in C lets nobody set its attributes; what its proxy stands for is its dictionary.
    gc.get_referents(vars(array))[0].update(dot=refuse)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(array))


def _numpy_modules() -> list[ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "numpy"]
    return [module for name in names if isinstance(module := sys.modules[name], ModuleType)]


def keep_tensors_out(refuse: Callable[..., None]) -> None:
    """Have tensors not become arrays, and be made of arrays by copying only."""
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
