"""How much of a GPU's memory is taken."""

from __future__ import annotations

import subprocess


def used_mib() -> int:
    """Return how much memory of the first device is taken, by whomever."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
