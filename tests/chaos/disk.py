"""A small disk that can be filled: a tmpfs that only this process tree sees, in namespaces that need no privileges.

A holder process has the mount; everybody reaches it through `/proc/<holder>/root`. It ends with this process, and the
mount with it. Where the system forbids user namespaces there is no such disk, and `small_disk` says so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_BYTES = 256 << 20
_FILLER = "filler"
_BLOCK = bytes(1 << 20)


class NoDiskError(Exception):
    """There is no disk of our own to be had here."""


class Disk:
    """A mounted small disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Take all that is left."""
        with (self.path / _FILLER).open("ab", buffering=0) as filler:
            size = len(_BLOCK)
            while size:
                try:
                    filler.write(_BLOCK[:size])
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Give it back."""
        (self.path / _FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(mount: Path, *, size_bytes: int = SIZE_BYTES) -> Iterator[Disk]:
    """Have a small disk for as long as the block is open.

    Raises:
        NoDiskError: the system does not allow it; the text says what it said.
    """
    mount.mkdir(parents=True, exist_ok=True)
    script = f'mount -t tmpfs -o size={size_bytes} chaos "$1" && echo mounted && exec cat'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(mount)]
    try:
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise NoDiskError(f"unshare cannot be run: {error}") from error
    with holder:
        try:
            said = holder.stdout.readline() if holder.stdout else b""
            path = Path(f"/proc/{holder.pid}/root{mount}")
            if said != b"mounted\n" or not _is_mounted(path, mount):
                errors = holder.stderr.read().decode() if holder.stderr and not said else ""
                raise NoDiskError(f"no tmpfs in a user namespace here: {errors.strip() or 'it cannot be reached'}")
            yield Disk(path)
        finally:
            if holder.stdin:
                holder.stdin.close()
            holder.wait()


def _is_mounted(path: Path, mount: Path) -> bool:
    try:
        return path.stat().st_dev != mount.stat().st_dev
    except OSError:
        return False
