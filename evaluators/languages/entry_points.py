"""What languages share: whether a candidate's entry point can be one, and whether what was built has it.

- `refuse_program(candidate)`: of Python programs, before they are read
- `check_exported(product, name)`: of shared libraries, once they are built
"""

from __future__ import annotations

import re
from pathlib import Path

from messages.tasks import Candidate
from messages.verdicts import DidNotBuild

_SUFFIX = ".py"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def refuse_program(candidate: Candidate) -> DidNotBuild | None:
    """Say why a candidate cannot be given to Python, if so."""
    if _IDENTIFIER.fullmatch(candidate.entry_point) is None:
        return DidNotBuild(reason=f"entry point {candidate.entry_point!r} is no Python identifier")
    if not candidate.files or not candidate.files[0].path.endswith(_SUFFIX):
        return DidNotBuild(reason=f"the main file must end in {_SUFFIX}")
    return None


def programs_of(candidate: Candidate) -> tuple[str, ...]:
    """Return the paths of its Python files, the main one first."""
    return tuple(file.path for file in candidate.files if file.path.endswith(_SUFFIX))


def check_exported(product: Path, name: str) -> DidNotBuild | None:
    """Look for the entry point among the dynamic symbols; the file is stripped, so that no others are there."""
    names = product.read_bytes()
    if any(b"\0" + symbol + b"\0" in names for symbol in (name.encode(), f"__tvm_ffi_{name}".encode())):
        return None
    return DidNotBuild(
        reason=f'{name} is not exported: define `extern "C" int {name}(...)` '
        f"or export it with TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, ...)"
    )
