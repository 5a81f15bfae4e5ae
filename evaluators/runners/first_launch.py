"""What Triton does only when a kernel is launched for the first time, for processes that others are forked from.

- `be_ready_to_launch() -> None`

Without it every process that is forked does it again, in its first call: a seventh of a second.
"""

from __future__ import annotations

import contextlib
import importlib

from triton.runtime.cache import triton_key

_IMPORTED = ("triton.compiler.code_generator", "triton.experimental.gluon", "triton.tools.tensor_descriptor")


def be_ready_to_launch() -> None:
    """Read the whole of Triton for a hash, part of every kernel's key; import what its launches import."""
    triton_key()
    for name in _IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):  # what a version does not have, it does not import
            importlib.import_module(name)
