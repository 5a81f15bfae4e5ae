"""Limits on a candidate's process while it is timed, and the folder of its compiled kernels.

On a GPU candidates compile in their first call on each workload, so until then they may start compilers. The kernel,
not the runner, tells if that was given up afterwards, and if any started process is still there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from evaluators.build.folders import remove_tree
from evaluators.judge.protocol import Artifact
from evaluators.process.guard import descendants_of
from messages.verdicts import Rejected

_RULE = "processes"


def filters_of(pid: int) -> int | None:
    """Return how many filters of system calls a process is behind; None: the kernel does not say (before Linux 5.9)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    lines = dict(line.partition(":")[::2] for line in status.splitlines())
    return int(lines["Seccomp_filters"]) if "Seccomp_filters" in lines else None


def not_sealed(pid: int, before: int | None) -> Rejected | None:
    """Say that a process has not taken another filter upon itself, if so."""
    now = filters_of(pid)
    if before is None or now is None or now > before:
        return None
    return Rejected(reason="its process did not give up the means to start others", rule=_RULE)


def other_process(pid: int, keep: frozenset[int]) -> Rejected | None:
    """Say that something of the candidate's runs besides its own process, if so: it is not stopped with that one."""
    if not descendants_of(os.getpid(), but=keep) - {pid}:
        return None
    return Rejected(reason="it has started a process that goes on between its calls", rule=_RULE)


def cache_of(artifact: Artifact, workloads: int) -> Path:
    """Return the folder, in the judge's own, where checks leave compiled kernels to the process that is timed.

    What was called on hidden workloads as well leaves nothing to a process whose words their author may read.
    """
    folder = Path.cwd() / f"{_name(artifact)}{workloads}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)  # whoever the runner becomes; the judge's own folder is closed to others
    return folder


def forget(artifact: Artifact) -> None:
    """Begin an evaluation without what processes of a former one left: they could have kept what they computed."""
    for folder in Path.cwd().glob(f"{_name(artifact)}*"):
        remove_tree(folder)


def _name(artifact: Artifact) -> str:
    return f"cache-{hashlib.blake2b(artifact.product.encode(), digest_size=8).hexdigest()}-"
