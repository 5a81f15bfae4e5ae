"""The task sources: one sibling package each, with the same file names.

- `reading.py`: finds and parses a task; runs nothing of it and imports no torch
- `packing.py`: the source's own forms of candidates, in and out
- `prompting.py`: what a model is told besides our own description
- `scoring.py`: the source's metrics, from our verdicts

A source leaves out a file where it has nothing to say. `tests/contracts/task_sources.py` holds what all promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from evaluators.tasks.flashinfer import reading as flashinfer
from evaluators.tasks.gpumode import reading as gpumode
from evaluators.tasks.kernelbench import reading as kernelbench
from evaluators.tasks.own import reading as own
from evaluators.tasks.tritonbench import reading as tritonbench
from messages.tasks import TaskSpec


class Reader(Protocol):
    """A source's module `reading`."""

    def read_task(self, selector: str) -> TaskSpec:
        """Return a task.

        Args:
            selector: what stands behind the source's name and colon, or a path that is recognized and what follows it.

        Raises:
            ConfigError: there is none, or it is not in the source's form: which file, which line or key, what to do.
        """

    def recognizes(self, path: Path) -> bool:
        """Say whether a file or folder can only be this source's. Reads as little as it takes."""


READERS: Mapping[str, Reader] = {
    "flashinfer": flashinfer,
    "gpumode": gpumode,
    "kernelbench": kernelbench,
    "own": own,
    "tritonbench": tritonbench,
}
"""By the name that stands before the colon."""
