"""Exported modules in Triton; see `ksearch_async.export.module` for what siblings define."""

from __future__ import annotations

from messages.tasks import Candidate, Target

PARTS = ("triton",)


def language_facts(_candidate: Candidate, target: Target) -> dict[str, object]:
    """Return what it was judged on."""
    return {"ARCHITECTURE": target.arch}
