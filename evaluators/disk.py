"""Whether there is room left on a disk."""

from __future__ import annotations

import os
from pathlib import Path

_LEAST_BYTES = 1 << 20


def is_full(folder: Path) -> bool:
    """Say whether less than a mebibyte, or no file, can be added in a folder."""
    found = os.statvfs(folder)
    has_no_files_left = found.f_files > 0 and found.f_favail == 0
    return found.f_bavail * found.f_frsize < _LEAST_BYTES or has_no_files_left
