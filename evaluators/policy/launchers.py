"""What launches Triton's kernels, where that was compiled with a candidate: it calls the driver, and nobody else."""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.policy.elf import BadLibraryError, read_imports
from evaluators.policy.symbols import is_runtime
from evaluators.runners.kernels import KERNELS, LAUNCHER
from messages.errors import EvaluatorError


def foreign_launcher(folder: Path) -> str:
    """Return what a launcher of an artifact is linked with that none needs; empty if nothing.

    What the candidate executes while it is built can have put it there.

    Raises:
        EvaluatorError: one cannot be read.
    """
    for library in sorted((folder / KERNELS).glob("*/*.so")):
        try:
            needed = read_imports(library.read_bytes()).needed
        except BadLibraryError as error:
            return f"{library.name} cannot be looked into ({error})"
        except OSError as error:
            raise EvaluatorError(f"what was built cannot be read: {error}") from error
        if not re.fullmatch(LAUNCHER, library.name):
            return f"{library.name} is no launcher of Triton's"
        foreign = [file for file in needed if not is_runtime(file)]
        if foreign:
            return f"what launches its kernels is linked with {foreign[0]}"
    return ""
