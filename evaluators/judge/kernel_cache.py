"""Where processes of a candidate keep what they compile: from the checks to the timing of one evaluation."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evaluators.folders import remove_tree
from evaluators.judge.protocol import Artifact


def cache_of(artifact: Artifact, workloads: int) -> Path:
    """Return the folder, in the judge's own, where checks leave compiled kernels to the process that is timed.

    What was called on hidden workloads as well leaves nothing to a process whose words their author may read.

    Args:
        artifact: what was built.
        workloads: on how many the process is called.
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
