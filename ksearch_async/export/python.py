"""Exported torch modules; see `ksearch_async.export.module` for what siblings define."""

from __future__ import annotations

from messages.tasks import Candidate, Target

PARTS = ("python",)


def language_facts(_candidate: Candidate, target: Target) -> dict[str, object]:
    """Return what it was judged on."""
    return {"ARCHITECTURE": target.arch}
