"""The file that a runner, and with it a candidate, prints to."""

from __future__ import annotations

import os
from pathlib import Path

from evaluators.printed import folded, printable

_TAIL = 1500


class RunnerLog:
    """Held by its descriptor: a candidate may have put something else where it was."""

    def __init__(self, folder: Path, product: str) -> None:
        """Make an empty one.

        Args:
            folder: the runner's, where it lies.
            product: path of what was built; it is told by its name.
        """
        self._folder, self._product = folder, product
        self._file = (folder / "log").open("w+b", buffering=0)

    def fileno(self) -> int:
        """Return the descriptor that the runner prints to: the same open file."""
        return self._file.fileno()

    def close(self) -> None:
        """Forget it."""
        self._file.close()

    def tail(self) -> str:
        """Return the end of what was printed, without this host's paths."""
        size = os.fstat(self.fileno()).st_size
        tail = os.pread(self.fileno(), _TAIL, max(0, size - _TAIL))
        text = folded(printable(tail.decode(errors="replace")).strip())
        return text.replace(self._product, Path(self._product).name).replace(str(self._folder), ".")

    def take(self, most_bytes: int) -> bytes:
        """Return the end of what was printed, and begin again."""
        size = os.fstat(self.fileno()).st_size
        printed = os.pread(self.fileno(), most_bytes, max(0, size - most_bytes))
        # The runner writes at this file's offset, since it is the same open file.
        os.lseek(self.fileno(), 0, os.SEEK_SET)
        os.ftruncate(self.fileno(), 0)
        return printed
