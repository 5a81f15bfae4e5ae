"""Extensions in C++ or CUDA that a module builds inside: compiled by the builder, found again here. Stdlib only.

`torch.utils.cpp_extension.load_inline` and `load` are replaced by functions that look for what was built of the same
sources with the same flags (`evaluators/languages/python/building.py` builds it, beside the candidate's files): there
is no compiler where candidates run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

INLINE = "inline"
"""Folder of an artifact: one folder per extension, named by its key, with the library in it."""
REPLACED = "torch.utils.cpp_extension"
_ONLY_HOW = frozenset(
    ("name", "build_directory", "verbose", "keep_intermediates", "is_python_module", "is_standalone", "use_pch")
)
"""Parameters that say nothing about what is built."""
_POSITIONAL = {
    "load_inline": ("name", "cpp_sources", "cuda_sources"),
    "load": ("name", "sources"),
}


class NotBuiltError(RuntimeError):
    """An extension's sources or flags differ from those that were built."""


def arguments_of(function: str, args: Sequence[object], options: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call by their names."""
    names = _POSITIONAL[function]
    if len(args) > len(names):
        raise NotBuiltError(f"{function}: give all but {', '.join(names)} by name")
    return {**dict(zip(names, args, strict=False)), **options}


def key_of(function: str, arguments: Mapping[str, object], folder: str) -> str:
    """Return the identity of an extension: a hash of its sources and flags."""
    told = {name: value for name, value in arguments.items() if name not in _ONLY_HOW and value not in (None, [], "")}
    for name in ("cpp_sources", "cuda_sources"):
        if isinstance(told.get(name), str):
            told[name] = [told[name]]
    if function == "load":
        told["sources"] = [_read(path) for path in _texts(arguments.get("sources"))]
    text = json.dumps([function, told], sort_keys=True, default=repr).replace(folder, "")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def offer_built(folder: str) -> None:
    """Put what finds a candidate's extensions in the place of what compiles them, for this process."""
    stand_in = ModuleType(REPLACED)
    for function in _POSITIONAL:
        vars(stand_in)[function] = _finder(function, folder)
    vars(stand_in).update(CUDA_HOME=None, ROCM_HOME=None)
    sys.modules[REPLACED] = stand_in
    vars(sys.modules["torch.utils"])["cpp_extension"] = stand_in


def _finder(function: str, folder: str) -> Callable[..., ModuleType]:
    def find(*args: object, **options: object) -> ModuleType:
        arguments = arguments_of(function, args, options)
        key = key_of(function, arguments, folder)
        place = os.path.join(folder, INLINE, key)  # noqa: PTH118 - pathlib would cost start-up
        listed = sorted(os.listdir(place)) if os.path.isdir(place) else []  # noqa: PTH112, PTH208 - as above
        names = [name for name in listed if name.endswith(".so")]
        if not names:
            raise NotBuiltError(
                f"{function}({arguments.get('name')!r}): nothing was built of these sources and flags. They are built "
                "when the file is imported, or by a function without parameters; they must be the same in every run"
            )
        return load_library(os.path.join(place, names[0]))  # noqa: PTH118 - as above

    return find


def load_library(path: str) -> ModuleType:
    """Import a built extension."""
    name = os.path.basename(path).removesuffix(".so")  # noqa: PTH119 - as above
    if (known := sys.modules.get(name)) is not None and getattr(known, "__file__", "") == path:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - as above
        return file.read()
