"""Exported modules in C++; see `ksearch_async.export.module` for what siblings define."""

from __future__ import annotations

from evaluators.languages.cpp.contract import COMPILER_FLAGS
from evaluators.languages.cpp.toolchain import features_of
from messages.tasks import Candidate, Target

PARTS = ("native", "building", "cpp")


def language_facts(_candidate: Candidate, target: Target) -> dict[str, object]:
    """Return the flags that it was judged with, and what CPU they are for."""
    return {
        "FLAGS": COMPILER_FLAGS,
        "ARCHITECTURE": target.march,
        "CPU_FEATURES": features_of(target.march),
    }
