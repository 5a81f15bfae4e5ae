"""Limits the size of an artifact store: artifacts in use stay, the others are removed, the oldest first.

Several processes may share a store. A hold is a shared lock on the artifact's `meta.json`, which the kernel releases
when its process dies; removing the folder needs the exclusive lock. All functions block: call them in a thread.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from pathlib import Path

from evaluators.build.builder import META, artifact_folder
from messages.base import EvaluatorError

STALE_S = 24 * 3600.0
"""Age at which an unfinished folder is abandoned."""


class Hold:
    """A hold that keeps an artifact in the store."""

    def __init__(self, lock: int) -> None:
        self._lock = lock

    def release(self) -> None:
        """Release it, once."""
        os.close(self._lock)


def hold(artifacts: Path, artifact_id: str) -> Hold | None:
    """Hold an artifact in the store, and mark it as used last; None if it does not exist."""
    folder = artifact_folder(artifacts, artifact_id)
    try:
        lock = _locked(folder, fcntl.LOCK_SH)
        if lock is not None:
            os.utime(folder)
    except OSError as error:
        raise EvaluatorError(f"the artifact store {str(artifacts)!r} failed: {error}") from error
    return None if lock is None else Hold(lock)


def trim(artifacts: Path, *, max_bytes: int) -> int:
    """Remove artifacts until the others fit, and old unfinished folders. Returns the number of removed artifacts."""
    try:
        folders = [folder for folder in artifacts.iterdir() if folder.is_dir()]
        _sweep([folder for folder in folders if folder.name.startswith(".")])
        found = [(folder.stat().st_mtime, folder) for folder in folders if not folder.name.startswith(".")]
    except FileNotFoundError:
        return 0  # the store is not there yet, or somebody else trims it at this moment
    except OSError as error:
        raise EvaluatorError(f"the artifact store {str(artifacts)!r} failed: {error}") from error
    sizes = {folder: _size_bytes(folder) for _, folder in found}
    total, removed = sum(sizes.values()), 0
    for _, folder in sorted(found):
        if total <= max_bytes:
            break
        if _remove(folder):
            total -= sizes[folder]
            removed += 1
    return removed


def _sweep(unfinished: list[Path]) -> None:
    for folder in unfinished:
        if time.time() - folder.stat().st_mtime > STALE_S:
            shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path) -> bool:
    try:
        lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # held, or no longer readable: not ours to remove
    if lock is None:
        return False
    try:
        doomed = folder.with_name(f".removing-{uuid.uuid4().hex}")
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _locked(folder: Path, how: int) -> int | None:
    """Lock an artifact. None if it does not exist, or disappeared during the wait."""
    path = folder / META
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, how)
        if path.stat().st_ino == os.fstat(lock).st_ino:
            return lock
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _size_bytes(folder: Path) -> int:
    size_bytes = 0
    for directory, _folders, names in os.walk(folder):
        for name in names:
            try:
                size_bytes += Path(directory, name).lstat().st_size
            except FileNotFoundError:
                continue
    return size_bytes
