"""Exported modules in CUDA; see `ksearch_async.export.module` for what siblings define."""

from __future__ import annotations

from evaluators.languages.cuda.contract import COMPILER_FLAGS
from messages.tasks import Candidate, Target

PARTS = ("native", "building", "cuda")


def language_facts(_candidate: Candidate, target: Target) -> dict[str, object]:
    """Return the flags that it was judged with, and for which GPU."""
    return {"FLAGS": COMPILER_FLAGS, "ARCHITECTURE": target.arch}
