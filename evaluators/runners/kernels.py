"""Kernels that were compiled when a Triton candidate was built, for the process that calls it. Stdlib only.

Triton finds what it compiled by a hash over source, types, options, versions and target; so what was compiled by the
same versions for the same GPU is found, and anything else is compiled again. Its index files name the compiled files by
absolute paths: they are written anew. Both folders are the candidate's own matter, whatever lies in them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil

KERNELS = "kernels"
"""Folder of an artifact: Triton's cache of what was compiled."""
LAUNCHER = r"__triton_launcher\.[^/]+\.so"
"""File names in there of launchers, where each signature has one; see `languages/triton/launchers.py`."""
_INDEX = "__grp__"
_PATHS = "child_paths"


def seed_cache(built: str, cache: str) -> None:
    """Copy compiled kernels into Triton's cache, where it does not have them yet.

    Without them, or with damaged ones, Triton compiles at the first call: so nothing is raised.
    """
    names = os.listdir(built) if os.path.isdir(built) else []  # noqa: PTH112, PTH208 - pathlib would cost start-up
    for name in names:
        source, target = os.path.join(built, name), os.path.join(cache, name)  # noqa: PTH118 - as above
        if os.path.isdir(source) and not os.path.exists(target):  # noqa: PTH110, PTH112 - as above
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                _copy(source, target)


def _copy(source: str, target: str) -> None:
    unfinished = f"{target}.{os.getpid()}"
    shutil.copytree(source, unfinished, copy_function=shutil.copyfile)
    for name in os.listdir(unfinished):  # noqa: PTH208 - as above
        if name.startswith(_INDEX):
            path = os.path.join(unfinished, name)  # noqa: PTH118 - as above
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
                index = json.load(file)
            index[_PATHS] = {child: os.path.join(target, child) for child in index[_PATHS]}  # noqa: PTH118 - as above
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
                json.dump(index, file)
    os.rename(unfinished, target)  # noqa: PTH104 - as above
