"""Folders that a candidate could write to while it was built or run. Their content is not trusted.

Nothing here follows a link, opens a file, or recurses into folders: a candidate can quickly nest a thousand of them,
which ends `shutil.rmtree` and `os.walk` with a RecursionError.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

_MAX_DEPTH = 32
_MAX_ENTRIES = 10_000
_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 1024


def remove_tree(folder: Path) -> None:
    """Remove a folder with its content, as far as permitted; do nothing if it does not exist."""
    with suppress(OSError):
        while inside := [entry.path for entry in os.scandir(folder) if _is_folder(entry)]:
            for path in inside:
                _flatten(path, folder)
        _remove_files(folder)
        folder.rmdir()


def _flatten(path: str, top: Path) -> None:
    """Remove a folder; its subfolders are moved to the topmost one first."""
    os.chmod(path, stat.S_IRWXU)  # noqa: PTH101 - names come from scandir
    with os.scandir(path) as entries:
        deeper = [entry.path for entry in entries if _is_folder(entry)]
    for one in deeper:
        os.chmod(one, stat.S_IRWXU)  # noqa: PTH101 - as above; a folder that is moved must be writable
        os.rename(one, top / uuid.uuid4().hex)  # noqa: PTH104 - as above
    _remove_files(path)
    os.rmdir(path)  # noqa: PTH106 - as above


def _remove_files(folder: str | Path) -> None:
    with os.scandir(folder) as entries:
        paths = [entry.path for entry in entries if not _is_folder(entry)]
    for path in paths:
        os.unlink(path)  # noqa: PTH108 - as above


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def foreign_entry(folder: Path) -> str:
    """Return a description of an entry that is not a plain file or folder, or of too many entries; else empty."""
    pending, count = [(str(folder), 0)], 0
    while pending:
        path, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return f"more than {_MAX_DEPTH} folders inside each other"
        with os.scandir(path) as entries:
            for entry in entries:
                count += 1
                mode = entry.stat(follow_symlinks=False).st_mode
                if count > _MAX_ENTRIES:
                    return f"more than {_MAX_ENTRIES} files"
                if stat.S_ISDIR(mode):
                    pending.append((entry.path, depth + 1))
                elif not stat.S_ISREG(mode):
                    return f"{os.path.relpath(entry.path, folder)[:100]!r}, which is no plain file"
    return ""


def keep_only(folder: Path, is_kept: Callable[[str], bool]) -> None:
    """Remove the files of a folder without `foreign_entry`, except some.

    Args:
        folder: the folder.
        is_kept: called for each file with its path below the folder, with forward slashes.
    """
    for directory, folders, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(directory, name)
            if not is_kept(path.relative_to(folder).as_posix()):
                path.unlink()
        for name in folders:
            inside = Path(directory, name)
            if not any(inside.iterdir()):
                inside.rmdir()


def is_plain_name(name: str) -> bool:
    """Return True if a file of this name can be made in any folder, and means the same everywhere."""
    path = PurePosixPath(name)
    is_below = bool(path.parts) and str(path) == name and not path.is_absolute() and ".." not in path.parts
    if not is_below or "\0" in name or not name.isprintable():
        return False
    encoded = [part.encode("utf-8", "surrogatepass") for part in path.parts]
    return all(len(part) <= _MAX_NAME_BYTES for part in encoded) and sum(map(len, encoded)) <= _MAX_PATH_BYTES


def name_clash(names: Iterable[str]) -> str:
    """Return a name that occurs twice, or is also the folder of another; empty if there is none."""
    taken: set[str] = set()
    for name in names:
        if name in taken:
            return name
        taken.add(name)
    folders = {str(parent) for name in taken for parent in PurePosixPath(name).parents}
    return min(folders & taken, default="")
